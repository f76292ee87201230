//! Directory, tokens and grants: which users, agents and projects exist, and what they may do.
//!
//! Purpose: authz alone writes organizations, groups, projects, users, agents, credentials and their names, and answers
//! "may X do Y" for every other service.
//!
//! Laws:
//! - A request is denied unless the [`table`] permits it. Roles apply to their scope and everything below it.
//! - What an actor may not see is reported as not found, and counts exclude it. Other organizations' data is never visible.
//! - Only hashes of tokens are stored. Of users, only ciphertext and a keyed hash of the login name are stored.
//! - A name is claimed before it is assigned, and a crash in between blocks no name ([`model`]).
//! - The server's clock decides at each use whether a token has expired.
//! - A sign-in through an identity provider is accepted only if the organization trusts the provider, once for each ID token ([`identity`]).
//!
//! Deliberately absent: passwords and sign-in pages. This crate enforces nothing in other services; each service asks it.
#![warn(missing_docs)]

mod access;
pub mod call;
pub mod checks;
pub mod driver;
pub mod identity;
pub mod model;
pub mod personal;
pub mod secrets;
pub mod table;

pub use access::ACCESS;

use std::path::PathBuf;
use std::sync::Arc;

use bus::Bus;
use chassis::{Readiness, Shutdown, Supervisor};
use driver::Driver;
use events::requests::authz::{EnsureOwner, FirstStart};
use events::{OrganizationId, Refusal, Sha256};
use identity::IdentityProviders;
use model::Directory;
use store::{EventLog, KeyRing, Snapshots, follow_projection};
use world::World;

/// Settings of authz.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// YAML file with the identity providers for users and jobs; each organization selects which of them it trusts
    #[arg(long, env = "KASBAH_IDENTITY_PROVIDERS", value_name = "FILE")]
    pub identity_providers: Option<PathBuf>,
}

/// What authz needs.
#[derive(Clone)]
pub struct Deps {
    /// Clock, randomness, ids, tasks.
    pub world: World,
    /// The event log.
    pub log: Arc<dyn EventLog>,
    /// Keys of persons, organizations, credentials, and the root.
    pub keys: Arc<dyn KeyRing>,
    /// Snapshots of the directory.
    pub snapshots: Arc<dyn Snapshots>,
    /// Where requests come from.
    pub bus: Arc<dyn Bus>,
    /// Set once the directory is folded and requests are served.
    pub readiness: Readiness,
}

/// Runs authz until `shutdown`.
///
/// # Errors
/// When the file of identity providers is wrong, the log cannot be read, the bus is away, or a task ends unexpectedly.
pub async fn run(args: Args, deps: Deps, shutdown: Shutdown) -> anyhow::Result<()> {
    let ready = deps.readiness.register("authz");
    let providers = match &args.identity_providers {
        Some(path) => IdentityProviders::load(path, &deps.world)?,
        None => IdentityProviders::none(),
    };
    let supervisor = Supervisor::new(Arc::clone(&deps.world.spawner), shutdown.clone());
    let directory = follow_projection::<Directory>(Arc::clone(&deps.log), deps.snapshots, deps.world.clone());
    let (driver, uses) = Driver::new(deps.world, deps.log, deps.keys, directory.clone(), Arc::new(providers));
    let folding = directory.clone().drive({
        let shutdown = shutdown.clone();
        async move { shutdown.requested().await }
    });
    supervisor.spawn("authz-fold", async move { Ok(folding.await?) });
    supervisor.spawn("authz-uses", driver.clone().note_uses(uses, shutdown.clone()));
    supervisor.spawn("authz-serve", async move {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            caught_up = directory.caught_up() => caught_up?,
        }
        let serving = driver.serve(&*deps.bus).await?;
        ready.set(true);
        shutdown.requested().await;
        ready.set(false);
        drop(serving);
        Ok(())
    });
    supervisor.join().await
}

/// Makes sure that the organization has an owner with a live token; `token` is the one that the asker has already. Asking
/// again changes nothing while that lives; after a crash between the log and the asker's file, another is issued, unless it may
/// be `shared`: then one that lives is somebody else's to keep.
///
/// # Errors
/// When authz is away or a name is not allowed.
pub async fn ensure_owner(
    bus: &dyn Bus,
    world: &World,
    organization: &str,
    owner: &str,
    token: Option<&str>,
    shared: bool,
) -> Result<FirstStart, Refusal> {
    let context = bus::context_for_service(world, "kasbah", OrganizationId::SYSTEM);
    let request = EnsureOwner {
        organization: organization.to_owned(),
        owner: owner.to_owned(),
        token: token.map(|secret| Sha256::of(secret.trim().as_bytes())),
        shared,
    };
    bus::ask(bus, &context, &request).await
}
