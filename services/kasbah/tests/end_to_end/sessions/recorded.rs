//! Sessions whose contents are recorded: kept as they were, and nothing else is different.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Ground, There};
use crate::pods::BUSYBOX;
use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

const SAID: &[u8] = b"three secret words\n";

/// The agent's configuration has sessions recorded; one that is open and is not, ends with that.
pub(super) async fn sessions_are_recorded(ground: &Ground) {
    let before = There { person: &ground.people[0], namespace: &ground.scene.namespace };
    let open = before.in_namespace(&["exec", "-i", "web", "--", "cat"]);
    let mut command = before.person.kubectl_command(&open);
    let mut open = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Whoever says nothing more is still there.
    let (mut saying, mut hearing) = (open.stdin.take().unwrap(), open.stdout.take().unwrap());
    saying.write_all(b"x").await.unwrap();
    let heard = tokio::time::timeout(LIMIT, hearing.read_u8()).await.expect("it opens").unwrap();
    assert_eq!(heard, b'x');
    let grants = format!(
        "record_sessions: all\nuser_access:\n  access_as: {{user: {{}}}}\n  projects:\n    - id: {PROJECT}\n"
    );
    let configuration = Scene::configuration(&ground.scene.namespace, &grants);
    let file = format!(".kasbah/agents/{AGENT}/config.yaml");
    ground.scene.tree.write(&file, configuration).unwrap();
    ground.scene.tree.commit_and_push("record sessions").unwrap();
    let ended = tokio::time::timeout(LIMIT, open.wait()).await.expect("it ends with the change").unwrap();
    assert!(!ended.success());
    assert_eq!(recorded(ground).await, BTreeSet::new(), "nothing was, so far");

    for person in &ground.people {
        let there = There { person, namespace: &ground.scene.namespace };
        for spdy in [false, true] {
            a_command_is_recorded(ground, &there, spdy).await;
        }
        an_attached_container_is_recorded(ground, &there).await;
        let sizes = newly_recorded(ground, there.follows_a_terminal()).await;
        let cast = shown(ground, &sizes, &["--asciicast"]).await;
        let cast: Vec<Value> = cast.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&cast[0]["version"], &cast[0]["width"]), (&2.into(), &80.into()));
        let resized: Vec<_> = cast.iter().filter(|line| line[1] == "r").map(|line| &line[2]).collect();
        assert!(
            resized.starts_with(&[&"97x31".into()]) && resized.ends_with(&[&"120x40".into()]),
            "{resized:?}"
        );
    }
    let there = There { person: &ground.people[0], namespace: &ground.scene.namespace };
    there.copies(20).await;
    there.forwards_a_port(false).await;
    what_is_not_there_is_said(ground).await;
}

/// All of it is kept, in the channel in which it went.
async fn a_command_is_recorded(ground: &Ground, there: &There<'_>, spdy: bool) {
    let command = "cat; echo not well >&2; exit 7";
    let running = async {
        let (said, code) = there.exec(command, SAID, spdy).await;
        assert_eq!((said.as_slice(), code), (SAID, Some(7)), "spdy {spdy}");
    };
    let session = newly_recorded(ground, running).await;
    let output = shown(ground, &session, &[]).await;
    assert!(output.contains("three secret words\n") && output.contains("not well\n"), "{output}");
    assert_eq!(shown(ground, &session, &["--input"]).await.as_bytes(), SAID);
    let lines = shown(ground, &session, &["-o", "json"]).await;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last(), Some(&serde_json::json!({"line": "end", "is_over": true})));
    let has = |channel: &str| lines.iter().any(|line| line["channel"] == channel);
    assert!(has("error-output") && has("outcome"), "{lines:#?}");
}

async fn an_attached_container_is_recorded(ground: &Ground, there: &There<'_>) {
    let image = format!("--image={BUSYBOX}");
    let run = ["run", "asks", &image, "--image-pull-policy=Never", "--restart=Never", "--rm", "-i", "-q"];
    let answers = ["--command", "--", "sh", "-c", "read word; echo heard $word"];
    let running = async {
        let arguments: Vec<&str> = run.into_iter().chain(answers).collect();
        let mut command = there.person.kubectl_command(&there.in_namespace(&arguments));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"sesame\n").await.unwrap();
        let ended = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && said.contains("heard sesame"), "{said}");
    };
    let session = newly_recorded(ground, running).await;
    assert!(shown(ground, &session, &[]).await.contains("heard sesame\n"));
    assert_eq!(shown(ground, &session, &["--input"]).await, "sesame\n");
}

async fn what_is_not_there_is_said(ground: &Ground) {
    let nobody = "00000000-0000-0000-0000-000000000000";
    let refused = ground.scene.kasbah.cli(["recording", nobody]).unwrap_err();
    assert!(format!("{refused:#}").contains(nobody), "{refused:#}");
    let refused = ground.scene.kasbah.cli(["recording", "web"]).unwrap_err();
    assert!(format!("{refused:#}").contains("session: must be the id of a session"), "{refused:#}");
}

/// The sessions that are over and were recorded.
async fn recorded(ground: &Ground) -> BTreeSet<String> {
    let audit = ground.scene.kasbah.cli(["audit", "-o", "json"]).unwrap();
    let records = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let records =
        records.filter(|record| record["data"]["is_recorded"] == true && record["data"]["phase"] == "ended");
    records.map(|record| record["data"]["id"].as_str().unwrap().to_owned()).collect()
}

/// The one session that was recorded while something ran, once all of it is.
async fn newly_recorded(ground: &Ground, running: impl Future<Output = ()>) -> String {
    let known = recorded(ground).await;
    running.await;
    eventually(LIMIT, || async {
        let now = recorded(ground).await;
        let new: Vec<_> = now.difference(&known).collect();
        ensure!(new.len() == 1, "{new:?}");
        let session = new.first().context("none")?.to_string();
        let lines = ground.scene.kasbah.cli(["recording", &session, "-o", "json"])?;
        ensure!(lines.contains("\"is_over\":true"), "{lines}");
        Ok(session)
    })
    .await
}

async fn shown(ground: &Ground, session: &str, flags: &[&str]) -> String {
    let arguments: Vec<&str> = ["recording", session].into_iter().chain(flags.iter().copied()).collect();
    ground.scene.kasbah.cli(arguments).unwrap()
}
