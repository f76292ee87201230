//! Bodies of objects of the past, for workloads that are judged with their pods.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use events::{AgentId, Timestamp};
use serde_json::Value;

use crate::model::{Index, Record, Slot, Text, asks_pods, controller_of, verdict_with_judged_pods};
use crate::store::Reader;

/// Bytes of bodies of which the parsed form is kept, which takes about ten times as much.
const BYTES: usize = 4 << 20;
/// Controllers above a workload that are followed.
const LEVELS: usize = 4;

/// Judges workloads with their pods, all of which are judged by themselves.
pub(super) fn judge_workloads(index: &mut Index, reader: &Reader, at: Timestamp) {
    let asks = |slot: &Slot| index.get(*slot).is_some_and(asks_pods);
    let mut open: Vec<(Slot, Slot)> =
        index.slots().filter(asks).map(|slot| (top_above(index, slot), slot)).collect();
    // A Deployment and its ReplicaSets are judged with the same pods.
    open.sort_unstable();
    let bodies = Bodies { reader, known: RefCell::default(), left: Cell::new(BYTES) };
    for (_, slot) in open {
        if let Some(verdict) = verdict_with_judged_pods(index, slot, at, &|record| bodies.of(record)) {
            index.judge_with_pods(slot, Some(verdict));
        }
    }
}

/// The topmost controller of an object.
fn top_above(index: &Index, slot: Slot) -> Slot {
    let mut top = slot;
    for _ in 0..LEVELS {
        let Some(above) = index.get(top).and_then(|record| controller_of(index, record)) else { break };
        top = above;
    }
    top
}

/// Bodies that were parsed lately.
struct Bodies<'a> {
    reader: &'a Reader,
    known: RefCell<BTreeMap<(AgentId, Text), Arc<Value>>>,
    left: Cell<usize>,
}

impl Bodies<'_> {
    fn of(&self, record: &Record) -> Option<Arc<Value>> {
        let key = (record.agent, record.uid.clone());
        if let Some(known) = self.known.borrow().get(&key) {
            return Some(Arc::clone(known));
        }
        let body = super::body_of(self.reader, record).ok()??;
        let parsed: Arc<Value> = Arc::new(serde_json::from_slice(&body).ok()?);
        let mut known = self.known.borrow_mut();
        if body.len() > self.left.get() {
            known.clear();
            self.left.set(BYTES);
        }
        self.left.set(self.left.get().saturating_sub(body.len()));
        known.insert(key, Arc::clone(&parsed));
        Some(parsed)
    }
}
