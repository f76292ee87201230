//! Scenario `index`: what runs in the clusters, asked for while it changes; what its history takes; and what observing costs an agent.

mod api;
pub mod bodies;
pub mod crowd;
mod live;
mod observer;
pub mod watcher;

use anyhow::Context as _;

use crate::figure::Figure;

/// Objects of a hundred agents, and of the cluster that one agent observes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct IndexLoad {
    /// Objects of a hundred agents that the index holds.
    #[arg(long, default_value_t = 1_000_000)]
    objects: usize,
    /// Objects of a cluster that one agent observes.
    #[arg(long, default_value_t = 100_000)]
    observed: usize,
}

/// Measures each so many times. What is large is made once.
pub async fn run(count: usize, load: IndexLoad) -> anyhow::Result<Vec<Figure>> {
    let mut figures = live::run(count).await.context("changes that are subscribed to")?;
    figures.extend(observer::run(count, load.observed).await.context("an agent that observes")?);
    figures.extend(crowd::run(count, load.objects).await.context("objects of a hundred agents")?);
    Ok(figures)
}
