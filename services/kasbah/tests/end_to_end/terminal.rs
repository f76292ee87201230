//! A program at a terminal: what is typed there, and what its screen shows.

use std::num::NonZeroU16;
use std::process::ExitStatus;
use std::sync::Arc;

use anyhow::ensure;
use parking_lot::Mutex;
use pty_process::{Command, OwnedWritePty, Size};
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::scene::LIMIT;

pub const ROWS: NonZeroU16 = NonZeroU16::new(40).unwrap();
pub const COLUMNS: NonZeroU16 = NonZeroU16::new(140).unwrap();

/// Somebody at a terminal, and the program that runs there; it ends with this handle.
pub struct Terminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keys: OwnedWritePty,
    program: Child,
}

impl Terminal {
    pub fn start(command: Command) -> Self {
        let (pty, its_side) = pty_process::open().unwrap();
        pty.resize(Size::new(ROWS.get(), COLUMNS.get())).unwrap();
        let program = command.kill_on_drop(true).spawn(its_side).unwrap();
        let (mut output, keys) = pty.into_split();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        tokio::spawn({
            let screen = screen.clone();
            async move {
                let mut drawn = vec![0; 64 * 1024];
                // Where nobody has the other side any more, reading fails.
                while let Ok(length @ 1..) = output.read(&mut drawn).await {
                    screen.lock().process(&drawn[..length]);
                }
            }
        });
        Self { screen, keys, program }
    }

    pub async fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    /// What stands on the screen.
    pub fn screen(&self) -> String {
        self.screen.lock().screen().contents()
    }

    /// Waits until the screen is as `is` wants it.
    pub async fn becomes(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        eventually(LIMIT, || async {
            let screen = self.screen();
            ensure!(is(&screen), "the screen shows no {what}:\n{screen}");
            Ok(screen)
        })
        .await
    }

    /// Waits until these words stand on the screen.
    pub async fn shows(&self, words: &str) -> String {
        self.becomes(words, |screen| screen.contains(words)).await
    }

    /// Waits until a row begins with these words, after what draws its frame.
    pub async fn shows_row(&self, words: &[&str]) {
        let is_it = |row: &str| {
            let mut has = row.split_whitespace().filter(|word| word.is_ascii());
            words.iter().all(|word| has.next() == Some(word))
        };
        self.becomes(&words.join(" "), |screen| screen.lines().any(is_it)).await;
    }

    /// Waits until the program has ended by itself.
    pub async fn ends(mut self) -> ExitStatus {
        let ended = tokio::time::timeout(LIMIT, self.program.wait()).await;
        ended.unwrap_or_else(|_| panic!("it goes on:\n{}", self.screen())).unwrap()
    }
}
