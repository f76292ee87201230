//! Five idle minutes: what the agent asks of the API server, and what the server writes to its disk.

use std::time::Duration;

use super::stage::Stage;
use crate::figure::{Figure, Target};

const MINUTES: u32 = 5;

/// Watches, renewals of Leases and what the control plane asks of itself do not count.
pub async fn five_minutes(stage: &mut Stage) -> anyhow::Result<Vec<Figure>> {
    let (before, disk) = (agent_requests(stage).await?, stage.disk_bytes()?);
    tokio::time::sleep(Duration::from_secs(60) * MINUTES).await;
    let (after, later) = (agent_requests(stage).await?, stage.disk_bytes()?);
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

/// Requests on the objects of the source. Nobody else asks for ConfigMaps but the namespace's own controller, which watches.
async fn agent_requests(stage: &Stage) -> anyhow::Result<f64> {
    let requests = stage.requests().await?;
    let counted =
        requests.iter().filter(|request| request.resource == "configmaps" && request.verb != "WATCH");
    Ok(counted.map(|request| request.count).sum())
}
