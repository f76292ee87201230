//! `kasbah log verify --from`: all partitions of a log, and in a folder its blobs.

use serde_json::json;
use world::World;

use super::place::{FromArgs, Store};
use crate::client::failure::Failure;
use crate::client::print::{Printer, Table};

/// Checks chains.
#[derive(Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    pub from: FromArgs,
}

/// Checks order, versions, chains, checksums and checkpoints of all partitions, and in a folder the blobs.
///
/// # Errors
/// What does not fit first.
pub async fn everything(from: &FromArgs, printer: Printer, world: &World) -> Result<(), Failure> {
    let opened = from.open(world).await?;
    let verified = opened.parts.log.verify().await.map_err(|error| error.to_string());
    let blobs = match &opened.store {
        Store::OnNats(_) => Ok(None),
        Store::Embedded(store) => {
            let store = store.clone();
            let checked = tokio::task::spawn_blocking(move || store.verify_blobs()).await;
            checked
                .map_err(|error| error.to_string())
                .and_then(|checked| checked.map(Some).map_err(|error| error.to_string()))
        }
    };
    opened.close().await;
    let broken = |detail: String| {
        Failure::Unsuccessful(format!(
            "the log does not verify: {detail}; keep its files, and restore from a copy"
        ))
    };
    let report = verified.map_err(broken)?;
    let blobs = blobs.map_err(broken)?;
    let streams: Vec<_> = report
        .streams
        .iter()
        .map(|stream| {
            json!({
                "stream": stream.stream, "records": stream.records, "bytes": stream.bytes,
                "aggregates": stream.aggregates, "checkpoints": stream.checkpoints,
                "unreadable": stream.unreadable,
            })
        })
        .collect();
    printer.show(&json!({ "ok": true, "streams": streams, "blobs": blobs }), |_, style| {
        let mut table = Table::new(&["STREAM", "RECORDS", "BYTES", "CHAINS", "CHECKPOINTS", "UNREADABLE"]);
        for stream in &report.streams {
            let counts =
                [stream.records, stream.bytes, stream.aggregates, stream.checkpoints, stream.unreadable];
            let counts = counts.iter().map(|count| count.to_string().into());
            table.row(std::iter::once(stream.stream.as_str().into()).chain(counts));
        }
        let blobs = blobs.map_or(String::new(), |blobs| format!("{blobs} blobs are whole\n"));
        table.render(style, "no streams") + &blobs
    })
}
