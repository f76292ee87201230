//! The servers as one process reaches them.

use std::time::Duration;

use async_trait::async_trait;
use store::jetstream::simulated::{
    Ack, Extent, Live, Page, Piece, Publish, PublishError, Server, ServerError, Stored,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::stream::{REPLICAS, Stream};
use super::{Listener, LogServers};

/// How long a server may take for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
const WAITING: usize = 4_096;
/// Messages of one piece of a replay.
const TOGETHER: usize = 256;

pub(super) struct Client {
    pub(super) servers: LogServers,
    pub(super) id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        let id = self.id;
        let mut state = self.servers.state.lock();
        state.conns.remove(&id);
        let gone: Vec<u64> =
            state.listeners.iter().filter(|(_, listener)| listener.conn == id).map(|(n, _)| *n).collect();
        let gone: Vec<Option<Listener>> = gone.iter().map(|number| state.listeners.remove(number)).collect();
        drop(state);
        drop(gone);
    }
}

/// Whom a question goes to.
enum Asked {
    Leader,
    Any,
}

impl Client {
    fn interruptions(&self) -> Option<watch::Receiver<u64>> {
        let state = self.servers.state.lock();
        state.conns.get(&self.id).filter(|conn| conn.connected).map(|conn| conn.interruptions.subscribe())
    }

    /// Waits for an answer, as long as a client does; `None` when none comes.
    async fn answered<T>(&self, answer: oneshot::Receiver<T>, mut cut: watch::Receiver<u64>) -> Option<T> {
        let answer = async {
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            _ = cut.changed() => None,
            () = self.servers.executor.sleep(ANSWER_TIME) => None,
        }
    }

    /// Asks something of a stream. `look` gets the stream and up to where whoever is asked has it.
    async fn ask<T: Send + 'static>(
        &self,
        stream: &str,
        asked: Asked,
        look: impl FnOnce(&mut Stream, u64) -> T + Send + 'static,
    ) -> Result<T, ServerError> {
        let cut = self.interruptions().ok_or_else(|| ServerError("no server is connected".to_owned()))?;
        let (give, answer) = oneshot::channel();
        let (servers, id, name) = (self.servers.clone(), self.id, stream.to_owned());
        let latency = servers.executor.roll(|dice| Duration::from_micros(dice.between(30, 900)));
        let at = {
            let mut state = servers.state.lock();
            let now = servers.executor.now();
            let Some(conn) = state.conns.get_mut(&id) else {
                return Err(ServerError("the client is closed".to_owned()));
            };
            conn.last_up = (now + latency).max(conn.last_up);
            conn.last_up
        };
        let there = servers.clone();
        servers.executor.at(at, move || {
            let mut state = there.state.lock();
            let outcome = see(&there, &mut state, id, &name, &asked, look);
            there.send(&mut state, id, None, move || {
                let _unheard = give.send(outcome);
            });
        });
        let answer = self.answered(answer, cut).await;
        answer.unwrap_or_else(|| Err(ServerError("no answer came".to_owned())))
    }
}

fn see<T>(
    servers: &LogServers,
    state: &mut super::State,
    conn: u64,
    name: &str,
    asked: &Asked,
    look: impl FnOnce(&mut Stream, u64) -> T,
) -> Result<T, ServerError> {
    let now = servers.executor.now();
    let Some(stream) = state.streams.get_mut(name) else {
        return Err(ServerError(format!("there is no stream {name}")));
    };
    let stale = stream.parted.as_ref().filter(|parted| parted.until > now && parted.conns.contains(&conn));
    let up_to = match (asked, stale.map(|parted| parted.sequence)) {
        (Asked::Leader, Some(known)) => known,
        (Asked::Leader, None) if stream.leaderless_until > now => {
            return Err(ServerError(format!("nobody leads the stream {name}")));
        }
        (Asked::Leader, None) => stream.last,
        (Asked::Any, _) => {
            let (replica, behind) = servers
                .executor
                .roll(|dice| (dice.index(REPLICAS), Duration::from_micros(dice.below(2_500))));
            stream.visible(replica, now, behind)
        }
    };
    Ok(look(stream, up_to))
}

#[async_trait]
impl Server for Client {
    async fn publish(&self, message: &Publish) -> Result<Ack, PublishError> {
        let Some(cut) = self.interruptions() else {
            return Err(PublishError::Away("no server is connected".to_owned()));
        };
        let (give, answer) = oneshot::channel();
        self.servers.publish(self.id, message.clone(), give);
        let answer = self.answered(answer, cut).await;
        answer.unwrap_or_else(|| Err(PublishError::Unknown("no answer came".to_owned())))
    }

    async fn newest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        let subject = subject.to_owned();
        self.ask(stream, Asked::Leader, move |stream, up_to| stream.newest(&subject, up_to)).await
    }

    async fn nearest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, ServerError> {
        let subject = subject.to_owned();
        self.ask(stream, Asked::Any, move |stream, up_to| stream.newest(&subject, up_to)).await
    }

    async fn page(&self, page: &Page) -> Piece {
        let Page { stream, from, most, subject } = page.clone();
        let look = move |stream: &mut Stream, up_to| stream.page(from, up_to, most, subject.as_deref());
        self.ask(&stream, Asked::Any, look).await
    }

    async fn replay(&self, stream: &str, from: u64, to: u64) -> Result<mpsc::Receiver<Piece>, ServerError> {
        let look = move |stream: &mut Stream, up_to: u64| stream.page(from, up_to.min(to), usize::MAX, None);
        let all = self.ask(stream, Asked::Leader, look).await?;
        let pieces = all.chunks(TOGETHER).map(<[Stored]>::to_vec);
        let (give, taken) = mpsc::channel(all.len() / TOGETHER + 2);
        for piece in pieces {
            // There is room for all of them.
            let _taken = give.try_send(Ok(piece));
        }
        if all.last().map_or(0, |last| last.sequence) < to {
            let broke_off = ServerError(format!("the replay of {stream} broke off"));
            let _taken = give.try_send(Err(broke_off));
        }
        Ok(taken)
    }

    async fn extent(&self, stream: &str) -> Result<Extent, ServerError> {
        self.ask(stream, Asked::Leader, |stream, up_to| stream.extent(up_to)).await
    }

    async fn purge(&self, stream: &str, filter: &str, before: u64) -> Result<(), ServerError> {
        let filter = filter.to_owned();
        self.ask(stream, Asked::Leader, move |stream, _| stream.purge(&filter, before)).await
    }

    async fn stored(&self, filter: &str) -> Result<mpsc::Receiver<Live>, ServerError> {
        let (to, live) = mpsc::channel(WAITING);
        let mut cut = self.interruptions().ok_or_else(|| ServerError("no server is connected".to_owned()))?;
        let missed = to.clone();
        let life = {
            let mut state = self.servers.state.lock();
            state.next += 1;
            let number = state.next;
            state.listeners.insert(number, Listener { conn: self.id, filter: filter.to_owned(), to });
            state.conns.get(&self.id).map(|conn| conn.life)
        };
        let told = async move {
            while cut.changed().await.is_ok() {
                if missed.send(Live::Missed).await.is_err() {
                    return;
                }
            }
        };
        if let Some(life) = life {
            self.servers.executor.spawn(life, "stored messages", Box::pin(told));
        }
        Ok(live)
    }

    fn is_connected(&self) -> bool {
        self.servers.state.lock().conns.get(&self.id).is_some_and(|conn| conn.connected)
    }
}
