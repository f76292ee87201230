//! Health and metrics of a process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result};

/// What the admin listener at `address` answers to a path: status line, headers and body. Asked in HTTP/1.0, so that the body
/// comes in one piece.
///
/// # Errors
/// When it does not answer.
pub fn admin_page(address: &str, path: &str) -> Result<String> {
    let mut socket = TcpStream::connect(address).with_context(|| format!("nobody listens at {address}"))?;
    write!(socket, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}
