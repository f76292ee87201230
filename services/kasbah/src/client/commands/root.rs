//! `kasbah root …`.

use events::requests::authz::{RootView, RotateRoot};
use reqwest::Method;

use crate::client::failure::Failure;
use crate::client::print::{Fields, Style};
use crate::client::session::Session;

/// What to do with the root that signs passes.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the root key that signs passes: agents pin it at registration
    Show,
    /// Create a new root key that signs from now on; agents accept it through the former one's signature
    Rotate,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let root: RootView = match command {
        Command::Show => session.api.get(&["root"], &[]).await?,
        Command::Rotate => session.api.send(Method::POST, &["root", "rotation"], &RotateRoot {}).await?,
    };
    session.printer.show(&root, shown)
}

fn shown(root: &RootView, style: Style) -> String {
    Fields::new()
        .with("Number", root.number.to_string())
        .with("Public key", root.public_key.as_str())
        .with("Signs since", root.since.map_or_else(|| "the beginning".to_owned(), |since| since.to_string()))
        .render(style)
}
