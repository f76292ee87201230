//! What this service may do on NATS.

use events::access::{Access, Keys};
use events::requests::authz::{
    AssignRole, Authenticate, CanUse, CreateCredential, CreateGroup, CreateOrganization, CreateProject,
    CreateUser, Decide, DeleteAgent, DeleteGroup, DeleteProject, DisableUser, DistrustProvider, EnableUser,
    GrantCredential, IssueJobToken, IssueToken, ListAgents, ListCredentials, ListGroups, ListJobAgents,
    ListOrganizations, ListProjects, ListProviders, ListTokens, ListUsers, LocateProject, RegisterAgent,
    RevokeCredential, RevokeToken, RotateRoot, SetProject, SetTokenLifetimes, ShowAgent, ShowProject,
    ShowRoot, ShowUser, SignIn, TrustProvider, UnlinkUser,
};
use events::requests::configuration::ShowConfiguration;
use events::requests::delivery::{
    ConfirmSource, ListSources, PinSource, ResumeSource, ShowSource, SuspendSource, SyncSource, UnpinSource,
};
use events::requests::diff::DiffSource;
use events::requests::gateway::ListTunnels;
use events::requests::repository::RepositoryPushed;
use events::requests::status::{ListAgentStatuses, ListObjects};
use events::{Notice as _, Request as _, Stream};

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[
        AssignRole::NAME,
        Authenticate::NAME,
        CanUse::NAME,
        CreateCredential::NAME,
        CreateGroup::NAME,
        CreateOrganization::NAME,
        CreateProject::NAME,
        CreateUser::NAME,
        Decide::NAME,
        DeleteAgent::NAME,
        DeleteGroup::NAME,
        DeleteProject::NAME,
        DisableUser::NAME,
        EnableUser::NAME,
        SetTokenLifetimes::NAME,
        GrantCredential::NAME,
        IssueJobToken::NAME,
        ListJobAgents::NAME,
        IssueToken::NAME,
        ListAgents::NAME,
        ListCredentials::NAME,
        ListGroups::NAME,
        ListOrganizations::NAME,
        ListProjects::NAME,
        ListTokens::NAME,
        ListUsers::NAME,
        ShowUser::NAME,
        LocateProject::NAME,
        RegisterAgent::NAME,
        RevokeCredential::NAME,
        RevokeToken::NAME,
        SetProject::NAME,
        ListProviders::NAME,
        TrustProvider::NAME,
        DistrustProvider::NAME,
        UnlinkUser::NAME,
        ShowRoot::NAME,
        RotateRoot::NAME,
        SignIn::NAME,
        ShowAgent::NAME,
        ShowProject::NAME,
        ConfirmSource::NAME,
        ListAgentStatuses::NAME,
        ListObjects::NAME,
        ListSources::NAME,
        PinSource::NAME,
        ResumeSource::NAME,
        ShowSource::NAME,
        SuspendSource::NAME,
        SyncSource::NAME,
        UnpinSource::NAME,
        DiffSource::NAME,
        ListTunnels::NAME,
        ShowConfiguration::NAME,
    ],
    announces: &[RepositoryPushed::NAME],
    reads: &[Stream::Observations, Stream::Refusals, Stream::Audit, Stream::Recordings],
    keys: &[Keys::Organizations, Keys::CertificateAuthority],
    ..Access::of("console")
};
