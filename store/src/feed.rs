//! How records travel from a log to its reader: in batches, so that the two do not wait for each other at each record.

use tokio::sync::mpsc;

use crate::log::ReadError;

/// Records that travel together at most.
const RECORDS: usize = 256;

/// Bytes of records that travel together, but for the last one.
const BYTES: usize = 256 * 1024;

/// Batches that wait for the reader before the log waits for it.
const WAITING: usize = 4;

/// The reader's end. Ends with the log's end or close, or behind the first error.
#[derive(Debug)]
pub struct Feed<T> {
    batches: mpsc::Receiver<Vec<Result<T, ReadError>>>,
    ready: std::vec::IntoIter<Result<T, ReadError>>,
}

/// The log's end of a [`Feed`].
#[derive(Debug)]
pub struct Feeder<T> {
    batches: mpsc::Sender<Vec<Result<T, ReadError>>>,
    next: Vec<Result<T, ReadError>>,
    bytes: usize,
}

/// The reader has gone.
#[derive(Debug, thiserror::Error)]
#[error("the reader has gone")]
pub struct ReaderGone;

impl<T> Feed<T> {
    /// Both ends.
    #[must_use]
    pub fn pair() -> (Feeder<T>, Self) {
        let (to, batches) = mpsc::channel(WAITING);
        (Feeder { batches: to, next: Vec::new(), bytes: 0 }, Self { batches, ready: Vec::new().into_iter() })
    }

    /// The next one; `None` at the end. Nothing is lost when the call is dropped before it returns.
    pub async fn recv(&mut self) -> Option<Result<T, ReadError>> {
        loop {
            if let Some(next) = self.ready.next() {
                return Some(next);
            }
            self.ready = self.batches.recv().await?.into_iter();
        }
    }

    /// Waits for at least one and takes those that are there, up to `limit`; 0 at the end.
    pub async fn recv_many(&mut self, to: &mut Vec<Result<T, ReadError>>, limit: usize) -> usize {
        if self.ready.len() == 0 {
            match self.batches.recv().await {
                Some(batch) => self.ready = batch.into_iter(),
                None => return 0,
            }
        }
        let before = to.len();
        to.extend(self.ready.by_ref().take(limit));
        to.len() - before
    }
}

impl<T> Feeder<T> {
    /// Puts one into the next batch; says whether the batch is full and wants to be sent.
    pub fn push(&mut self, item: Result<T, ReadError>, bytes: usize) -> bool {
        self.next.push(item);
        self.bytes += bytes;
        self.next.len() >= RECORDS || self.bytes >= BYTES
    }

    /// Sends what was pushed; waits while the reader is slow.
    ///
    /// # Errors
    /// When the reader has gone.
    pub async fn flush(&mut self) -> Result<(), ReaderGone> {
        if self.next.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        self.batches.send(std::mem::take(&mut self.next)).await.map_err(|_| ReaderGone)
    }

    /// As [`Feeder::flush`], on a thread that may block.
    ///
    /// # Errors
    /// When the reader has gone.
    pub fn blocking_flush(&mut self) -> Result<(), ReaderGone> {
        if self.next.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let batch = std::mem::replace(&mut self.next, Vec::with_capacity(RECORDS));
        self.batches.blocking_send(batch).map_err(|_| ReaderGone)
    }

    /// Another end for the same reader. Everything that was pushed here is sent before, so what is pushed there cannot overtake it.
    ///
    /// # Errors
    /// When the reader has gone.
    pub async fn another(&mut self) -> Result<Self, ReaderGone> {
        self.flush().await?;
        Ok(Self { batches: self.batches.clone(), next: Vec::new(), bytes: 0 })
    }

    /// Returns once the reader has gone.
    pub async fn gone(&self) {
        self.batches.closed().await;
    }
}
