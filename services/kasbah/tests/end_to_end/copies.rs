//! Copies of a log: of a real installation, to NATS and back, and of one that is killed again and again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use events::directory::{DirectoryEvent, TokenUsed};
use events::position::Stream;
use events::{
    Actor, AggregateKind, AggregateRef, CommitId, CorrelationId, Event, OrganizationId, Timestamp, TokenId,
};
use futures::future::try_join_all;
use serde_json::Value;
use store::embedded::{Options, open};
use store::{NewBatch, NewCommit, Parts};
use testkit::{NatsServer, Process, eventually, program};
use world::World;

use crate::scene::{LIMIT, Scene};

/// The tool, with the master key of the log on NATS.
fn log(key: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("kasbah").unwrap());
    command.env("KASBAH_MASTER_KEY_FILE", key).arg("log").args(arguments).args(["-o", "json"]);
    command
}

fn json(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command says that must not succeed.
fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn key(folder: &Path) -> PathBuf {
    let path = folder.join("master.key");
    std::fs::write(&path, [7; 32]).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_moves_to_nats_and_back_and_goes_on() {
    let (mut scene, nats) = (Scene::start().await, NatsServer::start_as_shipped().await.unwrap());
    scene.write_config_map("one", "1");
    let first = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&first).await;
    scene.kasbah.stop_server().unwrap();
    let work = tempfile::tempdir().unwrap();
    let (key, data, back) = (key(work.path()), scene.kasbah.data(), work.path().join("back"));
    let url = nats.shipped_url("kasbah");
    let there = json(log(&key, &["copy", "--from", text(&data), "--to", &url]));
    assert!(there["keys"].as_u64() > Some(2) && there["blobs"].as_u64() > Some(0), "{there:#}");
    let verified = json(log(&key, &["verify", "--from", &url]));
    assert!(verified["streams"][0]["checkpoints"].as_u64() > Some(0), "{verified:#}");
    let again = json(log(&key, &["copy", "--from", &url, "--to", text(&back)]));
    assert_eq!(again["partitions"], there["partitions"], "hashes of the first log");
    assert_eq!(json(log(&key, &["verify", "--from", text(&back)]))["ok"], true);

    // The installation works on NATS for a while, and the copy takes what is new.
    let on_nats = ["--nats", &url, "--master-key-file", text(&key)].map(str::to_owned).to_vec();
    scene.kasbah.start_server_with(on_nats).await.unwrap();
    scene.write_config_map("two", "1");
    let on_nats = scene.tree.commit_and_push("on NATS").unwrap();
    scene.synced(&on_nats).await;
    scene.kasbah.stop_server().unwrap();
    let new = json(log(&key, &["copy", "--from", &url, "--to", text(&back)]));
    assert!(new["written"].as_u64() > Some(0), "{new:#}");
    let other = refused(log(&key, &["copy", "--from", text(&back), "--to", text(&data)]));
    assert!(other.contains("it holds a log, and not a copy of log "), "{other}");

    // It takes the place of the first one, and the same agent goes on with it.
    std::fs::rename(&data, work.path().join("first")).unwrap();
    std::fs::rename(&back, &data).unwrap();
    scene.kasbah.start_server_with(Vec::new()).await.unwrap();
    scene.write_config_map("one", "2");
    let second = scene.tree.commit_and_push("two").unwrap();
    scene.synced(&second).await;
    scene.value_becomes("one", "2").await;
    assert_eq!(scene.kasbah.json(["log", "verify"]).unwrap()["ok"], true);
    scene.kasbah.stop_server().unwrap();
    let behind = refused(log(&key, &["copy", "--from", &url, "--to", text(&data)]));
    assert!(behind.contains("the original has no such record"), "{behind}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_was_changed_makes_no_log() {
    let work = tempfile::tempdir().unwrap();
    let (key, from) = (key(work.path()), work.path().join("from"));
    filled(&from, 40, 0).await;
    let (slice, to) = (work.path().join("slice"), work.path().join("to"));
    json(log(&key, &["export", text(&slice), "--from", text(&from)]));
    let whole = std::fs::read(&slice).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&slice, changed).unwrap();
    let said = refused(log(&key, &["import", text(&slice), "--to", text(&to)]));
    assert!(said.contains("the slice is damaged in the piece at byte"), "{said}");
    assert!(!to.exists(), "nothing was made");
    std::fs::write(&slice, whole).unwrap();
    let imported = json(log(&key, &["import", text(&slice), "--to", text(&to)]));
    assert_eq!(imported["written"], 40);
    assert_eq!(json(log(&key, &["verify", "--from", text(&to)]))["streams"][0]["records"], 40);
    let nats = NatsServer::start_as_shipped().await.unwrap();
    let url = nats.shipped_url("kasbah");
    assert_eq!(json(log(&key, &["import", text(&slice), "--to", &url]))["written"], 40);
    let said = refused(log(&key, &["import", text(&slice), "--to", text(&from)]));
    assert!(said.contains("it holds a log, and not a copy of slice "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_holds_what_was_selected_and_no_more_of_files_as_of_nats() {
    let (work, nats) = (tempfile::tempdir().unwrap(), NatsServer::start_as_shipped().await.unwrap());
    let (key, folder, url) = (key(work.path()), work.path().join("from"), nats.shipped_url("kasbah"));
    filled(&folder, 80, 0).await;
    json(log(&key, &["copy", "--from", text(&folder), "--to", &url]));
    for from in [text(&folder), &url] {
        let slice = work.path().join("slice");
        let exported = |selection: &[&str]| {
            let _absent_at_first = std::fs::remove_file(&slice);
            let arguments = [&["export", text(&slice), "--from", from], selection].concat();
            let records = json(log(&key, &arguments))["records"].clone();
            records.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>()
        };
        let first = uuid::Uuid::from_u128(1).to_string();
        assert_eq!(exported(&["--aggregate", "agent/two"]), 0, "{from}");
        assert_eq!(exported(&["--organization", &first, "--aggregate", "agent/one"]), 10, "{from}");
        assert_eq!(exported(&["--aggregate", "agent/two", "--aggregate", "agent/one"]), 80, "{from}");
        let steps = log(&key, &["replay", text(&slice)]).output().unwrap().stdout;
        let steps = String::from_utf8(steps).unwrap();
        let positions = steps.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let positions: Vec<String> =
            positions.map(|step| step["position"].as_str().unwrap().to_owned()).collect();
        let partition = |position: &str| position.split('-').next().unwrap().to_owned();
        let same: Vec<&String> =
            positions.iter().filter(|position| partition(position) == partition(&positions[0])).collect();
        assert!(same.len() >= 10, "all of an organization are in one partition: {same:?}");
        assert_eq!(exported(&["--up-to", same[3]]), 4, "{from}");
        assert_eq!(exported(&["--after", same[3], "--up-to", same[9]]), 6, "{from}");
        assert_eq!(exported(&["--after", same[3]]), 76, "{from}");
    }
}

const ORGANIZATIONS: u128 = 8;

/// A log with so many commits, and observations of 100 KiB.
async fn filled(folder: &Path, commits: u64, observations: u64) {
    let world = World::real();
    let store = open(&world, folder, Options::default()).unwrap();
    let parts = store.parts();
    let each = commits / u64::try_from(ORGANIZATIONS).unwrap();
    try_join_all((0..ORGANIZATIONS).map(|organization| append(&world, &parts, organization, each)))
        .await
        .unwrap();
    let observed = (0..observations).map(|number| {
        let (stream, organization) = (Stream::Observations, OrganizationId(uuid::Uuid::from_u128(1)));
        let (writer, data) = (format!("agent-{}", number % 20), vec![7; 100 * 1024]);
        parts.log.append_batch(NewBatch { stream, organization, writer, data })
    });
    try_join_all(observed).await.unwrap();
    store.close();
}

async fn append(world: &World, parts: &Parts, organization: u128, commits: u64) -> anyhow::Result<()> {
    for expected in 0..commits {
        let used = TokenUsed { token: TokenId(uuid::Uuid::from_u128(7)), at: Timestamp(1) };
        let commit = NewCommit {
            id: CommitId(world.new_uuid()),
            organization: OrganizationId(uuid::Uuid::from_u128(organization + 1)),
            aggregate: AggregateRef::new(AggregateKind::Agent, "one"),
            expected,
            actor: Actor::service("test"),
            correlation_id: CorrelationId(world.new_uuid()),
            causation_id: None,
            traceparent: None,
            occurred_at: Timestamp(5),
            command: None,
            grounds: None,
            events: store::new_events(world, [Event::from(DirectoryEvent::TokenUsed(used))])?,
        };
        parts.log.append(commit).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_killed_again_and_again_comes_to_its_end_both_ways() {
    let (work, nats) = (tempfile::tempdir().unwrap(), NatsServer::start_as_shipped().await.unwrap());
    let (key, from, back) = (key(work.path()), work.path().join("from"), work.path().join("back"));
    filled(&from, 2000, 300).await;
    let url = nats.shipped_url("kasbah");
    let start = |from: &str, to: &str| {
        let output = work.path().join("copy.log");
        Process::spawn("kasbah log copy", log(&key, &["copy", "--from", from, "--to", to]), &output).unwrap()
    };
    let mut kills = 0;
    for time in 1.. {
        let mut copying = start(text(&from), &url);
        if let Some(ended) = copying.wait(Duration::from_millis(700 * time)).unwrap() {
            assert!(ended.success(), "{}", copying.log_tail(5));
            break;
        }
        copying.kill();
        kills += 1;
    }
    assert!(kills > 0, "it was never killed");
    let there = json(log(&key, &["copy", "--from", text(&from), "--to", &url]));
    assert_eq!(there["written"], 0, "everything is there");
    let streams = json(log(&key, &["verify", "--from", &url]));
    assert_eq!(
        (&streams["streams"][0]["records"], &streams["streams"][1]["records"]),
        (&2000.into(), &300.into())
    );

    let segment = back.join("log/observations/0000000001.seg");
    let mut copying = start(&url, text(&back));
    eventually(LIMIT, || async {
        let length = std::fs::metadata(&segment).context("not begun")?.len();
        ensure!(length > 4 * 1024 * 1024, "{length} bytes");
        anyhow::Ok(())
    })
    .await;
    copying.kill();
    let unfinished = refused(log(&key, &["verify", "--from", text(&back)]));
    assert!(unfinished.contains("unfinished copy"), "{unfinished}");
    let rest = json(log(&key, &["copy", "--from", &url, "--to", text(&back)]));
    assert!(
        rest["written"].as_u64() > Some(0) && rest["written"].as_u64() < Some(300),
        "{}",
        rest["written"]
    );
    assert_eq!(rest["partitions"], there["partitions"]);
    assert_eq!(json(log(&key, &["verify", "--from", text(&back)]))["ok"], true);
}
