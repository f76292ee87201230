//! What goes through the channels of a WebSocket: the first byte of each message says which.
//!
//! Sources: RFC 6455, section 5; Kubernetes' subprotocols `channel.k8s.io` to `v5.channel.k8s.io` and `base64.channel.k8s.io`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use events::recording::SessionChannel;

use super::channels::{ChannelData, PerSide, Side, Unreadable};

/// Largest frame of a session that is text, in bytes: it is taken whole.
const MAXIMUM_TEXT: usize = 1024 * 1024;
const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// Kinds of frames: text and bytes; the end, and the two that show that somebody is there.
const MESSAGES: [u8; 2] = [1, 2];
const CONTROLS: [u8; 3] = [8, 9, 10];
/// Largest frame: the API server takes none that is larger.
const MAXIMUM_FRAME: u64 = 32 * 1024 * 1024;

/// Reads both directions.
pub(super) struct WebSocket {
    is_base64: bool,
    frames: PerSide<Frames>,
}

/// What is being read of one direction.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    frame: Option<Frame>,
}

/// A frame whose head was read.
struct Frame {
    is_control: bool,
    mask: [u8; 4],
    at: usize,
    left: u64,
    channel: Option<Option<SessionChannel>>,
    text: Vec<u8>,
}

impl WebSocket {
    pub(super) fn new(is_base64: bool) -> Self {
        Self { is_base64, frames: PerSide::default() }
    }

    pub(super) fn read(
        &mut self,
        side: Side,
        mut bytes: &[u8],
        heard: &mut Vec<ChannelData>,
    ) -> Result<(), Unreadable> {
        let frames = self.frames.of(side);
        while let Some((first, rest)) = bytes.split_first() {
            let Some(frame) = &mut frames.frame else {
                frames.head.push(*first);
                bytes = rest;
                if let Some(frame) = Frame::begun(&frames.head)? {
                    frames.head.clear();
                    frames.frame = Some(frame).filter(|frame| frame.left > 0);
                }
                continue;
            };
            let most = usize::try_from(frame.left).unwrap_or(usize::MAX);
            let (data, rest) = bytes.split_at(bytes.len().min(most));
            bytes = rest;
            frame.left -= data.len() as u64;
            frame.take(data, self.is_base64, heard)?;
            if frame.left == 0 {
                frames.frame = None;
            }
        }
        Ok(())
    }
}

impl Frame {
    /// The frame of a head, once that is whole.
    fn begun(head: &[u8]) -> Result<Option<Self>, Unreadable> {
        let [first, second, rest @ ..] = head else { return Ok(None) };
        let kind = first & 0x0f;
        let is_control = CONTROLS.contains(&kind);
        // The API server takes each frame for a message of its own, whatever kind it says that it is: what is no whole message here could
        // name another channel there than it seems to.
        if first & RESERVED != 0 || first & FIN == 0 || !(is_control || MESSAGES.contains(&kind)) {
            return Err(Unreadable("messages come in several frames, or with extensions"));
        }
        let (is_masked, short) = (second & MASKED != 0, second & !MASKED);
        let (length, behind) = match short {
            126 => {
                let Some((length, behind)) = rest.split_first_chunk::<2>() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*length)), behind)
            }
            127 => {
                let Some((length, behind)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                (u64::from_be_bytes(*length), behind)
            }
            short => (u64::from(short), rest),
        };
        if length > MAXIMUM_FRAME {
            return Err(Unreadable("a frame is too large"));
        }
        let mask = match (is_masked, behind.first_chunk::<4>()) {
            (false, _) => [0; 4],
            (true, Some(mask)) => *mask,
            (true, None) => return Ok(None),
        };
        Ok(Some(Self { is_control, mask, at: 0, left: length, channel: None, text: Vec::new() }))
    }

    fn take(&mut self, data: &[u8], is_base64: bool, heard: &mut Vec<ChannelData>) -> Result<(), Unreadable> {
        if self.is_control {
            return Ok(());
        }
        let masks = self.mask.into_iter().cycle().skip(self.at % self.mask.len());
        let mut clear: Vec<u8> = data.iter().zip(masks).map(|(byte, mask)| byte ^ mask).collect();
        self.at += data.len();
        let channel = match self.channel {
            Some(channel) => channel,
            None => {
                let number = clear.remove(0);
                *self.channel.insert(channel_of(if is_base64 { number.wrapping_sub(b'0') } else { number }))
            }
        };
        let Some(channel) = channel else { return Ok(()) };
        if is_base64 {
            self.text.append(&mut clear);
            if self.text.len() > MAXIMUM_TEXT {
                return Err(Unreadable("a message is too large"));
            }
            if self.left > 0 {
                return Ok(());
            }
            clear = STANDARD.decode(&self.text).map_err(|_| Unreadable("a message is not base64"))?;
        }
        if !clear.is_empty() {
            heard.push(ChannelData { channel, bytes: Bytes::from(clear) });
        }
        Ok(())
    }
}

const fn channel_of(number: u8) -> Option<SessionChannel> {
    match number {
        0 => Some(SessionChannel::Input),
        1 => Some(SessionChannel::Output),
        2 => Some(SessionChannel::ErrorOutput),
        3 => Some(SessionChannel::Outcome),
        4 => Some(SessionChannel::Resize),
        _ => None,
    }
}
