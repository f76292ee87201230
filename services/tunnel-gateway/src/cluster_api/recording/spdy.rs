//! What goes through the streams of SPDY/3.1, as kubectl speaks it where it does not speak WebSocket.
//!
//! Sources: draft-mbelshe-httpbis-spdy-00, section 2.2; the header `streamtype` of Kubernetes' remote command protocol.

use std::collections::BTreeMap;

use bytes::Bytes;
use events::recording::SessionChannel;

use super::channels::{ChannelData, PerSide, Side, Unreadable};
use super::spdy_headers::Headers;

const FRAME_HEAD: usize = 8;
/// Largest control frame, in bytes.
const MAXIMUM_CONTROL: usize = 64 * 1024;
/// Most streams of a session: five have a meaning.
const MAXIMUM_STREAMS: usize = 64;
const MAXIMUM_ID: u32 = 0x7fff_ffff;
const CONTROL: u8 = 0x80;
const STREAM_TYPE: &str = "streamtype";

/// Frames without headers that have a length of their own, which servers read whatever the frame says: reset, ping, the end, and a window.
const FIXED: [(u8, usize); 4] = [(3, 8), (6, 4), (7, 8), (9, 8)];
/// Settings: a count, and so many entries.
const SETTINGS: u8 = 4;
const SETTING: usize = 8;
/// The kinds of control frames that carry headers, and how many bytes stand in front of these.
const SYN_STREAM: (u8, usize) = (1, 10);
const SYN_REPLY: (u8, usize) = (2, 4);
const HEADERS: (u8, usize) = (8, 4);

/// Reads both directions.
#[derive(Default)]
pub(super) struct Spdy {
    frames: PerSide<Frames>,
    /// Headers that the client sends; those of the cluster name no stream.
    headers: Headers,
    streams: BTreeMap<u32, Option<SessionChannel>>,
}

/// What is being read of one direction.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    reading: Reading,
}

#[derive(Default)]
enum Reading {
    #[default]
    Head,
    Data {
        stream: u32,
        left: usize,
    },
    Control {
        kind: u8,
        body: Vec<u8>,
        length: usize,
    },
}

impl Spdy {
    pub(super) fn read(
        &mut self,
        side: Side,
        mut bytes: &[u8],
        heard: &mut Vec<ChannelData>,
    ) -> Result<(), Unreadable> {
        while !bytes.is_empty() {
            let frames = self.frames.of(side);
            match &mut frames.reading {
                Reading::Head => {
                    take(&mut bytes, FRAME_HEAD, &mut frames.head);
                    if let Some(head) = frames.head.first_chunk::<FRAME_HEAD>() {
                        frames.reading = begun(*head)?;
                        frames.head.clear();
                    }
                }
                Reading::Data { stream, left } => {
                    let (data, rest) = bytes.split_at(bytes.len().min(*left));
                    bytes = rest;
                    *left -= data.len();
                    if let Some(Some(channel)) = self.streams.get(stream) {
                        heard.push(ChannelData { channel: *channel, bytes: Bytes::copy_from_slice(data) });
                    }
                }
                Reading::Control { body, length, .. } => take(&mut bytes, *length, body),
            }
            self.end_frame(side)?;
        }
        Ok(())
    }

    /// Goes on with the next frame, if this one is whole.
    fn end_frame(&mut self, side: Side) -> Result<(), Unreadable> {
        let frames = self.frames.of(side);
        match &mut frames.reading {
            Reading::Data { left: 0, .. } => frames.reading = Reading::Head,
            Reading::Control { kind, body, length } if body.len() == *length => {
                let (kind, body) = (*kind, std::mem::take(body));
                frames.reading = Reading::Head;
                if side == Side::Client {
                    self.control(kind, &body)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn control(&mut self, kind: u8, body: &[u8]) -> Result<(), Unreadable> {
        let Some((_, before)) =
            [SYN_STREAM, SYN_REPLY, HEADERS].into_iter().find(|(known, _)| *known == kind)
        else {
            return has_its_length(kind, body);
        };
        let (id, block) =
            body.first_chunk::<4>().zip(body.get(before..)).ok_or(Unreadable("a frame is cut off"))?;
        let stream_type = self.headers.value(block, STREAM_TYPE)?;
        if kind == SYN_STREAM.0 {
            if self.streams.len() >= MAXIMUM_STREAMS {
                return Err(Unreadable("too many streams"));
            }
            let id = u32::from_be_bytes(*id);
            let last = self.streams.last_key_value().map_or(0, |(last, _)| *last);
            if id <= last || id > MAXIMUM_ID {
                return Err(Unreadable("a stream is opened twice, or out of order"));
            }
            self.streams.insert(id, stream_type.as_deref().and_then(channel_of));
        }
        Ok(())
    }
}

/// Whether a frame without headers is as long as its kind is.
fn has_its_length(kind: u8, body: &[u8]) -> Result<(), Unreadable> {
    let fixed = FIXED.into_iter().find(|(known, _)| *known == kind).map(|(_, length)| length);
    let counted = body.first_chunk::<4>().filter(|_| kind == SETTINGS).and_then(|count| {
        usize::try_from(u32::from_be_bytes(*count)).ok()?.checked_mul(SETTING)?.checked_add(count.len())
    });
    match fixed.or(counted) {
        Some(length) if length == body.len() => Ok(()),
        _ => Err(Unreadable("a control frame is not as long as its kind is")),
    }
}

fn channel_of(stream_type: &str) -> Option<SessionChannel> {
    match stream_type {
        "stdin" => Some(SessionChannel::Input),
        "stdout" => Some(SessionChannel::Output),
        "stderr" => Some(SessionChannel::ErrorOutput),
        "error" => Some(SessionChannel::Outcome),
        "resize" => Some(SessionChannel::Resize),
        _ => None,
    }
}

/// Moves bytes until so many are there.
fn take(from: &mut &[u8], wanted: usize, to: &mut Vec<u8>) {
    let (taken, rest) = from.split_at(from.len().min(wanted.saturating_sub(to.len())));
    to.extend_from_slice(taken);
    *from = rest;
}

fn begun(head: [u8; FRAME_HEAD]) -> Result<Reading, Unreadable> {
    let [first, second, third, fourth, _flags, high, middle, low] = head;
    let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).unwrap_or(usize::MAX);
    if first & CONTROL == 0 {
        return Ok(Reading::Data {
            stream: u32::from_be_bytes([first, second, third, fourth]),
            left: length,
        });
    }
    if (first, second, third) != (CONTROL, 3, 0) {
        return Err(Unreadable("this is not SPDY/3.1"));
    }
    if length > MAXIMUM_CONTROL {
        return Err(Unreadable("a control frame is too large"));
    }
    Ok(Reading::Control { kind: fourth, body: Vec::new(), length })
}
