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
    ConfirmSource, ListSources, ListSyncs, PinSource, ResumeSource, ShowSource, SuspendSource, SyncSource,
    UnpinSource,
};
use events::requests::gateway::ListTunnels;
use events::requests::status::{ListAgentStatuses, ListObjects};

use crate::log::routes as log_routes;
use crate::objects;
use crate::route::Route;

mod environments;
mod own;
mod subscriptions;

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
    routes.extend(source_commands());
    routes.extend(environments::all());
    routes.extend(subscriptions::all());
    routes.extend(objects::all());
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
            "Sets the lifetimes of new personal tokens of your organization",
        ),
        Route::ask::<ListGroups>(GET, "/api/v1/groups", "listGroups", "Lists the groups that you may see"),
        Route::ask::<CreateGroup>(POST, "/api/v1/groups", "createGroup", "Creates a group"),
        Route::ask::<DeleteGroup>(
            DELETE,
            "/api/v1/groups/{group}",
            "deleteGroup",
            "Deletes a group; refused, with a list, while it contains projects",
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
            "Creates a project, and its group if it does not exist",
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
            "Deletes a project; refused, with a list, while agents or sources use it",
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
            "Assigns a role to a user, or withdraws it",
        ),
        Route::ask::<DisableUser>(
            POST,
            "/api/v1/users/{user}/disable",
            "disableUser",
            "Disables a user: revokes their tokens and those that they issued, and closes connections that use these tokens",
        ),
        Route::ask::<EnableUser>(
            POST,
            "/api/v1/users/{user}/enable",
            "enableUser",
            "Enables a disabled user; their former tokens stay revoked",
        ),
        Route::ask::<ListCredentials>(GET, "/api/v1/credentials", "listCredentials", "Lists Git credentials"),
        Route::ask::<CreateCredential>(
            POST,
            "/api/v1/credentials",
            "createCredential",
            "Creates a Git credential in the key ring",
        ),
        Route::ask::<GrantCredential>(
            POST,
            "/api/v1/credentials/{credential}/grants",
            "grantCredential",
            "Permits a project to use a credential",
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
            "Issues a token for a CI job of a project; its secret is shown only once",
        ),
        Route::ask::<ListJobAgents>(
            GET,
            "/api/v1/job/agents",
            "listJobAgents",
            "Lists the agents whose clusters' APIs the calling job may use",
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
            "Issues a token for yourself, a user or an agent; its secret is shown only once",
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
            "Lists the identity providers for users and jobs",
        )
        .open(),
        Route::ask::<SignIn>(
            POST,
            "/api/v1/sign-in",
            "signIn",
            "Signs in a user or a job with an ID token, once; the token of Kasbah is shown only once",
        )
        .open(),
        Route::ask::<ListProviders>(
            GET,
            "/api/v1/identity-providers",
            "listIdentityProviders",
            "Lists the identity providers that the operator allows, and those that your organization trusts",
        ),
        Route::ask::<TrustProvider>(
            POST,
            "/api/v1/identity-providers/{provider}/trust",
            "trustIdentityProvider",
            "Trusts an identity provider; for jobs, with the owners of repositories to trust",
        ),
        Route::ask::<DistrustProvider>(
            DELETE,
            "/api/v1/identity-providers/{provider}/trust",
            "distrustIdentityProvider",
            "Stops trusting an identity provider",
        ),
        Route::ask::<ShowRoot>(GET, "/api/v1/root", "showRoot", "Shows the root key that signs passes"),
        Route::ask::<RotateRoot>(
            POST,
            "/api/v1/root/rotation",
            "rotateRoot",
            "Creates a new root key that signs passes from now on; agents accept it through the former one's signature",
        ),
        Route::ask::<UnlinkUser>(
            DELETE,
            "/api/v1/users/{user}/accounts/{provider}",
            "unlinkUser",
            "Unlinks a user's account at an identity provider",
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
            "Deletes an agent and revokes its tokens",
        ),
        Route::ask::<CanUse>(
            POST,
            "/api/v1/agents/{agent}/access-reviews",
            "reviewAccess",
            "Checks whether you, or a user, may send a request to the cluster's API, and shows the grant that permits it",
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
            "Shows the status of an agent, or of all agents that you may see: connection time, the instance that applies, whether it reaches its API server, missing rights",
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
            "Shows the status of a source, and in one line why the cluster is not at the last commit",
        ),
        Route::ask::<ListSyncs>(
            GET,
            "/api/v1/sources/{source}/syncs",
            "listSyncs",
            "Lists the last syncs of a source, the newest first",
        ),
        Route::ask::<ListObjects>(
            GET,
            "/api/v1/sources/{source}/objects",
            "listSourceObjects",
            "Lists the objects of a source, owned and failing ones, page by page: health, drift, failures, the last write",
        ),
        own::diff(),
    ]
}

fn source_commands() -> Vec<Route> {
    vec![
        Route::ask::<SyncSource>(
            POST,
            "/api/v1/sources/{source}/sync",
            "syncSource",
            "Polls the repository now, and checks each object of a source again",
        ),
        Route::ask::<SuspendSource>(
            POST,
            "/api/v1/sources/{source}/suspend",
            "suspendSource",
            "Suspends deliveries to a source",
        ),
        Route::ask::<ResumeSource>(
            POST,
            "/api/v1/sources/{source}/resume",
            "resumeSource",
            "Resumes deliveries to a source",
        ),
        Route::ask::<PinSource>(
            POST,
            "/api/v1/sources/{source}/pin",
            "pinSource",
            "Pins a source to one commit",
        ),
        Route::ask::<UnpinSource>(
            POST,
            "/api/v1/sources/{source}/unpin",
            "unpinSource",
            "Unpins a source: it follows its ref again",
        ),
        Route::ask::<ConfirmSource>(
            POST,
            "/api/v1/sources/{source}/confirm",
            "confirmSource",
            "Confirms the held bundle of a source",
        ),
    ]
}
