//! The debugger's tool, on what a real installation wrote.

use std::fs::File;
use std::path::Path;
use std::process::Output;

use anyhow::{Result, ensure};
use events::{AggregateRef, CommitId, EventId, NewEvent, Timestamp};
use serde_json::Value;
use store::NewCommit;
use store::slice::SliceReader;
use testkit::eventually;
use world::World;

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};
use crate::terminal::Terminal;

impl Scene {
    /// A command of the tool that asks no server.
    fn log(&self, arguments: &[&str]) -> Output {
        self.kasbah.cli_command().unwrap().arg("log").args(arguments).output().unwrap()
    }

    fn slice(&self, name: &str, more: &[&str]) -> String {
        let file = self.kasbah.data().join(name).display().to_string();
        let from = self.kasbah.data().display().to_string();
        let exported = self.log(&[&["export", &file, "--from", &from], more].concat());
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        file
    }

    /// Pushes, and people who want something: every service decides, most of them more than once.
    async fn story(&self) -> Result<()> {
        self.write_config_map("one", "1");
        self.write_config_map("two", "2");
        let first = self.tree.commit_and_push("two config maps")?;
        self.synced(&first).await;
        let source = format!("{AGENT}/shop");
        self.kasbah.cli(["source", "suspend", &source, "--reason", "freeze"])?;
        self.kasbah.cli(["source", "resume", &source])?;
        self.tree.write("manifests/bad.yaml", "kind: [\n")?;
        let bad = self.tree.commit_and_push("bad")?;
        self.source_becomes("rejected", |source| source["rejected"]["commit"] == bad.as_str()).await;
        self.tree.remove("manifests/bad.yaml")?;
        self.tree.remove("manifests/two.yaml")?;
        let path = format!(".kasbah/agents/{AGENT}/config.yaml");
        self.tree.write(&path, "sources: 7\n")?;
        let pruned = self.tree.commit_and_push("remove two, and break the configuration")?;
        self.synced(&pruned).await;
        self.tree.write(&path, Self::configuration(&self.namespace, ""))?;
        self.tree.commit_and_push("mend the configuration")?;
        self.kasbah.cli(["source", "sync", &source])?;
        self.kasbah.cli(["group", "create", "platform"])?;
        let issued = self.kasbah.json(["token", "issue", "--agent", AGENT, "--name", "ci"])?;
        let token = issued.pointer("/view/id").or(issued.pointer("/id")).and_then(Value::as_str);
        self.kasbah.cli(["token", "revoke", token.unwrap_or_default()])?;
        Ok(())
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_of_an_installation_comes_out_the_same_when_it_is_made_again() {
    let mut scene = Scene::start().await;
    scene.story().await.unwrap();
    scene.kasbah.stop_server().unwrap();
    let slice = scene.slice("whole.slice", &[]);
    let redecided = scene.log(&["replay", &slice, "--redecide", "-o", "json"]);
    let made = json(&redecided);
    assert!(redecided.status.success(), "{made:#}");
    for (model, at_least) in
        [("authz-directory", 12), ("config-fetcher", 2), ("repo-poller", 4), ("delivery", 8)]
    {
        let counts = &made["models"][model];
        assert!(counts["same"].as_u64().unwrap() >= at_least, "{model}: {made:#}");
        for other in ["differing", "without_inputs", "not_here", "unreadable"] {
            assert_eq!(counts[other], 0, "{model} {other}: {made:#}");
        }
    }

    // Without the installation's own organization, what was decided on it is not there: said, not guessed.
    let part = scene.slice("part.slice", &["--organization", "system"]);
    let redecided = json(&scene.log(&["replay", &part, "--redecide", "-o", "json"]));
    assert_eq!(redecided["models"]["delivery"]["same"], 0);

    // Each commit is shown with what it changed, up to a position and no further.
    let steps = scene.log(&["replay", &slice, "-o", "json"]);
    let steps: Vec<Value> = String::from_utf8(steps.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let suspended = steps.iter().position(|step| step["events"][0] == "kasbah.source.suspended").unwrap();
    let change = steps[suspended]["changes"]["delivery"].as_str().unwrap();
    assert!(change.contains("-suspended: null\n") && change.contains("+suspended: freeze\n"), "{change}");
    let until = steps[suspended]["position"].as_str().unwrap();
    let shorter = scene.log(&["replay", &slice, "--until", until]);
    let said = String::from_utf8(shorter.stdout).unwrap();
    assert!(said.contains("source.suspended") && !said.contains("source.resumed"), "{said}");
    let stepped = scene.log(&["replay", &slice, "--step"]);
    assert_eq!(stepped.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stepped.stderr).contains("--step: needs an interactive terminal"));

    let from = scene.kasbah.data().display().to_string();
    let names = json(&scene.log(&[
        "ls",
        "--kind",
        "name",
        "--from",
        &from,
        "--organization",
        "system",
        "-o",
        "json",
    ]));
    assert_eq!(names["aggregates"].as_array().unwrap().len(), 1, "the organization's: {names:#}");

    let verified = scene.log(&["verify", "--from", &scene.kasbah.data().display().to_string(), "-o", "json"]);
    assert_eq!(json(&verified)["ok"], true);
}

/// Records what was never decided: what a commit was decided on, with a word of its event changed.
async fn forge(folder: &Path, slice: &str, event: &str, [word, other]: [&str; 2]) {
    let mut reader = SliceReader::open(File::open(slice).unwrap()).unwrap();
    let place = |data: &[u8]| data.windows(word.len()).position(|part| part == word.as_bytes());
    let (commit, at) = loop {
        let record = reader.next_record().unwrap().expect("the event is in the slice");
        let commit = record.commit().filter(|commit| commit.events[0].body.event_type == event);
        if let Some((commit, at)) =
            commit.and_then(|commit| Some((commit, place(&commit.events[0].body.data)?)))
        {
            break (commit.clone(), at);
        }
    };
    let uuid = || uuid::Uuid::now_v7();
    let mut body = commit.events[0].body.clone();
    body.data[at..at + word.len()].copy_from_slice(other.as_bytes());
    let store = store::embedded::open(&World::real(), folder, store::embedded::Options::default()).unwrap();
    let forged = NewCommit {
        id: CommitId(uuid()),
        organization: commit.organization,
        aggregate: AggregateRef { id: uuid().to_string(), ..commit.aggregate },
        expected: 0,
        actor: commit.actor,
        correlation_id: commit.correlation_id,
        causation_id: None,
        traceparent: None,
        occurred_at: commit.occurred_at,
        command: commit.command,
        grounds: commit.grounds,
        events: vec![NewEvent { id: EventId(uuid()), body }],
    };
    store.log.append(forged).await.unwrap();
    store.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_would_be_another_today_is_told_with_both() {
    let mut scene = Scene::start().await;
    scene.kasbah.cli(["group", "create", "platform"]).unwrap();
    scene.kasbah.stop_server().unwrap();
    let whole = scene.slice("whole.slice", &[]);
    forge(&scene.kasbah.data(), &whole, "kasbah.group.created", ["platform", "platfarm"]).await;
    let forged = scene.slice("forged.slice", &[]);
    let redecided = scene.log(&["replay", &forged, "--redecide", "-o", "json"]);
    assert_eq!(redecided.status.code(), Some(1));
    let told = json(&redecided);
    let differing = told["differing"].as_array().unwrap();
    assert_eq!(differing.len(), 1, "{told:#}");
    assert_eq!(differing[0]["model"], "authz-directory");
    assert!(differing[0]["recorded"].to_string().contains("platfarm"), "{told:#}");
    assert!(differing[0]["made"].to_string().contains("platform"), "{told:#}");
    let redecided = scene.log(&["replay", &forged, "--redecide"]);
    let (said, failed) = (String::from_utf8(redecided.stdout).unwrap(), redecided.stderr);
    assert!(
        said.contains("1 DIFFERENT") && said.contains("--- recorded") && said.contains("platfarm"),
        "{said}"
    );
    assert!(String::from_utf8_lossy(&failed).contains("1 decisions would be made differently today"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_is_stepped_through_at_a_terminal() {
    let mut scene = Scene::start().await;
    scene.kasbah.stop_server().unwrap();
    let slice = scene.slice("whole.slice", &[]);
    let program = testkit::program("kasbah").unwrap();
    let command = pty_process::Command::new(program).args(["log", "replay", &slice, "--step"]);
    let mut terminal = Terminal::start(command);
    let steps = |screen: &str| screen.matches("  version ").count();
    terminal.becomes("first commit", |screen| steps(screen) == 1).await;
    terminal.types("\r").await;
    terminal.becomes("second commit", |screen| steps(screen) == 2).await;
    terminal.types("q\r").await;
    assert!(terminal.ends().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_of_a_time_holds_what_was_recorded_in_it() {
    let mut scene = Scene::start().await;
    scene.kasbah.cli(["group", "create", "before"]).unwrap();
    let clock = World::real().clock;
    let since = Timestamp(clock.now_millis() + 1);
    while clock.now_millis() <= since.0 {
        tokio::task::yield_now().await;
    }
    let since = since.to_string();
    scene.kasbah.cli(["group", "create", "after"]).unwrap();
    scene.kasbah.stop_server().unwrap();
    let groups = |slice: &str| {
        let said = String::from_utf8(scene.log(&["replay", slice, "-o", "json"]).stdout).unwrap();
        let steps = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        steps.filter(|step| step["events"][0] == "kasbah.group.created").count()
    };
    let (whole, later) = (scene.slice("whole.slice", &[]), scene.slice("later.slice", &["--since", &since]));
    let earlier = scene.slice("earlier.slice", &["--until", &since]);
    let [whole, later, earlier] = [whole, later, earlier].map(|slice| groups(&slice));
    assert_eq!((later, earlier), (1, whole - 1));
}

/// The chain is found by the commit, by an event of it, and as the newest of the source; people read names beside ids.
fn assert_found(scene: &Scene, commit: &str, desired: &Value, source: &str, traced: String) {
    let event = desired["id"].as_str().unwrap();
    for what in [&commit[..10], event, &format!("{AGENT}/shop")] {
        let traced = scene.kasbah.json(["log", "trace", what]).unwrap();
        assert_eq!(traced["correlationid"], desired["correlationid"], "{what}");
    }
    let named = format!("{source} {AGENT}/shop");
    for shown in [
        traced,
        scene.kasbah.cli(["log", "show", &format!("{AGENT}/shop"), "--since", "10m"]).unwrap(),
        scene.kasbah.cli(["log", "tail", "--since", "10m"]).unwrap(),
    ] {
        assert!(shown.contains(&named), "{named} is not in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_goes_from_the_push_to_the_health_of_the_object() {
    let scene = Scene::start().await;
    scene.write_config_map("one", "1");
    let commit = scene.tree.commit_and_push("one").unwrap();
    scene.synced(&commit).await;
    let heads = scene.kasbah.json(["log", "ls", "--kind", "source"]).unwrap();
    let source = heads["aggregates"][0]["aggregate"].as_str().unwrap().to_owned();
    assert_eq!(heads["aggregates"].as_array().unwrap().len(), 1);
    let none = scene.kasbah.json(["log", "ls", "--until", "2001-01-01T00:00:00Z"]).unwrap();
    assert_eq!(none["aggregates"].as_array().unwrap().len(), 0);
    let history = scene.kasbah.json(["log", "show", &source]).unwrap();
    let events = history["events"].as_array().unwrap();
    let desired = events.iter().find(|event| event["data"]["commit"] == commit.as_str()).unwrap();
    let chain = desired["correlationid"].as_str().unwrap().to_owned();
    let traced = eventually(LIMIT, || async {
        let traced = scene.kasbah.json(["log", "trace", &chain])?;
        let types: Vec<&str> = traced["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        for wanted in [
            "kasbah.source.advanced",
            "kasbah.bundle.desired",
            "kasbah.sync.started",
            "kasbah.sync.finished",
            "kasbah.observed.sync-started",
            "kasbah.observed.object-applied",
            "kasbah.observed.sync-finished",
        ] {
            ensure!(types.contains(&wanted), "{wanted} is not in {types:?}");
        }
        scene.kasbah.cli(["log", "trace", &chain])
    })
    .await;
    // Each below the one before: an agent that is quick has synced the source without a bundle by then, in the same chain.
    let mut lines = traced.lines();
    let mut depth = |event: &str| {
        let line = lines.find(|line| line.contains(event)).unwrap_or_else(|| panic!("{traced}"));
        line.chars().position(|letter| letter == '─')
    };
    let chain = ["source.advanced", "bundle.desired", "observed.sync-started", "observed.object-applied"];
    let depths: Vec<Option<usize>> = chain.into_iter().map(&mut depth).collect();
    assert!(depths.is_sorted_by(|above, below| above < below), "{depths:?}\n{traced}");
    assert_found(&scene, &commit, desired, &source, traced);
    let long_ago = scene.kasbah.json(["log", "show", &source, "--since", "2100-01-01T00:00:00Z"]).unwrap();
    assert_eq!(long_ago["events"].as_array().unwrap().len(), 0);
    let project = scene.kasbah.json(["project", "show", PROJECT]).unwrap();
    let unknown = scene.kasbah.cli(["log", "trace", project["id"].as_str().unwrap()]).unwrap_err();
    assert!(unknown.to_string().contains("not found"), "{unknown:#}");
}
