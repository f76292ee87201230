//! Lists of labels and links as they are written, which many objects of a cluster share: each is decoded once.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{StoreError, decode};
use super::pieces::Pieces;
use crate::model::{Link, List, Loading, Quick, Record, Text};

/// An empty list as it is written.
const NONE: u8 = 0x90;

/// The lists of one cluster, by what they are written as.
#[derive(Default)]
pub(super) struct Lists {
    labels: HashMap<Box<[u8]>, List<(Text, Text)>, Quick>,
    links: HashMap<Box<[u8]>, List<Link>, Quick>,
    /// A record without its lists.
    rest: Vec<u8>,
}

/// A record that was read, without the lists that are known.
pub(super) struct Read {
    pub(super) record: Record,
    labels: Found<(Text, Text)>,
    links: Found<Link>,
}

enum Found<T> {
    /// It stands in the record, and is written so.
    New(Box<[u8]>),
    Known(List<T>),
}

impl Lists {
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Read, StoreError> {
        let Some(Pieces { before, labels, links, behind }) = Pieces::of(bytes) else {
            return Err(StoreError::Broken("a record has no lists".to_owned()));
        };
        let Self { labels: known_labels, links: known_links, rest } = self;
        rest.clear();
        rest.extend_from_slice(before);
        let labels = find(known_labels, labels, rest);
        let links = find(known_links, links, rest);
        rest.extend_from_slice(behind);
        Ok(Read { record: decode(rest)?, labels, links })
    }

    /// The record as it is put into an index. Those that are not known are known from then on.
    pub(super) fn prepare(&mut self, read: Read, loading: &mut Loading) -> Arc<Record> {
        let Read { record, labels, links } = read;
        let mut record = loading.prepare(record);
        if let Some(Record { facts, .. }) = Arc::get_mut(&mut record) {
            settle(&mut self.labels, labels, &mut facts.labels);
            settle(&mut self.links, links, &mut facts.links);
        }
        record
    }
}

fn find<T>(known: &HashMap<Box<[u8]>, List<T>, Quick>, written: &[u8], rest: &mut Vec<u8>) -> Found<T> {
    match known.get(written) {
        Some(list) => {
            rest.push(NONE);
            Found::Known(list.clone())
        }
        None => {
            rest.extend_from_slice(written);
            Found::New(written.into())
        }
    }
}

fn settle<T>(known: &mut HashMap<Box<[u8]>, List<T>, Quick>, found: Found<T>, list: &mut List<T>) {
    match found {
        Found::Known(known) => *list = known,
        Found::New(written) => {
            known.insert(written, list.clone());
        }
    }
}
