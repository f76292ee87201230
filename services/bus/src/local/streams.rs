//! Byte streams with credit: two directions, each a bounded queue of bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::contract::{
    ByteReader, ByteStream, ByteWriter, LARGEST_PIECE, Opening, ReadBytes, StreamReset, WriteBytes,
};

struct Direction {
    window: usize,
    state: Mutex<State>,
    readable: Notify,
    writable: Notify,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    under_way: usize,
    finished: bool,
    reset: Option<String>,
}

struct Reader {
    from: Arc<Direction>,
}

struct Writer {
    to: Arc<Direction>,
    back: Arc<Direction>,
}

/// Both ends of a stream. The first one has said what stands in the opening.
pub(super) fn pair(window: u32, mut opening: Opening) -> Result<(ByteStream, ByteStream), StreamReset> {
    let window = usize::try_from(window).unwrap_or(usize::MAX).max(1);
    let (there, back) = (Direction::new(window), Direction::new(window));
    there.put(&mut opening.first)?;
    there.state.lock().finished = opening.is_all;
    Ok((end(Arc::clone(&back), Arc::clone(&there)), end(there, back)))
}

fn end(from: Arc<Direction>, to: Arc<Direction>) -> ByteStream {
    let reader = ByteReader(Box::new(Reader { from: Arc::clone(&from) }));
    ByteStream { reader, writer: ByteWriter(Box::new(Writer { to, back: from })) }
}

impl Direction {
    fn new(window: usize) -> Arc<Self> {
        Arc::new(Self { window, state: Mutex::default(), readable: Notify::new(), writable: Notify::new() })
    }

    /// What was written and not read is dropped: a stream is complete or reset. The first reason stays.
    fn reset(&self, reason: &str) {
        let mut state = self.state.lock();
        state.pieces.clear();
        if state.reset.is_none() {
            state.reset = Some(reason.to_owned());
        }
        drop(state);
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Takes as much of `bytes` as there is credit for.
    fn put(&self, bytes: &mut Bytes) -> Result<(), StreamReset> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.reset {
            return Err(StreamReset { reason: reason.clone() });
        }
        if state.finished {
            return Err(StreamReset { reason: "written after its end".to_owned() });
        }
        let credit = self.window.saturating_sub(state.under_way).min(LARGEST_PIECE).min(bytes.len());
        if credit > 0 {
            state.under_way += credit;
            state.pieces.push_back(bytes.split_to(credit));
            drop(state);
            self.readable.notify_one();
        }
        Ok(())
    }
}

#[async_trait]
impl ReadBytes for Reader {
    async fn read(&mut self) -> Result<Option<Bytes>, StreamReset> {
        loop {
            {
                let mut state = self.from.state.lock();
                if let Some(reason) = &state.reset {
                    return Err(StreamReset { reason: reason.clone() });
                }
                if let Some(piece) = state.pieces.pop_front() {
                    state.under_way -= piece.len();
                    drop(state);
                    self.from.writable.notify_one();
                    return Ok(Some(piece));
                }
                if state.finished {
                    return Ok(None);
                }
            }
            self.from.readable.notified().await;
        }
    }

    fn has_ended(&self) -> bool {
        self.from.state.lock().is_read_whole()
    }
}

impl State {
    fn is_read_whole(&self) -> bool {
        self.finished && self.pieces.is_empty() && self.reset.is_none()
    }
}

#[async_trait]
impl WriteBytes for Writer {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StreamReset> {
        loop {
            self.to.put(&mut bytes)?;
            if bytes.is_empty() {
                return Ok(());
            }
            self.to.writable.notified().await;
        }
    }

    async fn closed(&mut self) {
        while self.to.state.lock().reset.is_none() {
            self.to.writable.notified().await;
        }
    }

    async fn finish(&mut self) -> Result<(), StreamReset> {
        let mut state = self.to.state.lock();
        if let Some(reason) = &state.reset {
            return Err(StreamReset { reason: reason.clone() });
        }
        state.finished = true;
        drop(state);
        self.to.readable.notify_one();
        Ok(())
    }

    async fn reset(&mut self, reason: &str) {
        self.to.reset(reason);
        self.back.reset(reason);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.from.reset("its reader went away");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.to.state.lock().finished {
            self.to.reset("its writer went away");
        }
    }
}
