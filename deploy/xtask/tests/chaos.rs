//! A minute of chaos with a fixed seed. More: `cargo xtask chaos`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use testkit::{Folder, Process};

const LIMIT: Duration = Duration::from_secs(500);

#[test]
fn chaos_of_a_minute_leaves_everything_as_if_nothing_had_happened() {
    let folder = Folder::temporary().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["chaos", "--seconds", "60", "--seed", "1", "--state"]).arg(folder.path());
    let mut chaos = Process::spawn("chaos", command, &folder.path().join("chaos.out")).unwrap();
    let ended = chaos.wait(LIMIT).unwrap();
    let said = std::fs::read_to_string(chaos.log()).unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {said}");
    for kinds in [
        &["services killed"][..],
        &["services frozen"],
        &["agents killed", "agents frozen"],
        &["nats-servers killed", "nats-servers frozen", "nats-servers isolated"],
        &["tunnels cut", "tunnels silent", "tunnels delayed"],
        &["ways to nats cut", "ways to nats silent", "ways to nats delayed"],
    ] {
        assert!(kinds.iter().any(|kind| said.contains(kind)), "no {kinds:?}: {said}");
    }
    println!("{said}");
}
