//! `kasbah log export`: a slice of a log, in one file.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use clap::ValueHint;
use events::{AggregateRef, OrganizationId, Position, Timestamp};
use serde_json::json;
use store::slice::{Header, Selection, write_slice};
use world::World;

use super::place::{FromArgs, organization};
use crate::client::failure::Failure;
use crate::client::moment::Moment;
use crate::client::print::{Fields, Printer};
use crate::server::CREATED_BY;

/// Writes a slice.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// File to write; it must not exist
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    from: FromArgs,
    /// Only this organization, by id, or `system`; may be given more than once
    #[arg(long, value_name = "ID", value_parser = organization)]
    organization: Vec<OrganizationId>,
    /// Only decisions of this aggregate; may be given more than once
    #[arg(long, value_name = "KIND/ID")]
    aggregate: Vec<AggregateRef>,
    /// Only records since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Only records before this time
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    until: Option<Moment>,
    /// Only records after this position, such as d3-17, as `kasbah log replay` prints it; all records of partitions that it does not
    /// name
    #[arg(long, value_name = "POSITION", default_value = "start")]
    after: Position,
    /// Only records up to this position; no records of partitions that it does not name
    #[arg(long, value_name = "POSITION")]
    up_to: Option<Position>,
}

impl Export {
    /// Writes it.
    ///
    /// # Errors
    /// When the log cannot be read, or the file is there or cannot be written.
    pub async fn run(self, printer: Printer, world: &World) -> Result<(), Failure> {
        let io = |detail| Failure::Io { doing: format!("write {}", self.file.display()), detail };
        let opened = self.from.open(world).await?;
        let file = File::create_new(&self.file).map_err(io)?;
        let now = Timestamp(world.clock.now_millis());
        let header = Header {
            created_by: CREATED_BY.to_owned(),
            created_at: now,
            partitions: opened.parts.log.partitions(),
            selection: Selection {
                organizations: self.organization.iter().copied().collect(),
                aggregates: self.aggregate.iter().cloned().collect(),
                since: self.since.map(|since| since.before(now)),
                until: self.until.map(|until| until.before(now)),
                after: self.after.clone(),
                up_to: self.up_to.clone(),
            },
        };
        let written = write_slice(&*opened.parts.log, &header, BufWriter::new(&file)).await;
        opened.close().await;
        let written = written.map_err(|error| Failure::Unsuccessful(error.to_string()))?;
        file.sync_all().map_err(io)?;
        let of = |stream: &events::position::Stream| written.records.get(stream).copied().unwrap_or(0);
        let shown = json!({ "file": self.file, "records": written.records, "hash": written.hash });
        printer.show(&shown, |_, style| {
            let streams = events::position::Stream::ALL.iter();
            let fields = streams
                .fold(Fields::new(), |fields, stream| fields.with(stream.as_str(), of(stream).to_string()));
            fields.with("hash", written.hash.to_string()).render(style)
        })
    }
}
