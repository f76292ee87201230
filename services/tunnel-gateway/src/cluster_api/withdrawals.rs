//! Ends open requests when what let them through is withdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::{AggregateKind, Commit, OrganizationId, Position, RefusalKind, Timestamp};
use futures::StreamExt as _;
use objects::pass::lets_through;
use store::{Followed, ReadFilter};

use super::open::{End, Open};
use super::passes::{HeldPass, Key};
use crate::gateway::{Gateway, SERVICE};

/// What lets open requests through is looked at so often, also when nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// What was heard is acted on so often, and tokens' own ends are looked for.
const TICK: Duration = Duration::from_millis(250);
/// Passes that are asked for at once.
const AT_ONCE: usize = 32;
/// Open requests go on so long while authz gives no answer.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let (mut looked, mut ticked) = (clock.monotonic(), clock.monotonic());
    let mut changed = BTreeSet::new();
    loop {
        let is_idle = changed.is_empty() && gateway.open_requests.count() == 0;
        let until_tick = (ticked + TICK).saturating_sub(clock.monotonic());
        tokio::select! {
            biased;
            () = gateway.open_requests.entered(), if is_idle => continue,
            () = clock.sleep(until_tick), if !is_idle => ticked = clock.monotonic(),
            change = changes.recv() => {
                match change {
                    Some(Ok(Followed::Record(record))) if record.commit().is_none_or(may_withdraw) => {
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
        if ticked.saturating_sub(looked) >= LOOK_EVERY {
            looked = ticked;
            begin_look(&gateway, None);
        }
        for organization in std::mem::take(&mut changed) {
            begin_look(&gateway, Some(organization));
        }
    }
}

/// Looks beside what else is heard: authz may be slow.
fn begin_look(gateway: &Arc<Gateway>, organization: Option<OrganizationId>) {
    let open = gateway.open_requests.list(organization);
    if !open.is_empty() {
        let looking = Arc::clone(gateway);
        let look = async move { look(&looking, open).await };
        gateway.world.spawner.spawn("cluster-api look", Box::pin(look));
    }
}

fn may_withdraw(commit: &Commit) -> bool {
    commit.events.iter().any(|event| !HARMLESS.contains(&event.body.event_type.as_str()))
}

/// Asks for each pass anew that lets something through, and ends what the new one would not let through in the same way.
pub(super) async fn look(gateway: &Gateway, open: Vec<Arc<Open>>) {
    let keys: BTreeSet<Key> = open.iter().map(|open| open.asked.key).collect();
    let asking = keys.into_iter().map(|key| async move { (key, gateway.passes.renewed(gateway, key).await) });
    let passes: BTreeMap<Key, _> = futures::stream::iter(asking).buffer_unordered(AT_ONCE).collect().await;
    let now = gateway.world.clock.monotonic();
    for open in open {
        match passes.get(&open.asked.key) {
            Some(Ok(held)) if still_lets_through(held, &open) => open.is_sure(now),
            Some(Err(refusal))
                if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Internal)
                    && open.unsure_for(now) < PATIENCE =>
            {
                tracing::warn!(%refusal, "what lets open requests through cannot be looked up");
            }
            _ => open.end(End::Cut("what let this request through was withdrawn".to_owned())),
        }
    }
}

/// In the same way, and with nothing of it to be kept that is not.
fn still_lets_through(held: &HeldPass, open: &Open) -> bool {
    lets_through(&held.pass, &open.asked.attributes)
        .is_ok_and(|through| through.access_as == open.asked.access_as)
        && open.asked.keeps.is_none_or(|keeps| held.pass.record_sessions <= keeps)
}
