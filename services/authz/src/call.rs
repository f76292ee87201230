//! One request on its way through the driver.

use events::id::derived_uuid;
use events::request::RequestContext;
use events::requests::authz::{
    AssignRole, CreateCredential, CreateOrganization, CreateUser, DisableUser, EnableUser, EnsureOwner,
    IssueToken, SignIn, UnlinkUser,
};
use events::{CommandRecord, CommitId, Refusal, RefusalKind, Request, UserId};
use uuid::Uuid;

use crate::model::Asker;

/// A command with what the log keeps of it.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who asks, in which chain.
    pub context: RequestContext,
    /// The command without secrets and names of persons.
    pub command: CommandRecord,
}

impl Call {
    /// The call of a command.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn new<R: Command>(context: RequestContext, request: &R) -> Result<Self, Refusal> {
        let data = events::encode(&request.for_the_log())
            .map_err(|error| Refusal::new(RefusalKind::Internal, error.to_string()))?;
        Ok(Self { context, command: CommandRecord { name: R::NAME.to_owned(), data, ids: Vec::new() } })
    }

    /// Who asks, and where.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker { actor: self.context.actor.clone(), organization: self.context.organization }
    }

    /// The same call made in another organization.
    #[must_use]
    pub fn in_organization(&self, organization: events::OrganizationId) -> Self {
        let context = RequestContext { organization, ..self.context.clone() };
        Self { context, command: self.command.clone() }
    }

    /// Remembers an id that was passed in.
    pub fn pass(&mut self, id: Uuid) -> Uuid {
        self.command.ids.push(id);
        id
    }

    /// The commit id of the request's last commit.
    #[must_use]
    pub fn key(&self) -> CommitId {
        self.context.idempotency_key
    }

    /// The commit id of an earlier step: the same for each retry of the request.
    #[must_use]
    pub fn step(&self, step: &str) -> CommitId {
        CommitId(derived_uuid(&[b"step", self.context.idempotency_key.0.as_bytes(), step.as_bytes()]))
    }
}

/// A command, and what the log keeps of it.
pub trait Command: Request + Clone {
    /// The command without secrets and without names of persons: people can be forgotten.
    #[must_use]
    fn for_the_log(&self) -> Self {
        self.clone()
    }
}

macro_rules! plain {
    ($($request:ident),* $(,)?) => { $(impl Command for events::requests::authz::$request {})* };
}

plain!(
    CreateGroup,
    DeleteGroup,
    CreateProject,
    DeleteProject,
    SetTokenLifetimes,
    SetProject,
    GrantCredential,
    RevokeCredential,
    RegisterAgent,
    DeleteAgent,
    IssueJobToken,
    RevokeToken,
    TrustProvider,
    DistrustProvider,
    RotateRoot,
);

/// An id says who it is to those who may know; a name is left out.
fn id_only(user: &str) -> String {
    user.parse::<UserId>().map(|id| id.to_string()).unwrap_or_default()
}

impl Command for CreateOrganization {
    fn for_the_log(&self) -> Self {
        Self { owner: String::new(), ..self.clone() }
    }
}

impl Command for EnsureOwner {
    fn for_the_log(&self) -> Self {
        Self { owner: String::new(), token: None, ..self.clone() }
    }
}

impl Command for CreateUser {
    fn for_the_log(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }
}

impl Command for AssignRole {
    fn for_the_log(&self) -> Self {
        Self { user: id_only(&self.user), ..self.clone() }
    }
}

impl Command for DisableUser {
    fn for_the_log(&self) -> Self {
        Self { user: id_only(&self.user), ..self.clone() }
    }
}

impl Command for EnableUser {
    fn for_the_log(&self) -> Self {
        Self { user: id_only(&self.user) }
    }
}

impl Command for CreateCredential {
    fn for_the_log(&self) -> Self {
        Self { secret: String::new(), user: None, ..self.clone() }
    }
}

impl Command for SignIn {
    fn for_the_log(&self) -> Self {
        Self { id_token: String::new(), ..self.clone() }
    }
}

impl Command for UnlinkUser {
    fn for_the_log(&self) -> Self {
        Self { user: id_only(&self.user), ..self.clone() }
    }
}

impl Command for IssueToken {
    fn for_the_log(&self) -> Self {
        Self { user: self.user.as_deref().map(id_only), ..self.clone() }
    }
}
