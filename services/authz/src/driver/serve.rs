//! Every request, over the bus.

use std::sync::Arc;

use bus::{Bus, BusError, Dispatcher, Service, Serving};
use events::position::Stream;
use events::request::{RefusedCommand, RequestContext};
use events::requests::authz::{
    Admit, AssignRole, Authenticate, BeginSignIn, CanUse, CreateCredential, CreateGroup, CreateOrganization,
    CreateProject, CreateUser, Decide, DecideAssociation, DecideFetch, DeleteAgent, DeleteGroup,
    DeleteProject, DisableUser, DistrustProvider, EnableUser, EnsureOwner, ExchangeCode, FindMissing,
    FindProject, GrantCredential, IssueJobToken, IssueToken, ListAgents, ListAllowedAgents,
    ListAllowedProjects, ListCredentials, ListGroups, ListJobAgents, ListOrganizations, ListProjects,
    ListProviders, ListTokens, ListUsableAgents, ListUsers, LocateProject, RegisterAgent, RevokeCredential,
    RevokeToken, RotateRoot, SetProject, SetTokenLifetimes, ShowAgent, ShowProject, ShowRoot, ShowUser,
    SignIn, SignPass, SignReview, TrustProvider, UnlinkUser,
};
use events::{Actor, Refusal, Request};
use store::NewBatch;

use super::Driver;
use crate::call::Call;
use crate::model::Asker;

macro_rules! served {
    (commands { $($command:ty => $decided:ident,)* } queries { $($query:ty => $answered:ident,)* }) => {
        const COMMANDS: &[&str] = &[$(<$command>::NAME,)*];
        /// Names of all requests that authz answers.
        pub const SERVED: &[&str] = &[$(<$command>::NAME,)* $(<$query>::NAME,)*];

        impl Driver {
            /// Serves all requests until the guards are dropped.
            ///
            /// # Errors
            /// When the bus is away.
            pub async fn serve(self, bus: &dyn Bus) -> Result<Vec<Serving>, BusError> {
                let mut requests = Dispatcher::new(bus, Arc::new(self));
                $(requests.answer(|driver: Arc<Self>, context, request: $command| async move {
                    let call = Call::new(context, &request)?;
                    Self::clone(&driver).$decided(call, request).await
                }).await?;)*
                $(requests.answer(|driver: Arc<Self>, context, request: $query| async move {
                    let RequestContext { actor, organization, .. } = context;
                    Self::clone(&driver).$answered(Asker { actor, organization }, request).await
                }).await?;)*
                Ok(requests.serving())
            }
        }
    };
}

served! {
    commands {
        CreateOrganization => create_organization,
        EnsureOwner => ensure_owner,
        CreateGroup => create_group,
        DeleteGroup => delete_group,
        CreateProject => create_project,
        DeleteProject => delete_project,
        SetTokenLifetimes => set_token_lifetimes,
        SetProject => set_project,
        CreateUser => create_user,
        AssignRole => assign_role,
        DisableUser => disable_user,
        EnableUser => enable_user,
        CreateCredential => create_credential,
        GrantCredential => grant_credential,
        RevokeCredential => revoke_credential,
        RegisterAgent => register_agent,
        DeleteAgent => delete_agent,
        IssueToken => issue_token,
        IssueJobToken => issue_job_token,
        RevokeToken => revoke_token,
        TrustProvider => trust_provider,
        DistrustProvider => distrust_provider,
        UnlinkUser => unlink_user,
        RotateRoot => rotate_root,
        SignIn => sign_in,
    }
    queries {
        Authenticate => authenticate,
        Admit => admit,
        Decide => decide,
        DecideFetch => decide_fetch,
        FindMissing => find_missing,
        LocateProject => locate_project,
        ListOrganizations => list_organizations,
        ListGroups => list_groups,
        ListProjects => list_projects,
        ShowProject => show_project,
        ListUsers => list_users,
        ShowUser => show_user,
        ListAllowedAgents => list_allowed_agents,
        FindProject => find_project,
        ListAllowedProjects => list_allowed_projects,
        DecideAssociation => decide_association,
        ListCredentials => list_credentials,
        ListAgents => list_agents,
        ShowAgent => show_agent,
        ListTokens => list_tokens,
        CanUse => can_use,
        ListJobAgents => list_job_agents,
        SignPass => sign_pass,
        SignReview => sign_review,
        ListUsableAgents => list_usable_agents,
        ListProviders => list_providers,
        BeginSignIn => begin_sign_in,
        ExchangeCode => exchange_code,
        ShowRoot => show_root,
    }
}

impl Service for Driver {
    /// Commands that are refused to people, agents and jobs are kept in the stream of refusals.
    async fn answer<R, F, A>(&self, context: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        let answered = self.directory.answer(attempt).await;
        let is_kept = COMMANDS.contains(&R::NAME)
            && matches!(context.actor, Actor::User(_) | Actor::Agent(_) | Actor::Job(_));
        if let Err(refusal) = &answered
            && is_kept
        {
            self.keep_refusal(context, R::NAME, refusal).await;
        }
        answered
    }
}

impl Driver {
    async fn keep_refusal(&self, context: &RequestContext, request: &str, refusal: &Refusal) {
        let record = RefusedCommand {
            actor: context.actor.clone(),
            organization: context.organization,
            request: request.to_owned(),
            refusal: refusal.clone(),
            correlation_id: context.correlation_id,
            at: self.now(),
        };
        let organization = context.organization;
        let kept = match events::encode(&record) {
            Ok(data) => {
                let batch =
                    NewBatch { stream: Stream::Refusals, organization, writer: "authz".to_owned(), data };
                self.log.append_batch(batch).await.map(|_| ()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = kept {
            tracing::warn!(request, %error, "refusal was not recorded");
        }
    }
}
