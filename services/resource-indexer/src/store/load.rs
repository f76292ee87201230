//! Loading what is kept in memory when a process starts. Agents are loaded beside each other, as no two of them have anything in common that
//! finds their objects: each thread makes a part of the index, and the parts are joined.

mod lists;
mod pieces;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use events::AgentId;
use uuid::Uuid;

use lists::{Lists, Read};

use super::read::{Opened, Pair, Reader};
use super::{DIRECTORY_KEY, OBJECTS, STATED, Standing, StoreError, TUNNELS_KEY, decode, guarded, keys};
use crate::model::{Directory, Fold, Index, Loading, Record, Room, Slot, Tunnels};

/// Threads that load beside each other at most.
const THREADS: usize = 8;

/// Records that are read before they are put into the index.
const READ_AT_ONCE: usize = 200;

/// What is loaded when a process starts.
pub struct Loaded {
    /// Objects and agents.
    pub fold: Fold,
    /// Names.
    pub directory: Directory,
    /// Connections.
    pub tunnels: Tunnels,
    /// Where the fold stands.
    pub standing: Standing,
}

/// An agent whose objects are loaded, and the slots that they take: they are the same at each start, whichever thread takes which agent.
struct Share {
    agent: AgentId,
    slots: Range<usize>,
}

/// What one thread loads.
struct Part {
    index: Index,
    room: Room,
    loading: Loading,
    /// Objects for which there was no slot.
    over: Vec<Arc<Record>>,
    /// Slots that no object took.
    unused: Vec<Slot>,
}

struct Tables {
    objects: Opened,
    stated: Opened,
}

impl Reader {
    /// Everything that is kept in memory.
    ///
    /// # Errors
    /// When the database does not work.
    pub fn load(&self) -> Result<Loaded, StoreError> {
        guarded("loading", || self.load_all())
    }

    fn load_all(&self) -> Result<Loaded, StoreError> {
        let standing = self.standing()?;
        let mut fold = Fold::default();
        fold.observed = self.agents()?;
        fold.index = self.load_index(&standing)?;
        let directory = self.meta(DIRECTORY_KEY)?.map(|bytes| decode(&bytes)).transpose()?;
        let tunnels = self.meta(TUNNELS_KEY)?.map(|bytes| decode(&bytes)).transpose()?;
        Ok(Loaded {
            fold,
            directory: directory.unwrap_or_default(),
            tunnels: tunnels.unwrap_or_default(),
            standing,
        })
    }

    fn load_index(&self, standing: &Standing) -> Result<Index, StoreError> {
        let tables = Tables { objects: self.table(OBJECTS)?, stated: self.table(STATED)? };
        let mut shares = tables.shares(&standing.leaving)?;
        let room = shares.last().map_or(0, |share| share.slots.end);
        // The longest first: otherwise one may be left for the end.
        shares.sort_by_key(|share| std::cmp::Reverse(share.slots.len()));
        let threads = available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS).min(shares.len());
        let next = AtomicUsize::new(0);
        let load = || tables.load_part(room, || shares.get(next.fetch_add(1, Ordering::Relaxed)));
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(load)).collect();
            let mut parts = vec![load()?];
            for other in others {
                let panicked = |_| Err(StoreError::Broken("redb panicked while loading".to_owned()));
                parts.push(other.join().unwrap_or_else(panicked)?);
            }
            Ok(Part::join(parts))
        })
    }
}

impl Part {
    fn new(room: usize) -> Self {
        let (index, loading) = (Index::default(), Loading::default());
        Self { index, room: Room::of(room), loading, over: Vec::new(), unused: Vec::new() }
    }

    fn join(parts: Vec<Self>) -> Index {
        let (mut index, mut loading) = (Index::default(), Loading::default());
        let (mut rooms, mut over, mut unused) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            index.join(part.index);
            loading.join(part.loading);
            rooms.push(part.room);
            over.extend(part.over);
            unused.extend(part.unused);
        }
        index.end_parts(rooms, unused);
        index.end_loading(loading);
        over.sort_by(|one, other| (one.agent, &one.uid).cmp(&(other.agent, &other.uid)));
        for record in over {
            index.put(Arc::unwrap_or_clone(record));
        }
        index
    }
}

impl Tables {
    /// All agents of which there are objects, in their order, but for those that are leaving.
    fn shares(&self, leaving: &BTreeSet<AgentId>) -> Result<Vec<Share>, StoreError> {
        let (mut shares, mut from, mut end) = (Vec::new(), [0_u8; 16], 0_usize);
        loop {
            let mut rows = self.objects.range(from.as_slice()..).map_err(StoreError::of)?;
            let Some((key, _)) = rows.next().transpose().map_err(StoreError::of)? else { return Ok(shares) };
            let agent = keys::agent_of(key.value());
            let agent = agent.ok_or_else(|| StoreError::Broken("a key names no agent".to_owned()))?;
            if !leaving.contains(&agent) {
                // What was stated is in small rows, and there is one for each object.
                let objects = of_agent(&self.stated, agent)?.count();
                let slots = end..end.saturating_add(objects);
                end = slots.end;
                shares.push(Share { agent, slots });
            }
            match agent.0.as_u128().checked_add(1) {
                Some(behind) => from = behind.to_be_bytes(),
                None => return Ok(shares),
            }
        }
    }

    fn load_part<'s>(
        &self,
        room: usize,
        mut next: impl FnMut() -> Option<&'s Share>,
    ) -> Result<Part, StoreError> {
        let mut part = Part::new(room);
        while let Some(share) = next() {
            let mut index = Index::part(std::mem::take(&mut part.room), share.slots.clone());
            self.load_agent(share.agent, &mut index, &mut part)?;
            index.note_lists(share.agent);
            let (room, unused) = index.leave_room();
            part.room = room;
            part.unused.extend(unused);
            part.index.join(index);
        }
        Ok(part)
    }

    fn load_agent(&self, agent: AgentId, index: &mut Index, part: &mut Part) -> Result<(), StoreError> {
        let mut lists = Lists::default();
        let mut rows = self.rows(agent)?;
        loop {
            let records = rows.by_ref().take(READ_AT_ONCE).map(|row| row?.read(&mut lists));
            let some = part.loading.read(agent, || records.collect::<Result<Vec<_>, _>>())?;
            if some.is_empty() {
                return Ok(());
            }
            for read in some {
                let record = lists.prepare(read, &mut part.loading);
                if index.has_slot() {
                    index.load(record);
                } else {
                    part.over.push(record);
                }
            }
        }
    }

    /// The records of an agent, with what was stated of them.
    fn rows(
        &self,
        agent: AgentId,
    ) -> Result<impl Iterator<Item = Result<Row, StoreError>> + use<>, StoreError> {
        // Both are in the order of objects.
        let mut stated = of_agent(&self.stated, agent)?.peekable();
        Ok(of_agent(&self.objects, agent)?.map(move |row| {
            let record = row.map_err(StoreError::of)?;
            let key = record.0.value();
            let is_of_one_before = |row: &Result<Pair, _>| row.as_ref().is_ok_and(|(of, _)| of.value() < key);
            while stated.next_if(is_of_one_before).is_some() {}
            let is_of_it = |row: &Result<Pair, _>| row.as_ref().is_ok_and(|(of, _)| of.value() == key);
            let stated = stated.next_if(is_of_it).transpose().map_err(StoreError::of)?;
            Ok(Row { record, stated })
        }))
    }
}

/// A record as it is written, with what was stated of it.
struct Row {
    record: Pair<'static>,
    stated: Option<Pair<'static>>,
}

impl Row {
    fn read(&self, lists: &mut Lists) -> Result<Read, StoreError> {
        let (key, value) = &self.record;
        let mut read = lists.read(value.value())?;
        let stated = self.stated.as_ref().map(|(_, stated)| decode(stated.value()));
        read.record.stated = stated.transpose()?.unwrap_or_default();
        // Two objects of one UID would not both be found.
        let is_its_key = keys::object_key(read.record.agent, &read.record.uid) == key.value();
        is_its_key
            .then_some(read)
            .ok_or_else(|| StoreError::Broken("an object has the key of another one".to_owned()))
    }
}

fn of_agent(
    table: &Opened,
    agent: AgentId,
) -> Result<redb::Range<'static, &'static [u8], &'static [u8]>, StoreError> {
    let first = agent.0.as_bytes().as_slice();
    let behind = agent.0.as_u128().checked_add(1).map(|behind| *Uuid::from_u128(behind).as_bytes());
    match &behind {
        Some(behind) => table.range(first..behind.as_slice()),
        None => table.range(first..),
    }
    .map_err(StoreError::of)
}
