//! Sources in GraphQL: their commits as the log has them, and what the caller may do.

use events::configuration::{FileFinding, GitReference};
use events::delivery::{
    BundleDesired, BundleHeld, DeliveryEvent, HoldReason, SourcePinned, SyncCounts, SyncFinished,
    SyncOutcome, SyncStarted,
};
use events::repository::{BundleRejected, RepositoryEvent, SourceAdvanced, ref_aggregate};
use events::{AggregateKind, AggregateRef, BlobDigest, Event, OrganizationId, ProjectId, SourceId, SyncId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::behind::AGENT;
use crate::serving::{Console, HOME, STRANGER};

const SOURCE: SourceId = SourceId(Uuid::from_u128(0x50));
const OTHER: SourceId = SourceId(Uuid::from_u128(0x51));
const COMMITS: &str = "query One($id: ID!) { source(id: $id) { commits { commit objects rejectedAt findings { file line message } \
    heldReason pinnedBy syncs { outcome run counts { created failed } } } deeds { what by detail } } }";

fn bundle() -> BlobDigest {
    BlobDigest([7; 32])
}

fn advanced(source: SourceId, commit: &str) -> Event {
    let advanced = SourceAdvanced {
        source,
        agent: AGENT,
        commit: commit.to_owned(),
        bundle: bundle(),
        objects: 3,
        warnings: Vec::new(),
        takes_no_file: false,
        selection: None,
    };
    RepositoryEvent::SourceAdvanced(advanced).into()
}

fn desired(commit: &str, sync: SyncId) -> Event {
    let desired = BundleDesired {
        source: SOURCE,
        agent: AGENT,
        sync,
        commit: commit.to_owned(),
        bundle: bundle(),
        objects: 3,
        prune: None,
        prunes: 1,
        wanted: None,
        withheld: 0,
        selection: None,
    };
    DeliveryEvent::BundleDesired(desired).into()
}

fn rejected(commit: &str) -> Event {
    let (file, message) = ("web.yaml".to_owned(), "no kind <b>bold</b>".to_owned());
    let finding = FileFinding { file, line: 3, column: 0, field: String::new(), message };
    let (commit, findings) = (commit.to_owned(), vec![finding]);
    let rejected =
        BundleRejected { source: SOURCE, agent: AGENT, commit, findings, more: 0, warnings: Vec::new() };
    RepositoryEvent::BundleRejected(rejected).into()
}

fn pinned(commit: &str) -> Event {
    let (commit, objects) = (commit.to_owned(), 3);
    DeliveryEvent::SourcePinned(SourcePinned { source: SOURCE, commit, bundle: bundle(), objects }).into()
}

impl Console {
    /// What is decided of the source and of the ref that it follows, in this order.
    async fn decide(&self, organization: OrganizationId, events: Vec<Event>) {
        let reference: GitReference = serde_json::from_value(json!("default")).unwrap();
        let followed = ref_aggregate(ProjectId(Uuid::from_u128(1)), &reference);
        let own = AggregateRef::new(AggregateKind::Source, SOURCE);
        let (mut of_ref, mut of_source) = (0, 0);
        for event in events {
            let (aggregate, version) = match event {
                Event::Repository(_) => (followed.clone(), &mut of_ref),
                _ => (own.clone(), &mut of_source),
            };
            self.append(organization, aggregate, *version, event).await;
            *version += 1;
        }
    }

    async fn source(&self, token: &str, query: &str) -> Value {
        let (_, answered) = self.graphql(token, query, json!({ "id": SOURCE.to_string() })).await;
        assert!(answered["errors"].is_null(), "{answered:#}");
        answered["data"]["source"].clone()
    }
}

#[tokio::test]
async fn the_commits_of_a_source_are_told_with_what_became_of_each() {
    let console = Console::start().await;
    let (first, second) = (SyncId(Uuid::from_u128(1)), SyncId(Uuid::from_u128(2)));
    let started = |sync, run| DeliveryEvent::SyncStarted(SyncStarted { source: SOURCE, sync, run, epoch: 1 });
    let finished = |sync, run, outcome, counts| {
        let failures = Vec::new();
        DeliveryEvent::SyncFinished(SyncFinished { source: SOURCE, sync, run, outcome, counts, failures })
    };
    let (created, failed) = (
        SyncCounts { created: 3, ..SyncCounts::default() },
        SyncCounts { failed: 1, ..SyncCounts::default() },
    );
    let (commit, reason) = ("dddd".to_owned(), HoldReason::LargePrune { prunes: 11, inventory: 12 });
    let held = BundleHeld { source: SOURCE, agent: AGENT, commit, bundle: bundle(), objects: 1, reason };
    let events = vec![
        advanced(SOURCE, "aaaa"),
        desired("aaaa", first),
        started(first, 1).into(),
        finished(first, 1, SyncOutcome::Succeeded, created).into(),
        // Another source of the same repository.
        advanced(OTHER, "eeee"),
        rejected("bbbb"),
        advanced(SOURCE, "cccc"),
        desired("cccc", second),
        started(second, 1).into(),
        finished(second, 1, SyncOutcome::Failed, failed).into(),
        started(second, 2).into(),
        advanced(SOURCE, "dddd"),
        DeliveryEvent::BundleHeld(held).into(),
        pinned("aaaa"),
    ];
    console.decide(console.home.organization, events).await;
    let told = console.source(HOME, COMMITS).await;
    let of = |commit: &str| -> Value {
        let commits = told["commits"].as_array().unwrap();
        commits.iter().find(|one| one["commit"] == commit).cloned().unwrap_or_default()
    };
    let names: Vec<&str> =
        told["commits"].as_array().unwrap().iter().filter_map(|one| one["commit"].as_str()).collect();
    assert_eq!(names.len(), 4, "the newest first, and none of another source: {names:?}");
    let good = of("aaaa");
    let ended = json!([{ "outcome": "SUCCEEDED", "run": 1, "counts": { "created": 3, "failed": 0 } }]);
    // The log names a service here, and no person.
    assert_eq!((&good["syncs"], &good["pinnedBy"]), (&ended, &json!("authz")), "{good:#}");
    let bad = of("bbbb");
    assert_eq!(bad["findings"], json!([{ "file": "web.yaml", "line": 3, "message": "no kind <b>bold</b>" }]));
    assert!(bad["objects"].is_null() && !bad["rejectedAt"].is_null(), "{bad:#}");
    let again = json!([{ "outcome": null, "run": 2, "counts": { "created": 0, "failed": 1 } }]);
    assert_eq!(of("cccc")["syncs"], again, "it is tried again");
    assert_eq!(of("dddd")["heldReason"], "11 of 12 objects would be pruned");
    assert_eq!(told["deeds"], json!([{ "what": "pinned", "by": "authz", "detail": "aaaa" }]));
    // The same source in another organization has none of it.
    let elsewhere = console.source(STRANGER, COMMITS).await;
    assert_eq!(elsewhere, json!({ "commits": [], "deeds": [] }));
    console.stop().await;
}

#[tokio::test]
async fn rights_are_decided_for_the_caller_where_the_source_is() {
    let console = Console::start().await;
    let query =
        "query One($id: ID!) { rights { action allowed } source(id: $id) { rights { action allowed } } }";
    let (_, answered) = console.graphql(HOME, query, json!({ "id": SOURCE.to_string() })).await;
    let actions = |rights: &Value| -> Vec<String> {
        let rights = rights.as_array().unwrap();
        assert!(rights.iter().all(|right| right["allowed"] == true), "{answered:#}");
        rights.iter().map(|right| right["action"].as_str().unwrap().to_owned()).collect()
    };
    let of_source = actions(&answered["data"]["source"]["rights"]);
    assert_eq!(of_source, ["SYNC", "SUSPEND", "PIN", "CONFIRM", "DIFF"]);
    let own = actions(&answered["data"]["rights"]);
    assert_eq!(
        own,
        [
            "READ_LOG",
            "READ_USERS",
            "MANAGE_USER_TOKENS",
            "SET_TOKEN_LIFETIMES",
            "ASSIGN_ROLE",
            "MANAGE_SUBSCRIPTIONS"
        ]
    );
    let asked = console.behind.take().into_iter().filter(|seen| seen.name == "authz.decide");
    assert!(
        asked.clone().count() == 11 && asked.into_iter().all(|seen| seen.context.actor == console.home.actor)
    );
    console.stop().await;
}
