//! The agent: makes one cluster match the desired state from its server, and reports what it did and observed.
//!
//! Purpose: apply bundles by server-side apply, correct drift, prune listed objects, judge health, report; observe all objects.
//!
//! Laws:
//! - It decides nothing that the server could decide: bundle, prune list, policies and the applier's name come from the server.
//! - It writes only while it holds its Lease and the desired state names it as the applier.
//! - Each object carries the owner mark from its first write. The agent deletes only objects with its own mark that the server lists with
//!   their UID.
//! - No object of a stage is applied before all objects of the stage have passed their dry run.
//! - An object that matches its manifest causes no request.
//! - Values of Secrets leave the cluster neither in observations nor in logs.
//! - What it observes it forgets: of an object about a hundred bytes stay. What it cannot see, and every gap, is reported.
//! - A kind that is observed is watched once, under the agent's own account: the applier reads along ([`live_feeds`]), and watches by itself only
//!   what no feed follows now. What is applied as another account is watched as that account.
//! - Every request to the cluster's API through the agent needs a pass that the pinned root key signed.
//!
//! Pure code is in [`model`], and [`applier`] performs it through [`kubernetes`]. [`link`] is the agent's own HTTP service, which the
//! server calls through the tunnel. [`observer`] is the part that tells of every object. [`cluster_api`] is the part of it through which users and jobs use the cluster's API.
//!
//! A part that needs objects of a kind as they change subscribes to the kind's feed, lists what it needs, and keeps no more than it names a limit
//! for:
//!
//! ```text
//! loop {
//!     let feed = shared.live_feeds.subscribe(&resource, "", |object| object.label("app").is_some());
//!     let listed = list(&resource).await?;                     // behind the subscription: nothing is missed
//!     match feed {
//!         Some(mut feed) => while let Some(event) = feed.next().await { /* newer than `listed`, or not */ },
//!         // Nobody observes this kind now.
//!         None => first_of(watch(&resource, &listed), shared.live_feeds.until_live(&resource, "")).await?,
//!     }
//! }
//! ```
//!
//! Deliberately absent: Git, rendering, schemas of kinds, a cache of whole objects, a disk.

pub mod applier;
pub mod args;
pub mod cluster_api;
pub mod desired;
pub mod kubernetes;
pub mod lease;
pub mod link;
pub mod live_feeds;
pub mod metrics;
pub mod model;
pub mod object_outbox;
pub mod observer;
pub mod outbox;
pub mod reach;
pub mod run;

pub use args::Args;
pub use run::{Agent, Deps, run};

/// The name under which this agent's fields stand in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "kasbah";
