//! Packet lines: how Git frames what it says over any transport.

use bytes::{Buf, Bytes, BytesMut};

use crate::git::GitError;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// Content.
    Data(Bytes),
    /// The end of a message.
    Flush,
    /// The end of a section.
    Delimiter,
    /// The end of a response.
    ResponseEnd,
}

/// Takes bytes as they come and gives whole frames.
#[derive(Debug, Default)]
pub struct PacketReader {
    buffer: BytesMut,
}

impl PacketReader {
    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether nothing waits for more bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// When the bytes are no packet lines, or the server says what went wrong.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, GitError> {
        let Some(digits) = self.buffer.get(..4) else { return Ok(None) };
        let length =
            std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let packet = match length {
            Some(0) => Packet::Flush,
            Some(1) => Packet::Delimiter,
            Some(2) => Packet::ResponseEnd,
            Some(length) if length >= 4 => {
                if self.buffer.len() < length {
                    return Ok(None);
                }
                let mut frame = self.buffer.split_to(length);
                frame.advance(4);
                if let Some(message) = frame.strip_prefix(b"ERR ") {
                    return Err(server_error(message));
                }
                return Ok(Some(Packet::Data(frame.freeze())));
            }
            _ => return Err(GitError::broken("the server's answer is not Git's protocol")),
        };
        self.buffer.advance(4);
        Ok(Some(packet))
    }
}

/// What the server said went wrong, as far as it is text.
#[must_use]
pub fn server_error(message: &[u8]) -> GitError {
    let text: String =
        String::from_utf8_lossy(message).chars().filter(|letter| !letter.is_control()).take(200).collect();
    if text.contains("not our ref") || text.contains("not found") {
        GitError::not_found(format!("the server reports: {text}"))
    } else {
        GitError::broken(format!("the server reports: {text}"))
    }
}

/// Appends a line with its length.
pub fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
}

/// Appends the end of a section.
pub fn delimiter(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0001");
}

/// Appends the end of a message.
pub fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// A line's text, without its line break.
///
/// # Errors
/// When it is not text.
pub fn text(data: &[u8]) -> Result<&str, GitError> {
    let text = std::str::from_utf8(data).map_err(|_| GitError::broken("the server's answer is not text"))?;
    Ok(text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        line(&mut bytes, "command=fetch");
        delimiter(&mut bytes);
        line(&mut bytes, "done");
        flush(&mut bytes);
        for size in 1..bytes.len() {
            let mut reader = PacketReader::default();
            let mut packets = Vec::new();
            for chunk in bytes.chunks(size) {
                reader.push(chunk);
                while let Some(packet) = reader.next_packet().expect("well formed") {
                    packets.push(packet);
                }
            }
            assert_eq!(
                packets,
                [
                    Packet::Data(Bytes::from_static(b"command=fetch\n")),
                    Packet::Delimiter,
                    Packet::Data(Bytes::from_static(b"done\n")),
                    Packet::Flush,
                ]
            );
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn what_the_server_says_is_told() {
        let mut reader = PacketReader::default();
        let mut bytes = Vec::new();
        line(&mut bytes, "ERR upload-pack: not our ref 1234");
        reader.push(&bytes);
        let error = reader.next_packet().expect_err("an error");
        assert_eq!(error, GitError::not_found("the server reports: upload-pack: not our ref 1234"));
        let mut reader = PacketReader::default();
        reader.push(b"<html>");
        assert!(reader.next_packet().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = PacketReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_packet() {}
        }
    }
}
