//! Connections that send bytes as they are, whatever any protocol says of them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::scene::LIMIT;

/// RFC 9113, section 3.4, with empty settings behind it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Names and values.
pub type Headers<'a> = &'a [(&'a [u8], &'a [u8])];

/// One TLS connection.
pub struct Wire(StreamOwned<ClientConnection, TcpStream>);

/// What became of an HTTP/2 request.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// The first byte of the answer's head: the status, by the static table of RFC 7541, appendix A.
    Answered(u8),
    /// The stream, or the connection, was ended without one.
    Ended,
}

impl Fate {
    pub fn is_success(&self) -> bool {
        // 200, 204 and 206.
        matches!(self, Self::Answered(0x88..=0x8a))
    }
}

impl Wire {
    /// Dials `address`, and offers one protocol.
    pub fn dial(address: &str, authority: &[u8], protocol: &[u8]) -> Self {
        let mut tls = testkit::tls_trusting(authority).unwrap();
        tls.alpn_protocols = vec![protocol.to_vec()];
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(tls), name).unwrap();
        Self(StreamOwned::new(connection, socket))
    }

    /// Whether they could be sent.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).is_ok()
    }

    /// Everything until the other side ends the connection.
    pub fn read_to_the_end(&mut self) -> String {
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => all.extend_from_slice(&piece[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("it is not ended after {:?}", String::from_utf8_lossy(&all))
                }
                // Ended without a word: who is refused is told nothing of TLS.
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Sends one HTTP/2 request with these headers as they are, and this body.
    pub fn ask_over_http2(&mut self, headers: Headers<'_>, body: Option<&[u8]>) -> Fate {
        let mut bytes = PREFACE.to_vec();
        let ends = if body.is_none() { END_STREAM } else { 0 };
        frame(&mut bytes, HEADERS, END_HEADERS | ends, &head(headers));
        if let Some(body) = body {
            frame(&mut bytes, DATA, END_STREAM, body);
        }
        self.send(&bytes);
        loop {
            let mut start = [0; 9];
            if self.0.read_exact(&mut start).is_err() {
                return Fate::Ended;
            }
            let [a, b, c, kind, _, stream @ ..] = start;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            if self.0.read_exact(&mut payload).is_err() {
                return Fate::Ended;
            }
            match (kind, u32::from_be_bytes(stream)) {
                (HEADERS, 1) => return Fate::Answered(payload[0]),
                (RST_STREAM, 1) | (GOAWAY, 0) => return Fate::Ended,
                _ => {}
            }
        }
    }
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
    bytes.extend_from_slice(payload);
}

/// Each as a literal that is not indexed, with a new name (RFC 7541, section 6.2.2).
fn head(headers: Headers<'_>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in headers {
        encoded.push(0);
        for text in [name, value] {
            length(&mut encoded, text.len());
            encoded.extend_from_slice(text);
        }
    }
    encoded
}

/// RFC 7541, section 5.1, in seven bits.
fn length(encoded: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        encoded.push(u8::try_from(length).unwrap());
        return;
    };
    encoded.push(127);
    while rest >= 128 {
        encoded.push(u8::try_from(rest % 128 + 128).unwrap());
        rest /= 128;
    }
    encoded.push(u8::try_from(rest).unwrap());
}
