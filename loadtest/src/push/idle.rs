//! Five idle minutes: what the agent asks of the API server, and what the server writes to its disk.

use std::time::Duration;

use anyhow::ensure;

use super::stage::Stage;
use crate::figure::{Figure, Target};

const MINUTES: u32 = 5;

/// Watches and renewals of Leases do not count. The API server cannot tell whose requests it counted, so the agent's own count
/// is taken, and held against the API server's where nobody else asks.
pub async fn five_minutes(stage: &mut Stage) -> anyhow::Result<Vec<Figure>> {
    let (before, objects, disk) =
        (stage.agent_requests()?, object_requests(stage).await?, stage.disk_bytes()?);
    tokio::time::sleep(Duration::from_secs(60) * MINUTES).await;
    // The API server first: what is asked between the two is then counted by the agent, too.
    let on_objects = object_requests(stage).await? - objects;
    let (after, later) = (stage.agent_requests()?, stage.disk_bytes()?);
    ensure!(on_objects <= after - before, "the API server counted {on_objects} requests, the agent fewer");
    let minutes = f64::from(MINUTES);
    #[expect(clippy::cast_precision_loss, reason = "bytes of a folder are far below 2^52")]
    let a_day = later.saturating_sub(disk) as f64 * 24.0 * 60.0 / minutes / 1_000.0;
    Ok(vec![
        Figure::of(
            "push.idle-requests",
            "requests/min",
            Target::AtMost(2.0),
            vec![((after - before) / minutes, None)],
        ),
        Figure::of("push.idle-disk", "KB/day", Target::AtMost(100.0), vec![(a_day, None)]),
    ])
}

/// Requests on the objects of the source that the API server has counted. Nobody else asks for ConfigMaps but the namespace's
/// own controller, which watches.
async fn object_requests(stage: &Stage) -> anyhow::Result<f64> {
    let requests = stage.requests().await?;
    let counted =
        requests.iter().filter(|request| request.resource == "configmaps" && request.verb != "WATCH");
    Ok(counted.map(|request| request.count).sum())
}
