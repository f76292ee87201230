//! What happens around the decisions: the log, the key ring, the clock, the bus.

mod commit;
mod credentials;
mod deployments;
mod identity;
mod jobs;
mod organizations;
mod projects;
mod queries;
mod root;
mod serve;
mod tokens;
mod usage;
mod use_of_clusters;
mod users;

pub use serve::SERVED;

use std::sync::Arc;

use events::directory::PersonalData;
use events::requests::authz::UserView;
use events::{OrganizationId, Refusal, Timestamp, TokenId, UserId};
use store::{EventLog, Following, KeyRing};
use tokio::sync::mpsc;
use uuid::Uuid;
use world::World;

use crate::checks;
use crate::identity::IdentityProviders;
use crate::model::Directory;
use crate::model::lookup::UserRef;
use crate::model::steps::gone;
use crate::personal::{self, Names};
use root::Roots;

/// Uses of tokens that wait to be noted; more than that are dropped: the next use notes them.
const USES_WAITING: usize = 65_536;

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    world: World,
    log: Arc<dyn EventLog>,
    keys: Arc<dyn KeyRing>,
    directory: Following<Directory>,
    names: Arc<Names>,
    roots: Arc<Roots>,
    uses: mpsc::Sender<TokenId>,
    providers: Arc<IdentityProviders>,
}

impl Driver {
    /// A driver over a directory that follows the log, and the queue of uses for [`Driver::note_uses`].
    #[must_use]
    pub fn new(
        world: World,
        log: Arc<dyn EventLog>,
        keys: Arc<dyn KeyRing>,
        directory: Following<Directory>,
        providers: Arc<IdentityProviders>,
    ) -> (Self, mpsc::Receiver<TokenId>) {
        let (uses, waiting) = mpsc::channel(USES_WAITING);
        let (names, roots) = (Arc::default(), Arc::default());
        (Self { world, log, keys, directory, names, roots, uses, providers }, waiting)
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.world.clock.now_millis())
    }

    fn fresh(&self) -> Uuid {
        self.world.new_uuid()
    }

    async fn user_ref(&self, organization: OrganizationId, text: &str) -> Result<UserRef, Refusal> {
        if let Ok(id) = text.parse::<UserId>() {
            return Ok(UserRef::Id(id));
        }
        checks::login("user", text)?;
        personal::login_claim(&*self.keys, organization, text).await.map(UserRef::Name)
    }

    async fn named_view(&self, (view, data): (UserView, PersonalData)) -> Result<UserView, Refusal> {
        let name = self.names.open(&*self.keys, view.id, &data).await?;
        Ok(UserView { name, ..view })
    }
}
