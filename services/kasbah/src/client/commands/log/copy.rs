//! `kasbah log copy`: a log with all that belongs to it, into another place.

use std::path::PathBuf;

use clap::ValueHint;
use events::position::Stream;
use serde_json::json;
use store::copy::{Copied, CopyError, CopyOf, copy};
use world::World;

use super::place::{FromArgs, Opened, ReachArgs};
use crate::client::failure::Failure;
use crate::client::print::{Fields, Printer};

/// Copies a log.
#[derive(Debug, clap::Args)]
pub struct Copy {
    #[command(flatten)]
    from: FromArgs,
    /// Target of the copy: a data folder, or nats://host:port, without a log or with an unfinished copy of the same log
    #[arg(long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    to: String,
    /// With --to nats://: file with the master key of the key ring there [default: that of --master-key-file]
    #[arg(long, env = "KASBAH_TO_MASTER_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    to_master_key_file: Option<PathBuf>,
}

impl Copy {
    /// Copies it.
    ///
    /// # Errors
    /// When a log cannot be read or written, or the copy would not be the same.
    pub async fn run(self, printer: Printer, world: &World) -> Result<(), Failure> {
        let original = self.from.open(world).await?;
        let copied = self.copy(&original, world).await;
        original.close().await;
        shown(&copied?, printer)
    }

    async fn copy(&self, original: &Opened, world: &World) -> Result<Copied, Failure> {
        let of = CopyOf::log(&original.parts).await.map_err(|error| failed(&error.into()))?;
        let partitions = original.parts.log.partitions();
        let master_key_file =
            self.to_master_key_file.clone().or_else(|| self.from.reach.master_key_file.clone());
        let reach = ReachArgs { master_key_file, ..self.from.reach.clone() };
        let made = reach.make(&self.to, &of, partitions, world).await?;
        let copied = copy(original.copies(), made.copies()).await;
        made.close().await;
        copied.map_err(|error| failed(&error))
    }
}

pub(super) fn failed(error: &CopyError) -> Failure {
    Failure::Unsuccessful(error.to_string())
}

/// Says what was copied.
pub(super) fn shown(copied: &Copied, printer: Printer) -> Result<(), Failure> {
    let partitions: Vec<_> = copied
        .partitions
        .iter()
        .map(|((stream, partition), tally)| {
            json!({ "stream": stream, "partition": partition, "records": tally.count, "hash": tally.hash })
        })
        .collect();
    let shown = json!({
        "partitions": partitions, "written": copied.written, "keys": copied.keys, "blobs": copied.blobs,
        "sealed_for_good": copied.sealed_for_good,
    });
    printer.show(&shown, |_, style| {
        let of_streams = Stream::ALL.iter().fold(Fields::new(), |fields, stream| {
            fields.with(stream.as_str(), copied.records(*stream).to_string())
        });
        let fields = of_streams
            .with("written now", copied.written.to_string())
            .with("keys", copied.keys.to_string())
            .with("blobs", copied.blobs.to_string());
        let fields = match copied.sealed_for_good {
            0 => fields,
            left_out => fields.with("left out", format!("{left_out} blobs whose key was destroyed")),
        };
        fields.render(style) + "The copy is the same, and verifies.\n"
    })
}
