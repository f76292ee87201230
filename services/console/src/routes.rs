//! Every route of the API.

use axum::http::Method;
use events::requests::authz::{
    AssignRole, CanUse, CreateCredential, CreateGroup, CreateOrganization, CreateProject, CreateUser,
    DeleteAgent, DeleteGroup, DeleteProject, DisableUser, DistrustProvider, EnableUser, GrantCredential,
    IssueJobToken, IssueToken, ListAgents, ListCredentials, ListGroups, ListJobAgents, ListOrganizations,
    ListProjects, ListProviders, ListTokens, ListUsers, RegisterAgent, RevokeCredential, RevokeToken,
    RotateRoot, SetProject, SetTokenLifetimes, ShowAgent, ShowProject, ShowRoot, ShowUser, SignIn,
    TrustProvider, UnlinkUser,
};
use events::requests::configuration::ShowConfiguration;
use events::requests::delivery::{
    ConfirmSource, ListSources, PinSource, ResumeSource, ShowSource, SuspendSource, SyncSource, UnpinSource,
};
use events::requests::gateway::ListTunnels;
use events::requests::status::{ListAgentStatuses, ListObjects};

use crate::log::routes as log_routes;
use crate::route::Route;

mod own;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// All routes.
#[must_use]
pub fn all() -> Vec<Route> {
    let mut routes = directory();
    routes.extend(people_and_secrets());
    routes.extend(tokens());
    routes.extend(signing_in());
    routes.extend(agents());
    routes.extend(sources());
    routes.extend(log_routes::all());
    routes
}

fn directory() -> Vec<Route> {
    vec![
        own::me(),
        Route::ask::<ListOrganizations>(
            GET,
            "/api/v1/organizations",
            "listOrganizations",
            "Lists the organizations that you may see",
        ),
        Route::ask::<CreateOrganization>(
            POST,
            "/api/v1/organizations",
            "createOrganization",
            "Creates an organization with its first owner, whose token is shown once; for operators",
        ),
        Route::ask::<SetTokenLifetimes>(
            PATCH,
            "/api/v1/organization/token-lifetimes",
            "setTokenLifetimes",
            "Says how long personal tokens of your organization live that are issued from now on",
        ),
        Route::ask::<ListGroups>(GET, "/api/v1/groups", "listGroups", "Lists the groups that you may see"),
        Route::ask::<CreateGroup>(POST, "/api/v1/groups", "createGroup", "Creates a group"),
        Route::ask::<DeleteGroup>(
            DELETE,
            "/api/v1/groups/{group}",
            "deleteGroup",
            "Deletes a group; projects in it keep it and are named",
        ),
        Route::ask::<ListProjects>(
            GET,
            "/api/v1/projects",
            "listProjects",
            "Lists the projects that you may see",
        ),
        Route::ask::<CreateProject>(
            POST,
            "/api/v1/projects",
            "createProject",
            "Creates a project, and its group if there is none of that name",
        ),
        Route::ask::<ShowProject>(
            GET,
            "/api/v1/projects/{project}",
            "showProject",
            "Shows a project by `group/name` (with `%2F`), id, or external numeric id",
        ),
        Route::ask::<SetProject>(PATCH, "/api/v1/projects/{project}", "setProject", "Changes a project"),
        Route::ask::<DeleteProject>(
            DELETE,
            "/api/v1/projects/{project}",
            "deleteProject",
            "Deletes a project; agents and sources that hang on it keep it and are named",
        ),
        own::webhook(),
    ]
}

fn people_and_secrets() -> Vec<Route> {
    vec![
        Route::ask::<ListUsers>(GET, "/api/v1/users", "listUsers", "Lists users and their roles"),
        Route::ask::<ShowUser>(GET, "/api/v1/users/{user}", "showUser", "Shows a user by login name or id"),
        Route::ask::<CreateUser>(POST, "/api/v1/users", "createUser", "Creates a user with a first role"),
        Route::ask::<AssignRole>(
            POST,
            "/api/v1/users/{user}/roles",
            "assignRole",
            "Gives a role to a user, or takes it",
        ),
        Route::ask::<DisableUser>(
            POST,
            "/api/v1/users/{user}/disable",
            "disableUser",
            "Ends everything of a user at once: their tokens, those that they made, and what is open by any of these",
        ),
        Route::ask::<EnableUser>(
            POST,
            "/api/v1/users/{user}/enable",
            "enableUser",
            "Lets a user in again; no token of before comes back",
        ),
        Route::ask::<ListCredentials>(GET, "/api/v1/credentials", "listCredentials", "Lists Git credentials"),
        Route::ask::<CreateCredential>(
            POST,
            "/api/v1/credentials",
            "createCredential",
            "Puts a Git credential into the key ring",
        ),
        Route::ask::<GrantCredential>(
            POST,
            "/api/v1/credentials/{credential}/grants",
            "grantCredential",
            "Lets a project use a credential",
        ),
        Route::ask::<RevokeCredential>(
            DELETE,
            "/api/v1/credentials/{credential}",
            "revokeCredential",
            "Destroys a credential's secret",
        ),
    ]
}

fn tokens() -> Vec<Route> {
    vec![
        Route::ask::<IssueJobToken>(
            POST,
            "/api/v1/projects/{project}/job-tokens",
            "issueJobToken",
            "Issues a token for a CI job of a project; its secret is shown once",
        ),
        Route::ask::<ListJobAgents>(
            GET,
            "/api/v1/job/agents",
            "listJobAgents",
            "Lists the agents whose clusters' APIs the asking job may use",
        ),
        Route::ask::<ListTokens>(
            GET,
            "/api/v1/tokens",
            "listTokens",
            "Lists your tokens, a user's, an agent's, or those of a project's jobs",
        ),
        Route::ask::<IssueToken>(
            POST,
            "/api/v1/tokens",
            "issueToken",
            "Issues a token for yourself, a user or an agent; its secret is shown once",
        ),
        Route::ask::<RevokeToken>(DELETE, "/api/v1/tokens/{token}", "revokeToken", "Revokes a token"),
    ]
}

fn signing_in() -> Vec<Route> {
    vec![
        Route::ask::<ListProviders>(
            GET,
            "/api/v1/sign-in",
            "listSignIns",
            "Lists the identity providers by which people and jobs may sign in",
        )
        .open(),
        Route::ask::<SignIn>(
            POST,
            "/api/v1/sign-in",
            "signIn",
            "Signs a person or a job in with an ID token, once; the token of Kasbah is shown once",
        )
        .open(),
        Route::ask::<ListProviders>(
            GET,
            "/api/v1/identity-providers",
            "listIdentityProviders",
            "Lists the identity providers that the operator allows, and which of them your organization believes",
        ),
        Route::ask::<TrustProvider>(
            POST,
            "/api/v1/identity-providers/{provider}/trust",
            "trustIdentityProvider",
            "Believes an identity provider; of jobs: of whom",
        ),
        Route::ask::<DistrustProvider>(
            DELETE,
            "/api/v1/identity-providers/{provider}/trust",
            "distrustIdentityProvider",
            "Believes an identity provider no more",
        ),
        Route::ask::<ShowRoot>(GET, "/api/v1/root", "showRoot", "Shows the root that signs passes"),
        Route::ask::<RotateRoot>(
            POST,
            "/api/v1/root/rotation",
            "rotateRoot",
            "Has another root sign passes from now on; agents come to it by the former one's signature",
        ),
        Route::ask::<UnlinkUser>(
            DELETE,
            "/api/v1/users/{user}/accounts/{provider}",
            "unlinkUser",
            "Takes a user's account at an identity provider from them",
        ),
    ]
}

fn agents() -> Vec<Route> {
    vec![
        Route::ask::<ListAgents>(GET, "/api/v1/agents", "listAgents", "Lists the agents that you may see"),
        Route::ask::<RegisterAgent>(
            POST,
            "/api/v1/agents",
            "registerAgent",
            "Registers an agent; its first token is shown once, with the root key that it pins",
        ),
        Route::ask::<ShowAgent>(
            GET,
            "/api/v1/agents/{agent}",
            "showAgent",
            "Shows an agent by name, `group/project:name` or id",
        ),
        Route::ask::<DeleteAgent>(
            DELETE,
            "/api/v1/agents/{agent}",
            "deleteAgent",
            "Deletes an agent; its tokens die",
        ),
        Route::ask::<CanUse>(
            POST,
            "/api/v1/agents/{agent}/access-reviews",
            "reviewAccess",
            "Says whether you, or a user, may do something with the cluster's API, and which grant lets them",
        ),
        Route::ask_about_agent::<ShowConfiguration>(
            GET,
            "/api/v1/agents/{agent}/configuration",
            "showConfiguration",
            "Shows which configuration of an agent is in force, its warnings, and why the newest was rejected if it was",
        ),
        Route::ask_about_agent::<ListTunnels>(
            GET,
            "/api/v1/agents/{agent}/tunnels",
            "listAgentTunnels",
            "Lists an agent's open tunnels",
        ),
        Route::ask_about_agent::<ListAgentStatuses>(
            GET,
            "/api/v1/agent-statuses",
            "listAgentStatuses",
            "Says how an agent stands, or all that you may see: connected since when, which instance applies, whether it reaches its API server, which rights it lacks",
        ),
        Route::ask::<ListTunnels>(
            GET,
            "/api/v1/tunnels",
            "listTunnels",
            "Lists the open tunnels that you may see",
        ),
    ]
}

fn sources() -> Vec<Route> {
    vec![
        Route::ask_about_agent::<ListSources>(
            GET,
            "/api/v1/sources",
            "listSources",
            "Lists the sources of an agent, or of all agents that you may see",
        ),
        Route::ask::<ShowSource>(
            GET,
            "/api/v1/sources/{source}",
            "showSource",
            "Shows how a source stands, and in one line why the cluster is not at the last commit",
        ),
        Route::ask::<ListObjects>(
            GET,
            "/api/v1/sources/{source}/objects",
            "listSourceObjects",
            "Lists the objects of a source, owned and failing ones, page by page: health, drift, failures, the last write",
        ),
        Route::ask::<SyncSource>(
            POST,
            "/api/v1/sources/{source}/sync",
            "syncSource",
            "Looks at the repository, and checks each object of a source again",
        ),
        Route::ask::<SuspendSource>(
            POST,
            "/api/v1/sources/{source}/suspend",
            "suspendSource",
            "Stops delivering to a source",
        ),
        Route::ask::<ResumeSource>(
            POST,
            "/api/v1/sources/{source}/resume",
            "resumeSource",
            "Goes on delivering",
        ),
        Route::ask::<PinSource>(
            POST,
            "/api/v1/sources/{source}/pin",
            "pinSource",
            "Keeps a source at one commit",
        ),
        Route::ask::<UnpinSource>(
            POST,
            "/api/v1/sources/{source}/unpin",
            "unpinSource",
            "Lets a source follow its ref again",
        ),
        Route::ask::<ConfirmSource>(
            POST,
            "/api/v1/sources/{source}/confirm",
            "confirmSource",
            "Confirms the bundle that is held",
        ),
        own::diff(),
    ]
}
