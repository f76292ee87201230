//! Laws of byte streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use events::subject::Subject;
use futures::FutureExt;
use tokio::sync::mpsc;
use world::World;

use super::{fresh_name, patient_context, patiently};
use crate::contract::{
    Bus, ByteReader, ByteStream, Opening, RequestError, Serving, StreamHandler, StreamReset,
};

const WINDOW: u32 = 16 * 1024;
const LENGTH: usize = 3 * 1024 * 1024 + 17;

/// Somebody who hands each accepted stream over, and one opened stream with its far end.
struct Line {
    _serving: Serving,
    subject: Subject,
    accepted: mpsc::UnboundedReceiver<ByteStream>,
}

impl Line {
    async fn new(bus: &dyn Bus, world: &World) -> Result<Self> {
        let subject = Subject::request(&fresh_name(world, "stream"));
        let (sender, accepted) = mpsc::unbounded_channel();
        let handler = move |_, stream| {
            let sender = sender.clone();
            async move { drop(sender.send(stream)) }.boxed()
        };
        let _serving = bus.serve_streams(&subject, "stream", Arc::new(handler)).await?;
        Ok(Self { _serving, subject, accepted })
    }

    async fn open(&mut self, bus: &dyn Bus, world: &World) -> Result<(ByteStream, ByteStream)> {
        self.open_saying(bus, world, Opening::default()).await
    }

    async fn open_saying(
        &mut self,
        bus: &dyn Bus,
        world: &World,
        opening: Opening,
    ) -> Result<(ByteStream, ByteStream)> {
        let context = patient_context(world);
        let near =
            patiently(world, "a stream", bus.open_stream(&self.subject, &context, WINDOW, opening)).await??;
        let far = patiently(world, "its far end", self.accepted.recv()).await?.context("nobody accepts")?;
        Ok((near, far))
    }
}

fn content() -> Bytes {
    (0..LENGTH).map(|index| u8::try_from(index % 251).unwrap_or(0)).collect()
}

fn saying(first: &Bytes) -> Opening {
    Opening { first: first.clone(), is_all: false }
}

async fn read_to_end(reader: &mut ByteReader) -> Result<Bytes, StreamReset> {
    let mut all = BytesMut::new();
    while let Some(piece) = reader.0.read().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// Writes the content in uneven pieces and ends in order.
async fn write_all(stream: &mut ByteStream) -> Result<(), StreamReset> {
    let mut rest = content();
    let mut size = 1;
    while !rest.is_empty() {
        stream.writer.0.write(rest.split_to(size.min(rest.len()))).await?;
        size = size * 3 % 70_001;
    }
    stream.writer.0.finish().await
}

async fn all_bytes_cross(world: &World, way: &str, from: &mut ByteStream, to: &mut ByteReader) -> Result<()> {
    let crossing = async { tokio::join!(write_all(from), read_to_end(to)) };
    let (written, read) = patiently(world, &format!("all bytes {way}"), crossing).await?;
    written?;
    ensure!(read? == content(), "other bytes {way}");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn bytes_arrive_in_order_and_complete(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, mut far) = line.open(&*bus, &world).await?;
    all_bytes_cross(&world, "there", &mut near, &mut far.reader).await?;
    all_bytes_cross(&world, "back", &mut far, &mut near.reader).await
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn nobody_there_is_told_at_once(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let subject = Subject::request(&fresh_name(&world, "nobody"));
    let context = patient_context(&world);
    let outcome =
        patiently(&world, "a refusal", bus.open_stream(&subject, &context, WINDOW, Opening::default()))
            .await?;
    ensure!(matches!(outcome, Err(RequestError::NoResponder { .. })), "not told");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn what_is_said_with_the_opening_is_read_first_and_needs_credit(
    bus: Arc<dyn Bus>,
    world: World,
) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let content = content();
    let first = content.slice(..WINDOW as usize);
    let (mut near, mut far) = line.open_saying(&*bus, &world, saying(&first)).await?;
    let read = patiently(&world, "what came with the opening", far.reader.0.read()).await??;
    ensure!(read.as_ref() == Some(&first), "other bytes came with the opening");
    let rest = content.slice(WINDOW as usize..);
    let there = async {
        tokio::join!(
            async {
                near.writer.0.write(rest.clone()).await?;
                near.writer.0.finish().await
            },
            read_to_end(&mut far.reader)
        )
    };
    let (written, read) = patiently(&world, "the rest", there).await?;
    written?;
    ensure!(read? == rest, "other bytes behind what came with the opening");

    let (mut near, _unread) = line.open_saying(&*bus, &world, saying(&first)).await?;
    let more = near.writer.0.write(Bytes::from_static(b"more"));
    let reply = Subject::notice(&fresh_name(&world, "meanwhile"));
    let mut subscription = bus.subscribe(&reply).await?;
    let meanwhile = async {
        bus.publish(&reply, Bytes::new()).await?;
        subscription.receiver.recv().await.context("no notice")
    };
    tokio::select! {
        biased;
        written = more => anyhow::bail!("written without credit: {written:?}"),
        heard = patiently(&world, "a notice", meanwhile) => drop(heard??),
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn an_opening_may_be_all_that_is_said(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    for first in [Bytes::new(), Bytes::from_static(b"question")] {
        let opening = Opening { first: first.clone(), is_all: true };
        let (mut near, mut far) = line.open_saying(&*bus, &world, opening).await?;
        ensure!(near.writer.0.write(Bytes::from_static(b"more")).await.is_err(), "written after the end");
        drop(near.writer);
        ensure!(
            far.reader.0.has_ended() == first.is_empty(),
            "the end is known when all was read, and not before"
        );
        if !first.is_empty() {
            let read = patiently(&world, "all that is said", far.reader.0.read()).await??;
            ensure!(read.as_ref() == Some(&first) && far.reader.0.has_ended(), "{read:?}");
        }
        let read = patiently(&world, "the end", read_to_end(&mut far.reader)).await??;
        ensure!(read.is_empty() && !near.reader.0.has_ended(), "{read:?}");
        all_bytes_cross(&world, "back", &mut far, &mut near.reader).await?;
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn answers_of_any_length_come_back_to_openings_of_any_kind(
    bus: Arc<dyn Bus>,
    world: World,
) -> Result<()> {
    for answer in [0, 5, WINDOW as usize, LENGTH].map(|length| content().slice(..length)) {
        let subject = Subject::request(&fresh_name(&world, "answers"));
        let said = answer.clone();
        let handler: StreamHandler = Arc::new(move |_, mut stream| {
            let said = said.clone();
            async move {
                let heard = read_to_end(&mut stream.reader).await;
                let told = match heard.as_deref() {
                    Ok(b"question") => stream.writer.0.write(said).await.is_ok(),
                    _ => return stream.writer.0.reset("no question").await,
                };
                if told {
                    drop(stream.writer.0.finish().await);
                }
            }
            .boxed()
        });
        let _serving = bus.serve_streams(&subject, "answers", handler).await?;
        let context = patient_context(&world);
        let ask = async |first: &'static [u8], rest: Option<&'static [u8]>| {
            let opening = Opening { first: Bytes::from_static(first), is_all: rest.is_none() };
            let opened = bus.open_stream(&subject, &context, WINDOW, opening);
            let mut near = patiently(&world, "a stream", opened).await??;
            if let Some(rest) = rest {
                near.writer.0.write(Bytes::from_static(rest)).await?;
                near.writer.0.finish().await?;
            }
            patiently(&world, "an answer", read_to_end(&mut near.reader)).await
        };
        for (first, rest) in [("question", None), ("quest", Some("ion")), ("", Some("question"))] {
            let read = ask(first.as_bytes(), rest.map(str::as_bytes)).await??;
            ensure!(read == answer, "{} bytes of {}, asked {first:?} {rest:?}", read.len(), answer.len());
        }
        let expected = StreamReset { reason: "no question".to_owned() };
        for (first, rest) in [("word", None), ("", Some("word"))] {
            let refused = ask(first.as_bytes(), rest.map(str::as_bytes)).await?;
            ensure!(refused.as_ref().err() == Some(&expected), "{refused:?}");
        }
    }
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn whoever_serves_hears_that_the_opener_is_gone(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let opening = Opening { first: Bytes::from_static(b"question"), is_all: true };
    let (near, mut far) = line.open_saying(&*bus, &world, opening).await?;
    drop(near);
    patiently(&world, "that nobody reads", far.writer.0.closed()).await
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn more_than_the_window_does_not_go_with_an_opening(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let line = Line::new(&*bus, &world).await?;
    let (context, first) = (patient_context(&world), content().slice(..WINDOW as usize + 1));
    let opened =
        patiently(&world, "a refusal", bus.open_stream(&line.subject, &context, WINDOW, saying(&first)))
            .await?;
    ensure!(matches!(opened, Err(RequestError::TooLarge { .. })), "it went");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_writer_waits_for_credit(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut stalled, mut unread) = line.open(&*bus, &world).await?;
    let accepted = AtomicUsize::new(0);
    let writing = async {
        for piece in content().chunks(1000) {
            stalled.writer.0.write(Bytes::copy_from_slice(piece)).await?;
            accepted.fetch_add(piece.len(), Ordering::SeqCst);
        }
        stalled.writer.0.finish().await
    };
    // Another stream that is carried from end to end meanwhile stands for "a good while".
    let (mut other, mut other_far) = line.open(&*bus, &world).await?;
    let meanwhile = async {
        let (written, read) = tokio::join!(write_all(&mut other), read_to_end(&mut other_far.reader));
        written?;
        read?;
        let under_way = accepted.load(Ordering::SeqCst);
        ensure!(under_way <= WINDOW as usize, "{under_way} bytes were taken without credit");
        read_to_end(&mut unread.reader).await.context("the stalled stream goes on when it is read")
    };
    let (written, read) =
        patiently(&world, "both streams", async { tokio::join!(writing, meanwhile) }).await?;
    written?;
    ensure!(read? == content(), "other bytes");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_slow_reader_stops_only_its_own_stream(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut stalled, _unread) = line.open(&*bus, &world).await?;
    let (mut quick, mut quick_far) = line.open(&*bus, &world).await?;
    let stalling = write_all(&mut stalled);
    let carried = async { tokio::join!(write_all(&mut quick), read_to_end(&mut quick_far.reader)) };
    tokio::select! {
        biased;
        ended = stalling => anyhow::bail!("the stalled stream ended: {ended:?}"),
        carried = patiently(&world, "the quick stream", carried) => {
            let (written, read) = carried?;
            written?;
            ensure!(read? == content(), "other bytes");
        }
    }
    let reply = Subject::notice(&fresh_name(&world, "meanwhile"));
    let mut subscription = bus.subscribe(&reply).await?;
    bus.publish(&reply, Bytes::new()).await?;
    patiently(&world, "a notice beside a stalled stream", subscription.receiver.recv())
        .await?
        .context("a notice")?;
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_reset_reaches_the_other_side_with_its_reason(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, mut far) = line.open(&*bus, &world).await?;
    near.writer.0.write(Bytes::from_static(b"half")).await?;
    near.writer.0.reset("the cluster went away").await;
    let expected = StreamReset { reason: "the cluster went away".to_owned() };
    let read = patiently(&world, "the reset", read_to_end(&mut far.reader)).await?;
    ensure!(read.as_ref().err() == Some(&expected), "{read:?}");
    let written = patiently(&world, "the reset of the way back", write_all(&mut far)).await?;
    ensure!(written.as_ref().err() == Some(&expected), "{written:?}");
    ensure!(near.writer.0.write(Bytes::from_static(b"more")).await.is_err(), "written after a reset");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_dropped_writer_is_not_an_orderly_end(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, mut far) = line.open(&*bus, &world).await?;
    near.writer.0.write(Bytes::from_static(b"half")).await?;
    drop(near);
    let read = patiently(&world, "the end", read_to_end(&mut far.reader)).await?;
    ensure!(read.is_err(), "half a stream looks whole");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn a_dropped_reader_stops_the_writer(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, far) = line.open(&*bus, &world).await?;
    drop(far);
    let written = patiently(&world, "the end", write_all(&mut near)).await?;
    ensure!(written.is_err(), "written to nobody");
    Ok(())
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn an_idle_writer_hears_that_its_reader_is_gone(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, far) = line.open(&*bus, &world).await?;
    let is_closed = near.writer.0.closed().now_or_never().is_some();
    ensure!(!is_closed, "its reader is there");
    drop(far);
    patiently(&world, "that nobody reads", near.writer.0.closed()).await
}

#[allow(missing_docs, reason = "the name is the law")]
pub async fn each_direction_ends_by_itself(bus: Arc<dyn Bus>, world: World) -> Result<()> {
    let mut line = Line::new(&*bus, &world).await?;
    let (mut near, mut far) = line.open(&*bus, &world).await?;
    near.writer.0.finish().await?;
    ensure!(near.writer.0.write(Bytes::from_static(b"more")).await.is_err(), "written after the end");
    ensure!(
        patiently(&world, "the end", read_to_end(&mut far.reader)).await??.is_empty(),
        "bytes from nowhere"
    );
    far.writer.0.write(Bytes::from_static(b"answer")).await?;
    far.writer.0.finish().await?;
    drop(far);
    let read = patiently(&world, "the answer", read_to_end(&mut near.reader)).await??;
    ensure!(read == b"answer"[..], "{read:?}");
    Ok(())
}
