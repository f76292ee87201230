//! What one end of a stream knows, and the halves that its user holds.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::GONE;
use crate::contract::{LARGEST_PIECE, Opening, ReadBytes, StreamReset, WriteBytes};
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
    pub(super) unsent: Notify,
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
    voice: Voice,
    /// What goes with the answer to the opening.
    first: BytesMut,
    /// The other side knows that there is no more.
    end_is_sent: bool,
    /// Somebody waits for what comes only once there is an answer.
    wants_answer: bool,
}

/// What an end may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Voice {
    /// As much as goes with the answer to the opening, which was not given yet, or was all.
    InAnswer,
    /// Nothing: the opener listens once it has the answer, and then says something itself.
    Unheard,
    #[default]
    Free,
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
    /// `heard` is what the other side has said so far.
    pub(super) fn new(
        wire: Arc<dyn Wire>,
        (near, far): (String, String),
        window: u32,
        Opening { first: heard, is_all }: Opening,
    ) -> Self {
        let received = heard.len() as u64;
        let state = State {
            received,
            total: is_all.then_some(received),
            // Nobody waits for credit who says no more.
            credited: if is_all { received } else { 0 },
            pieces: VecDeque::from_iter((!heard.is_empty()).then_some(heard)),
            ..State::default()
        };
        Self {
            wire,
            near,
            far,
            window: u64::from(window.max(1)),
            state: Mutex::new(state),
            readable: Notify::new(),
            writable: Notify::new(),
            unsent: Notify::new(),
        }
    }

    /// This went with the opening, and was heard.
    pub(super) fn with_opening(self, Opening { first, is_all }: &Opening) -> Self {
        let mut state = self.state.lock();
        (state.sent, state.finished, state.end_is_sent) = (first.len() as u64, *is_all, *is_all);
        state.settle();
        drop(state);
        self
    }

    /// Says nothing but what goes with [`Self::answer`] or is [`Self::whole`].
    pub(super) fn in_answer(self) -> Self {
        self.state.lock().voice = Voice::InAnswer;
        self
    }

    /// Whether there is something that the other side is to hear without delay.
    pub(super) fn is_to_answer(&self) -> bool {
        let state = self.state.lock();
        let ends = state.finished || state.outgoing_reset.is_some() || !state.to_say.is_empty();
        state.wants_answer || !state.first.is_empty() || ends
    }

    /// All that is ever said in either direction, if that is known before the opening has an answer.
    pub(super) fn whole(&self) -> Option<Bytes> {
        let mut state = self.state.lock();
        let is_whole = state.finished && state.total.is_some() && state.outgoing_reset.is_none();
        is_whole.then(|| state.first.split().freeze())
    }

    /// What goes with the answer. The rest may be said once something was heard.
    pub(super) fn answer(&self) -> Opening {
        let mut state = self.state.lock();
        (state.voice, state.end_is_sent) = (Voice::Unheard, state.finished);
        state.settle();
        Opening { first: state.first.split().freeze(), is_all: state.finished }
    }

    /// The other side listens, or is gone.
    pub(super) async fn confirm_opening(&self) {
        let end = {
            let mut state = self.state.lock();
            if state.voice != Voice::Unheard {
                return;
            }
            state.voice = Voice::Free;
            state.end()
        };
        self.readable.notify_one();
        self.writable.notify_one();
        self.say_end(end).await;
    }

    async fn say_end(&self, total: Option<u64>) {
        if let Some(total) = total {
            self.say("end", total, Bytes::new()).await;
        }
    }

    /// Says something to the other side. Where that fails the connection is gone, which the pump hears by itself.
    pub(super) async fn say(&self, what: &str, count: u64, payload: Bytes) {
        let (to, reply) = (format!("{}.{what}", self.far), format!("{}.{GONE}.{count}", self.near));
        if let Err(error) = self.wire.publish(to, Some(reply), HeaderMap::new(), payload).await {
            tracing::debug!(%error, "stream message cannot be sent");
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
        self.unsent.notify_one();
    }

    pub(super) fn take_unsent(&self) -> Vec<(Which, String)> {
        let mut state = self.state.lock();
        if state.voice == Voice::Free { std::mem::take(&mut state.to_say) } else { Vec::new() }
    }

    /// Nothing can come of it any more: each direction was read to its end, or reset. Until then this end has to be there, because
    /// the other side takes the loss of it for a reset.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        let incoming = state.incoming_reset.is_some() || state.is_read_whole();
        let outgoing =
            state.outgoing_reset.is_some() || (state.end_is_sent && state.read_there >= state.sent);
        incoming && outgoing && state.to_say.is_empty()
    }
}

impl State {
    /// After how many bytes the end is to be said now.
    fn end(&mut self) -> Option<u64> {
        let is_due = self.voice == Voice::Free && self.finished && !self.end_is_sent;
        self.end_is_sent |= is_due;
        is_due.then_some(self.sent)
    }

    /// Who has said all that there is, at once with the opening or its answer, waits for no credit.
    const fn settle(&mut self) {
        if self.finished {
            self.read_there = self.sent;
        }
    }

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
            let (piece, credit, whole, asks) = {
                let mut state = self.end.state.lock();
                if let Some(reason) = &state.incoming_reset {
                    return Err(StreamReset { reason: reason.clone() });
                }
                let piece = state.pieces.pop_front();
                state.read += piece.as_ref().map_or(0, Bytes::len) as u64;
                let whole = state.is_read_whole();
                let owed = state.read.saturating_sub(state.credited);
                let gives = owed > self.end.window / 4 || (whole && owed > 0);
                let credit = (gives && state.voice == Voice::Free).then_some(state.read);
                state.credited = credit.unwrap_or(state.credited);
                let asks = state.voice == Voice::InAnswer && piece.is_none() && !whole;
                state.wants_answer |= asks;
                (piece, credit, whole, asks)
            };
            if let Some(total) = credit {
                self.end.say("credit", total, Bytes::new()).await;
            }
            if asks {
                self.end.unsent.notify_one();
            }
            match piece {
                Some(piece) => return Ok(Some(piece)),
                None if whole => {
                    self.end.unsent.notify_one();
                    return Ok(None);
                }
                None => self.end.readable.notified().await,
            }
        }
    }

    /// Not before the other side was told, which the next read does.
    fn has_ended(&self) -> bool {
        let state = self.end.state.lock();
        state.is_read_whole() && state.credited >= state.read
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
                let room = match state.voice {
                    Voice::InAnswer => LARGEST_PIECE.saturating_sub(state.first.len()),
                    Voice::Unheard => 0,
                    Voice::Free => LARGEST_PIECE,
                };
                let piece = bytes.split_to(credit.min(room).min(bytes.len()));
                let offset = state.sent;
                state.sent += piece.len() as u64;
                if state.voice == Voice::InAnswer {
                    state.first.extend_from_slice(&piece);
                    self.end.unsent.notify_one();
                }
                (!piece.is_empty() && state.voice == Voice::Free).then_some((offset, piece))
            };
            if let Some((offset, piece)) = piece {
                self.end.say("data", offset, piece).await;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if self.end.has_to_wait() {
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
        let end = {
            let mut state = self.end.state.lock();
            state.must_be_open()?;
            state.finished = true;
            state.end()
        };
        self.end.say_end(end).await;
        self.end.unsent.notify_one();
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
    /// Whether nothing more can be written now: there is no credit, or nobody listens yet.
    fn has_to_wait(&self) -> bool {
        let state = self.state.lock();
        let has_credit = state.sent - state.read_there < self.window;
        state.outgoing_reset.is_none() && (state.voice != Voice::Free || !has_credit)
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
        self.end.unsent.notify_one();
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
        self.end.unsent.notify_one();
    }
}
