//! Rechecks the passes of open requests, and ends those that would no longer be admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::{AggregateKind, Commit, OrganizationId, Position, RefusalKind, Timestamp};
use futures::StreamExt as _;
use objects::pass::check_pass;
use store::{Followed, ReadFilter};

use super::open_requests::{End, OpenRequest};
use super::passes::{HeldPass, Key};
use crate::gateway::{Gateway, SERVICE};

/// How often the passes of open requests are rechecked when nothing was heard.
const RECHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How often changes that were heard are acted on, and expired tokens are looked for.
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Passes that are asked for at once.
const AT_ONCE: usize = 32;
/// Open requests go on so long while authz gives no answer.
const AUTHZ_TIMEOUT: Duration = Duration::from_secs(60);

/// Kinds whose commits may change who may do what.
const KINDS: [AggregateKind; 7] = [
    AggregateKind::Organization,
    AggregateKind::Group,
    AggregateKind::Project,
    AggregateKind::User,
    AggregateKind::Agent,
    AggregateKind::Job,
    AggregateKind::Configuration,
];
/// Those events of theirs that come all the time and take nothing away.
const HARMLESS: [&str; 3] = ["kasbah.token.used", "kasbah.token.issued", "kasbah.job.admitted"];

/// Watches until it is dropped, also while a gateway that stops lets requests come to their end.
pub(crate) async fn watch(gateway: Arc<Gateway>) -> anyhow::Result<()> {
    let filter = ReadFilter::decisions(&KINDS);
    let mut changes = store::follow_from_now(&gateway.world, SERVICE, &*gateway.log, &filter).await?;
    let clock = Arc::clone(&gateway.world.clock);
    let (mut rechecked, mut ticked) = (clock.monotonic(), clock.monotonic());
    let mut changed = BTreeSet::new();
    loop {
        let is_idle = changed.is_empty() && gateway.open_requests.count() == 0;
        let until_tick = (ticked + TICK_INTERVAL).saturating_sub(clock.monotonic());
        tokio::select! {
            biased;
            () = gateway.open_requests.entered(), if is_idle => continue,
            () = clock.sleep(until_tick), if !is_idle => ticked = clock.monotonic(),
            change = changes.recv() => {
                match change {
                    Some(Ok(Followed::Record(record))) if record.commit().is_none_or(may_revoke) => {
                        let (stream, partition) = record.shard;
                        let at = Position::of(stream, partition, record.sequence);
                        gateway.passes.changed(record.organization, &at);
                        changed.insert(record.organization);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => anyhow::bail!("the log ended"),
                }
                continue;
            }
        }
        gateway.open_requests.end_expired(Timestamp(clock.now_millis()));
        if ticked.saturating_sub(rechecked) >= RECHECK_INTERVAL {
            rechecked = ticked;
            spawn_recheck(&gateway, None);
        }
        for organization in std::mem::take(&mut changed) {
            spawn_recheck(&gateway, Some(organization));
        }
    }
}

/// Rechecks in a task of its own: authz may be slow.
fn spawn_recheck(gateway: &Arc<Gateway>, organization: Option<OrganizationId>) {
    let open = gateway.open_requests.list(organization);
    if !open.is_empty() {
        let state = Arc::clone(gateway);
        let task = async move { recheck(&state, open).await };
        gateway.world.spawner.spawn("cluster-api recheck", Box::pin(task));
    }
}

fn may_revoke(commit: &Commit) -> bool {
    commit.events.iter().any(|event| !HARMLESS.contains(&event.body.event_type.as_str()))
}

/// Asks for each pass anew that lets something through, and ends what the new one would not let through in the same way.
pub(super) async fn recheck(gateway: &Gateway, open: Vec<Arc<OpenRequest>>) {
    let keys: BTreeSet<Key> = open.iter().map(|open| open.info.key).collect();
    let asking = keys.into_iter().map(|key| async move { (key, gateway.passes.renewed(gateway, key).await) });
    let passes: BTreeMap<Key, _> = futures::stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
    let now = gateway.world.clock.monotonic();
    for open in open {
        match passes.get(&open.info.key) {
            Some(Ok(held)) if still_admits(held, &open) => open.confirm(now),
            Some(Err(refusal))
                if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Internal)
                    && open.unconfirmed_for(now) < AUTHZ_TIMEOUT =>
            {
                tracing::warn!(%refusal, "permissions of open requests cannot be read");
            }
            _ => open.end(End::Cut("the permission for this request was withdrawn".to_owned())),
        }
    }
}

/// In the same way, and with nothing of it to be kept that is not.
fn still_admits(held: &HeldPass, open: &OpenRequest) -> bool {
    check_pass(&held.pass, &open.info.attributes)
        .is_ok_and(|through| through.access_as == open.info.access_as)
        && open.info.keeps.is_none_or(|keeps| held.pass.record_sessions <= keeps)
}
