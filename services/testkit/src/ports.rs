//! Ports that nobody else takes between asking and binding.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

/// Below the range from which the kernel takes ports for outgoing connections.
const RANGE: std::ops::Range<u16> = 12_000..31_000;

static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A free TCP port on loopback, kept for this process until it ends.
///
/// The port is in no other testkit process' hands (a lock file says so) and never one that the kernel gives to an
/// outgoing connection, so it is still free when a program that was started later binds it.
pub fn free_port() -> Result<u16> {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("kasbah-testkit-ports-{user}"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let span = RANGE.end - RANGE.start;
    let start = u16::try_from(RandomState::new().hash_one(std::process::id()) % u64::from(span)).unwrap_or(0);
    for step in 0..span {
        let port = RANGE.start + (start + step) % span;
        let lock = File::create(folder.join(port.to_string())).context("cannot create a port's lock")?;
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            HELD.lock().push(lock);
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", RANGE.start, RANGE.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }
}
