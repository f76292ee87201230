//! What it costs an agent to observe a large cluster, beside a bare watch that decodes the same objects.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use testkit::{ControlPlane, ControlPlaneOptions, eventually, memory_of};

use super::live::create;
use super::watcher::Watcher;
use crate::figure::{Figure, Target};
use crate::push::{AGENT, Kind, Stage, millis, options};
use crate::usage;

/// Requests under way while the cluster is filled.
const AT_ONCE: usize = 64;
/// How long the agent has for its first list.
const LISTING: Duration = Duration::from_secs(600);
/// After this time what the first list took is given back.
const SETTLE: Duration = Duration::from_secs(30);
/// Changes, at the rate of the other figures, while it is measured what they cost.
const CHANGES: usize = 4_000;

/// Measures with so many objects.
pub async fn run(count: usize, objects: usize) -> anyhow::Result<Vec<Figure>> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let namespace = plane.namespace("crowd", false).await?;
    fill(&plane, &namespace, objects).await.context("objects to observe")?;
    let [mut steady, mut most, mut processor] = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..count {
        let path = "/api/v1/configmaps";
        let mut stage = Stage::start_as(options(), &plane).await?;
        observed(&stage, objects).await;
        let bare = Watcher::start(plane.kubeconfig(), path)?;
        tokio::time::sleep(SETTLE).await;
        let pid = stage.kasbah.agent(AGENT)?.pid();
        let memory = |pid, of| {
            Ok::<_, anyhow::Error>(mega(memory_of(pid, of).context("a process has no memory figure")?))
        };
        steady.push((memory(pid, "VmRSS:")?, Some(memory(bare.pid(), "VmRSS:")?)));
        most.push((memory(pid, "VmHWM:")?, Some(memory(bare.pid(), "VmHWM:")?)));
        let spent = || anyhow::Ok([usage::processor_time(&[pid])?, usage::processor_time(&[bare.pid()])?]);
        let [ours_before, bare_before] = spent()?;
        let first = objects + number * CHANGES;
        create(&plane, &namespace, first..first + CHANGES).await?;
        let [ours, bare] = spent()?;
        let ours = millis(ours.saturating_sub(ours_before));
        let bare = millis(bare.saturating_sub(bare_before));
        println!("    {CHANGES} changes take {ours:.0} ms of an agent's processor beside {bare:.0} ms");
        processor.push((ours, Some(bare)));
        stage.end().await?;
    }
    Ok(vec![
        Figure::of("index.agent-steady", "MB", Target::AtMost(45.0), steady),
        Figure::of("index.agent-first-list", "MB", Target::AtMost(90.0), most),
        Figure::of("index.agent-processor", "ms", Target::RatioAtMost(1.5), processor),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

async fn fill(plane: &ControlPlane, namespace: &str, objects: usize) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = futures::stream::iter(0..objects).map(|number| {
        let path = &path;
        async move { plane.create_object(path, &Kind::ConfigMap.object(number, "there")).await }
    });
    let mut created = created.buffer_unordered(AT_ONCE);
    while let Some(created) = created.next().await {
        created?;
    }
    Ok(())
}

/// Waits until the agent observes as many objects.
async fn observed(stage: &Stage, objects: usize) {
    let name = "kasbah_agent_observed_objects";
    eventually(LISTING, || async {
        let page = stage.agent_page()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)).context("no such metric")?;
        let known: f64 = line.trim().parse()?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let wanted = objects as f64;
        ensure!(known >= wanted, "{known} of {wanted} objects are observed");
        Ok(())
    })
    .await;
}
