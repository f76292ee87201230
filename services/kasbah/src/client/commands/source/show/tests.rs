use events::configuration::{FileFinding, GitReference, SourceConfiguration, SyncPolicies};
use events::requests::delivery::{HeldBundle, KeptObject};
use events::requests::status::{ObjectCounts, Reason};
use events::{AgentId, ObjectIdentity, ProjectId, SourceId, SyncId, Timestamp};
use uuid::Uuid;

use super::*;

const STYLE: Style = Style { colour: false, now: Timestamp(120_000) };

pub fn view() -> SourceView {
    let id = SourceId(Uuid::from_u128(3));
    let configuration = SourceConfiguration {
        id,
        name: "web".into(),
        project: ProjectId(Uuid::from_u128(2)),
        reference: GitReference::Branch("main".into()),
        include: vec!["staging/**/*.yaml".into()],
        exclude: Vec::new(),
        interval_seconds: 30,
        default_namespace: "default".into(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 3,
    };
    SourceView {
        id,
        agent: AgentId(Uuid::from_u128(1)),
        configuration,
        newest_commit: None,
        rejected: None,
        warnings: Vec::new(),
        takes_no_file: false,
        desired_commit: None,
        synced_commit: None,
        synced_at: None,
        held: None,
        suspended: None,
        pinned: None,
        sync: None,
        inventory: 0,
        fetch_failure: None,
        blocked: None,
        wants: 0,
        wanted: Vec::new(),
        kept: 0,
        kept_objects: Vec::new(),
        why: Some("fetching: no commit of its ref was read yet".into()),
        newest_good_commit: None,
        status: standing(State::Unknown, Reason::NoCommit, "fetching: no commit of its ref was read yet"),
    }
}

fn standing(state: State, reason: Reason, message: &str) -> Status {
    let objects = ObjectCounts { owned: 12, ..ObjectCounts::default() };
    let condition = Condition { state, reason, message: message.into(), since: None, retry_at: None };
    Status::of(vec![condition], objects, Vec::new())
}

fn synced() -> SourceView {
    let commit = "4f1a5b10c0ffee00c0ffee00c0ffee00c0ffee00".to_owned();
    SourceView {
        newest_commit: Some(commit.clone()),
        desired_commit: Some(commit.clone()),
        synced_commit: Some(commit),
        synced_at: Some(Timestamp(60_000)),
        inventory: 12,
        newest_good_commit: Some("4f1a5b10c0ffee00c0ffee00c0ffee00c0ffee00".into()),
        status: standing(State::InSync, Reason::InSync, "at commit 4f1a5b10c0"),
        why: None,
        ..view()
    }
}

fn deployment() -> ObjectIdentity {
    ObjectIdentity {
        group: "apps".into(),
        version: "v1".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: "web".into(),
    }
}

fn failed() -> SourceView {
    let identity = deployment();
    let failure = ObjectFailure {
        identity,
        file: "staging/web.yaml".into(),
        line: 14,
        message: "spec.replicas:\nInvalid value".into(),
    };
    let sync = SyncView {
        id: SyncId(Uuid::from_u128(9)),
        commit: "4f1a5b10c0ffee00c0ffee00c0ffee00c0ffee00".into(),
        started_at: Some(Timestamp(50_000)),
        finished_at: Some(Timestamp(60_000)),
        outcome: Some(SyncOutcome::Failed),
        counts: SyncCounts { unchanged: 10, failed: 2, ..SyncCounts::default() },
        failures: vec![failure],
        waiting: None,
        retry_at: Some(Timestamp(150_000)),
    };
    let status = standing(State::OutOfSync, Reason::SyncFailed, "failed: see there");
    SourceView { sync: Some(sync), why: Some("failed: see there".into()), status, ..synced() }
}

#[test]
fn a_source_in_sync() {
    let lines = text(&synced(), &Names::default(), STYLE);
    assert!(lines.contains("State           in sync\n"), "{lines}");
    assert!(lines.contains("Objects         12\n"), "{lines}");
    let synced =
        "Synced commit   4f1a5b10c0ffee00c0ffee00c0ffee00c0ffee00, 1970-01-01T00:01:00.000Z (1m ago)\n";
    assert!(lines.contains(synced), "{lines}");
}

#[test]
fn why_it_is_not_at_the_last_commit_stands_in_one_line() {
    let lines = text(&view(), &Names::default(), STYLE);
    assert!(lines.contains("State           unknown\n"), "{lines}");
    assert!(lines.contains("Why             fetching: no commit of its ref was read yet\n"), "{lines}");
    assert!(lines.contains("Newest commit   -\n"), "{lines}");
}

#[test]
fn a_failure_names_file_line_and_object() {
    let lines = text(&failed(), &Names::default(), STYLE);
    let expected = "\n\
        Sync    of commit 4f1a5b10c0 failed, 1970-01-01T00:01:00.000Z (1m ago)\n\
        Counts  10 unchanged, 2 failed\n\
        Retry   1970-01-01T00:02:30.000Z (in 30s)\n  \
        staging/web.yaml:14 apps/v1 Deployment shop/web: spec.replicas: Invalid value\n  \
        and 1 more\n";
    assert!(lines.ends_with(expected), "{lines}");
}

#[test]
fn rejected_and_held_say_what_and_what_to_do() {
    let finding = FileFinding {
        file: "staging/web.yaml".into(),
        line: 7,
        column: 3,
        field: String::new(),
        message: "mapping values are not allowed here".into(),
    };
    let odd =
        |file: &str| FileFinding { file: file.into(), line: 0, message: "a link".into(), ..finding.clone() };
    let (commit, warnings) = ("0123456789abcdef".into(), vec![odd("staging/b.yaml")]);
    let rejected = RejectedBundle { commit, findings: vec![finding.clone()], more: 2, warnings };
    let warnings = vec![odd("staging/a.yaml")];
    let held = HeldBundle {
        commit: "fedcba9876543210".into(),
        reason: HoldReason::LargePrune { prunes: 30, inventory: 40 },
    };
    let view = SourceView { rejected: Some(rejected), held: Some(held), warnings, ..synced() };
    let lines = text(&view, &Names::default(), STYLE);
    for part in [
        "Rejected  commit 0123456789; the last good one stays\n",
        "  staging/web.yaml:7:3: mapping values are not allowed here\n  and 2 more\n",
        "more\nWarning  staging/b.yaml: a link\n",
        "Warning  staging/a.yaml: a link\nRejected",
        "Held            commit fedcba9876: it would prune 30 of 40 objects; `kasbah source confirm` lets it\n",
    ] {
        assert!(lines.contains(part), "{part}\nnot in\n{lines}");
    }
}

#[test]
fn the_list_says_why_as_well() {
    let text = rows(&[synced(), failed()], &Names::default(), STYLE).render(STYLE, "");
    let lines: Vec<&str> = text.lines().collect();
    let agent = "00000000-0000-0000-0000-000000000001";
    assert_eq!(lines[1], format!("{agent}/web  4f1a5b10c0  1m ago  12       in sync      -"));
    assert_eq!(lines[2], format!("{agent}/web  4f1a5b10c0  1m ago  12       out of sync  failed: see there"));
}

#[test]
fn counts_leave_out_what_is_zero() {
    assert_eq!(counts(&SyncCounts::default()), "none");
    assert_eq!(
        counts(&SyncCounts { created: 1, unhealthy: 2, ..SyncCounts::default() }),
        "1 created, 2 not healthy"
    );
}

#[test]
fn a_long_reason_is_cut_in_the_list_and_whole_in_the_source() {
    let why = format!("failing: ConfigMap shop/web: {}the end", "not so, ".repeat(40));
    let status = standing(State::OutOfSync, Reason::SyncFailed, &why);
    let source = SourceView { why: Some(why.clone()), status, ..view() };
    let listed = rows(std::slice::from_ref(&source), &Names::default(), STYLE).render(STYLE, "");
    let state = listed.lines().nth(1).unwrap().split_once("failing").unwrap().1;
    assert!(state.ends_with('…') && state.chars().count() == LISTED - "failing".len(), "{state}");
    assert!(text(&source, &Names::default(), STYLE).contains(&why));
}

#[test]
fn objects_that_other_sources_hold_are_named_with_their_holder() {
    let wanted = |name: &str| {
        let [group, kind, namespace, name] = ["", "ConfigMap", "shop", name].map(str::to_owned);
        let object = events::object::ObjectKey { group, kind, namespace, name };
        let holder = SourceId(Uuid::from_u128(9));
        events::delivery::WantedObject { object, holder, holder_name: "base".into() }
    };
    let view = SourceView { wants: 3, wanted: vec![wanted("a"), wanted("b")], ..synced() };
    let text = text(&view, &Names::default(), STYLE);
    assert!(
        text.contains(
            "Wanted  3 objects that other sources of the agent hold\n  \
             ConfigMap shop/a: held by source base\n  \
             ConfigMap shop/b: held by source base\n  and 1 more\n"
        ),
        "{text}"
    );
}

#[test]
fn objects_that_were_kept_are_shown_with_the_reason() {
    let kept = KeptObject { identity: deployment(), reason: "something in it\nis not deleted".into() };
    let view = SourceView { kept: 3, kept_objects: vec![kept], ..synced() };
    let text = text(&view, &Names::default(), STYLE);
    let lines = "Kept  3 objects that were to be pruned stay in place\n  apps/v1 Deployment shop/web: something in it is not deleted\n  and 2 more\n";
    assert!(text.contains(lines), "{text}");
    assert!(!super::text(&synced(), &Names::default(), STYLE).contains("Kept"));
}
