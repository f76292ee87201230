//! `kasbah log import`: a log out of a slice.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::ValueHint;
use store::copy::{CopyOf, import};
use store::slice::SliceReader;
use world::World;

use super::copy::{failed, shown};
use super::place::ReachArgs;
use crate::client::failure::Failure;
use crate::client::print::Printer;

/// Makes a log of a slice.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// Slice from `kasbah log export`
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Target of the log: a data folder, or nats://host:port, without a log or with an unfinished import of the same slice
    #[arg(long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    to: String,
    #[command(flatten)]
    reach: ReachArgs,
}

impl Import {
    /// Reads all of the slice before anything is made.
    ///
    /// # Errors
    /// When the slice is not what was written, or there is another log.
    pub async fn run(self, printer: Printer, world: &World) -> Result<(), Failure> {
        let mut read = self.reader()?;
        while read.next_record().map_err(|error| failed(&error.into()))?.is_some() {}
        let (of, partitions) = (CopyOf::slice(&read), read.header().partitions);
        let made = self.reach.make(&self.to, &of, partitions, world).await?;
        let imported = match self.reader() {
            Ok(slice) => import(slice, made.copies()).await.map_err(|error| failed(&error)),
            Err(failure) => Err(failure),
        };
        made.close().await;
        shown(&imported?, printer)
    }

    fn reader(&self) -> Result<SliceReader<BufReader<File>>, Failure> {
        let io = |detail| Failure::Io { doing: format!("read {}", self.file.display()), detail };
        let file = BufReader::new(File::open(&self.file).map_err(io)?);
        let slice = SliceReader::open(file).map_err(|error| failed(&error.into()))?;
        Ok(slice.of_whole_aggregates())
    }
}
