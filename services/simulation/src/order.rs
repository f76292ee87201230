//! Records of different partitions are folded in any order: what follows takes what comes, and who starts anew reads one partition after
//! the other. A projection has to be the same in each of them.

use std::cmp::Reverse;

use delivery::model::DeliveryState;
use events::Position;
use store::{EventLog, Projection, Record};
use tunnel_gateway::{ObjectCursors, ObservationCursors};

/// The first projection that another order makes another one, or why that cannot be seen.
pub(crate) async fn matters(log: &dyn EventLog) -> Option<String> {
    let all = [
        of::<authz::model::Directory>(log).await,
        of::<config_fetcher::model::State>(log).await,
        of::<repo_poller::model::State>(log).await,
        of::<DeliveryState>(log).await,
        of::<delivery::environments::Environments>(log).await,
        of::<ObservationCursors>(log).await,
        of::<ObjectCursors>(log).await,
        of::<event_relay::model::State>(log).await,
    ];
    all.into_iter().flatten().next()
}

async fn of<P: Projection>(log: &dyn EventLog) -> Option<String> {
    let mut records = match records::<P>(log).await {
        Ok(records) => records,
        Err(error) => return Some(error.to_string()),
    };
    let by_partition = folded::<P>(&records);
    records.sort_by_key(|record| (Reverse(record.shard), record.sequence));
    let backwards = folded::<P>(&records);
    records.sort_by_key(|record| (record.recorded_at, record.shard, record.sequence));
    let as_stored = folded::<P>(&records);
    (by_partition != backwards || by_partition != as_stored)
        .then(|| format!("{} depends on the order in which partitions are folded", P::NAME))
}

async fn records<P: Projection>(log: &dyn EventLog) -> Result<Vec<Record>, store::ReadError> {
    let mut reader = log.read(&Position::start(), &P::filter()).await?;
    let mut records = Vec::new();
    while let Some(record) = reader.recv().await {
        records.push(record?);
    }
    Ok(records)
}

fn folded<P: Projection>(records: &[Record]) -> Result<Vec<u8>, String> {
    let mut state = P::start();
    for record in records {
        state.fold(record);
    }
    state.snapshot().map_err(|error| error.to_string())
}
