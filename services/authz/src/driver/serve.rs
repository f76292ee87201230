//! Every request, over the bus.

use std::future::Future;

use bus::{Bus, BusError, Serving, answer};
use events::position::Stream;
use events::request::{RefusedCommand, RequestContext};
use events::requests::authz::{
    Admit, AssignRole, Authenticate, CanUse, CreateCredential, CreateGroup, CreateOrganization,
    CreateProject, CreateUser, Decide, DecideFetch, DeleteAgent, DeleteGroup, DeleteProject, DisableUser,
    DistrustProvider, EnableUser, EnsureOwner, FindMissing, GrantCredential, IssueJobToken, IssueToken,
    ListAgents, ListCredentials, ListGroups, ListJobAgents, ListOrganizations, ListProjects, ListProviders,
    ListTokens, ListUsers, LocateProject, RegisterAgent, RevokeCredential, RevokeToken, RotateRoot,
    SetProject, SetTokenLifetimes, ShowAgent, ShowProject, ShowRoot, SignIn, SignPass, TrustProvider,
    UnlinkUser,
};
use events::{Actor, Refusal, Request};
use store::NewBatch;

use super::Driver;
use crate::call::{Call, Command};
use crate::model::Asker;

macro_rules! served {
    (commands { $($command:ty => $decided:ident,)* } queries { $($query:ty => $answered:ident,)* }) => {
        /// Names of all requests that authz answers.
        pub const SERVED: &[&str] = &[$(<$command>::NAME,)* $(<$query>::NAME,)*];

        impl Driver {
            /// Serves all requests until the guards are dropped.
            ///
            /// # Errors
            /// When the bus is away.
            pub async fn serve(self, bus: &dyn Bus) -> Result<Vec<Serving>, BusError> {
                Ok(vec![
                    $({
                        let driver = self.clone();
                        answer::<$command, _>(bus, move |context, request| {
                            Box::pin(driver.clone().command(context, request, Self::$decided))
                        }).await?
                    },)*
                    $({
                        let driver = self.clone();
                        answer::<$query, _>(bus, move |context, request| {
                            let driver = driver.clone();
                            Box::pin(async move {
                                let ask = || {
                                    let actor = context.actor.clone();
                                    let asker = Asker { actor, organization: context.organization };
                                    driver.clone().$answered(asker, request.clone())
                                };
                                driver.directory.answer(ask).await
                            })
                        }).await?
                    },)*
                ])
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
        ListCredentials => list_credentials,
        ListAgents => list_agents,
        ShowAgent => show_agent,
        ListTokens => list_tokens,
        CanUse => can_use,
        ListJobAgents => list_job_agents,
        SignPass => sign_pass,
        ListProviders => list_providers,
        ShowRoot => show_root,
    }
}

impl Driver {
    /// Runs a command; what is refused to people and agents is kept in the stream of refusals.
    async fn command<R, D, F>(
        self,
        context: RequestContext,
        request: R,
        decide: D,
    ) -> Result<R::Reply, Refusal>
    where
        R: Command + Clone,
        D: Fn(Self, Call, R) -> F + Send,
        F: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        let call = Call::new(context.clone(), &request)?;
        let ask = || decide(self.clone(), call.clone(), request.clone());
        let answered = self.directory.answer(ask).await;
        if let (Err(refusal), Actor::User(_) | Actor::Agent(_) | Actor::Job(_)) = (&answered, &context.actor)
        {
            self.keep_refusal(&context, R::NAME, refusal).await;
        }
        answered
    }

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
            tracing::warn!(request, %error, "refusal is not kept");
        }
    }
}
