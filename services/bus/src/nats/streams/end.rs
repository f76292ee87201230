//! What one end of a stream knows, and the halves that its user holds.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::GONE;
use crate::contract::{LARGEST_PIECE, ReadBytes, StreamReset, WriteBytes};
use crate::nats::wire::{HeaderMap, Wire};

/// Shared by both halves and the pump.
pub(super) struct End {
    wire: Arc<dyn Wire>,
    near: String,
    far: String,
    window: u64,
    state: Mutex<State>,
    readable: Notify,
    writable: Notify,
    /// Something for the pump to say.
    pub(super) unsaid: Notify,
}

#[derive(Default)]
struct State {
    /// From the other side.
    pieces: VecDeque<Bytes>,
    received: u64,
    read: u64,
    credited: u64,
    /// How many bytes there are in all, once it is known.
    total: Option<u64>,
    incoming_reset: Option<String>,
    /// To the other side.
    sent: u64,
    read_there: u64,
    finished: bool,
    outgoing_reset: Option<String>,
    /// Resets that the other side has not been told.
    to_say: Vec<(Which, String)>,
}

/// What an opening held besides the stream's addresses.
pub(in crate::nats) enum Opening {
    /// By this end: so many bytes.
    Said(u64),
    /// By the other one.
    Heard(Bytes),
}

/// Which direction a reset ends, seen by who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Forward,
    Back,
    Both,
}

impl Which {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Back => "back",
            Self::Both => "both",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Forward, Self::Back, Self::Both].into_iter().find(|which| which.as_str() == text)
    }
}

impl End {
    pub(super) fn new(wire: Arc<dyn Wire>, near: String, far: String, window: u32) -> Self {
        Self {
            wire,
            near,
            far,
            window: u64::from(window.max(1)),
            state: Mutex::default(),
            readable: Notify::new(),
            writable: Notify::new(),
            unsaid: Notify::new(),
        }
    }

    /// The opening said this already.
    pub(super) fn opened(&self, opening: Opening) {
        let mut state = self.state.lock();
        match opening {
            Opening::Said(bytes) => state.sent = bytes,
            Opening::Heard(first) if first.is_empty() => {}
            Opening::Heard(first) => {
                state.received = first.len() as u64;
                state.pieces.push_back(first);
            }
        }
    }

    /// Says something to the other side. Where that fails the connection is gone, which the pump hears by itself.
    pub(super) async fn say(&self, what: &str, count: u64, payload: Bytes) {
        let (to, reply) = (format!("{}.{what}", self.far), format!("{}.{GONE}.{count}", self.near));
        if let Err(error) = self.wire.publish(to, Some(reply), HeaderMap::new(), payload).await {
            tracing::debug!(%error, "stream cannot say something");
        }
    }

    /// Bytes came.
    pub(super) fn took(&self, offset: u64, bytes: Bytes) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if state.incoming_reset.is_some() {
            return Ok(());
        }
        if offset != state.received {
            return Err("bytes were lost on the way");
        }
        state.received += bytes.len() as u64;
        if state.received - state.read > self.window {
            return Err("bytes came without credit");
        }
        state.pieces.push_back(bytes);
        drop(state);
        self.readable.notify_one();
        Ok(())
    }

    /// The other side has read so many bytes in all.
    pub(super) fn credited(&self, total: u64) {
        let mut state = self.state.lock();
        state.read_there = state.read_there.max(total);
        drop(state);
        self.writable.notify_one();
    }

    /// There are so many bytes in all.
    pub(super) fn ended(&self, total: u64) {
        self.state.lock().total = Some(total);
        self.readable.notify_one();
    }

    /// The other side reset: what is its forward is our incoming.
    pub(super) fn was_reset(&self, which: Which, reason: &str) {
        let mut state = self.state.lock();
        if which != Which::Back {
            state.reset_incoming(reason);
        }
        if which != Which::Forward {
            state.reset_outgoing(reason);
        }
        drop(state);
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Resets both directions here, and says it.
    pub(super) fn reset(&self, reason: &str) {
        self.was_reset(Which::Both, reason);
        self.to_say(Which::Both, reason);
    }

    fn to_say(&self, which: Which, reason: &str) {
        self.state.lock().to_say.push((which, reason.to_owned()));
        self.unsaid.notify_one();
    }

    pub(super) fn take_unsaid(&self) -> Vec<(Which, String)> {
        std::mem::take(&mut self.state.lock().to_say)
    }

    /// Nothing can come of it any more: each direction was read to its end, or reset. Until then this end has to be there, because
    /// the other side takes the loss of it for a reset.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        let incoming = state.incoming_reset.is_some() || state.is_read_whole();
        let outgoing = state.outgoing_reset.is_some() || (state.finished && state.read_there >= state.sent);
        incoming && outgoing && state.to_say.is_empty()
    }
}

impl State {
    fn is_read_whole(&self) -> bool {
        self.total == Some(self.read)
    }

    /// What was not read is dropped: a stream is complete or reset. The first reason stays.
    fn reset_incoming(&mut self, reason: &str) {
        if !self.is_read_whole() {
            self.pieces.clear();
            self.incoming_reset.get_or_insert_with(|| reason.to_owned());
        }
    }

    fn reset_outgoing(&mut self, reason: &str) {
        self.outgoing_reset.get_or_insert_with(|| reason.to_owned());
    }
}

/// Reading half.
pub(super) struct Reader {
    pub(super) end: Arc<End>,
}

/// Writing half.
pub(super) struct Writer {
    pub(super) end: Arc<End>,
}

#[async_trait]
impl ReadBytes for Reader {
    async fn read(&mut self) -> Result<Option<Bytes>, StreamReset> {
        loop {
            let (piece, credit, whole) = {
                let mut state = self.end.state.lock();
                if let Some(reason) = &state.incoming_reset {
                    return Err(StreamReset { reason: reason.clone() });
                }
                let piece = state.pieces.pop_front();
                state.read += piece.as_ref().map_or(0, Bytes::len) as u64;
                let whole = state.is_read_whole();
                let owed = state.read - state.credited;
                let credit = (owed > self.end.window / 4 || (whole && owed > 0)).then_some(state.read);
                state.credited = credit.unwrap_or(state.credited);
                (piece, credit, whole)
            };
            if let Some(total) = credit {
                self.end.say("credit", total, Bytes::new()).await;
            }
            match piece {
                Some(piece) => return Ok(Some(piece)),
                None if whole => {
                    self.end.unsaid.notify_one();
                    return Ok(None);
                }
                None => self.end.readable.notified().await,
            }
        }
    }
}

#[async_trait]
impl WriteBytes for Writer {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StreamReset> {
        loop {
            let piece = {
                let mut state = self.end.state.lock();
                state.must_be_open()?;
                let under_way = state.sent - state.read_there;
                let credit = usize::try_from(self.end.window - under_way).unwrap_or(usize::MAX);
                let piece = bytes.split_to(credit.min(LARGEST_PIECE).min(bytes.len()));
                let offset = state.sent;
                state.sent += piece.len() as u64;
                (!piece.is_empty()).then_some((offset, piece))
            };
            if let Some((offset, piece)) = piece {
                self.end.say("data", offset, piece).await;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if self.end.is_without_credit() {
                self.end.writable.notified().await;
            }
        }
    }

    async fn closed(&mut self) {
        while self.end.state.lock().outgoing_reset.is_none() {
            self.end.writable.notified().await;
        }
    }

    async fn finish(&mut self) -> Result<(), StreamReset> {
        let total = {
            let mut state = self.end.state.lock();
            state.must_be_open()?;
            state.finished = true;
            state.sent
        };
        self.end.say("end", total, Bytes::new()).await;
        self.end.unsaid.notify_one();
        Ok(())
    }

    async fn reset(&mut self, reason: &str) {
        self.end.reset(reason);
    }
}

impl State {
    fn must_be_open(&self) -> Result<(), StreamReset> {
        match &self.outgoing_reset {
            Some(reason) => Err(StreamReset { reason: reason.clone() }),
            None if self.finished => Err(StreamReset { reason: "written after its end".to_owned() }),
            None => Ok(()),
        }
    }
}

impl End {
    fn is_without_credit(&self) -> bool {
        let state = self.state.lock();
        state.outgoing_reset.is_none() && state.sent - state.read_there >= self.window
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let whole = {
            let mut state = self.end.state.lock();
            let whole = state.is_read_whole();
            state.reset_incoming("its reader went away");
            whole
        };
        if !whole {
            self.end.to_say(Which::Back, "its reader went away");
        }
        self.end.unsaid.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let finished = {
            let mut state = self.end.state.lock();
            let finished = state.finished;
            if !finished {
                state.reset_outgoing("its writer went away");
            }
            finished
        };
        if !finished {
            self.end.to_say(Which::Forward, "its writer went away");
        }
        self.end.unsaid.notify_one();
    }
}
