//! Sources that get another name, are split or joined, and agents that are registered again hand their objects over.

use delivery::model::{Verdict, desired_plan, event_of};
use events::configuration::{OnRemoval, SourceConfiguration};
use events::delivery::{DeliveryEvent, SyncOutcome};
use events::directory::{AgentRegistered, DirectoryEvent};
use events::repository::{BundleRejected, RepositoryEvent};
use events::{AgentId, AggregateKind, BlobDigest, ProjectId, SourceId, SyncId};
use uuid::Uuid;

use crate::given::*;

fn pruning(name: &str) -> SourceConfiguration {
    let mut source = source(name);
    source.policies.on_removal = OnRemoval::Prune;
    source
}

fn of_files(name: &str, include: &str) -> SourceConfiguration {
    SourceConfiguration { include: vec![include.to_owned()], ..pruning(name) }
}

impl Given {
    /// Records what a verdict comes to, as the driver does.
    fn decided_as(&mut self, name: &str, verdict: Verdict, sync: u128) {
        let source = SourceId::derive(AGENT, name);
        let prunes = match &verdict {
            Verdict::Deliver { prune, .. } | Verdict::Remove { prune } => prune.len(),
            other => panic!("nothing was decided: {other:?}"),
        };
        let list = (prunes > 0).then_some(BlobDigest([200; 32]));
        let counts = (u32::try_from(prunes).unwrap(), list);
        let (event, _) =
            event_of(verdict, (source, AGENT), counts, SyncId(Uuid::from_u128(sync)), None).unwrap();
        self.on_source(source, event);
    }

    /// A source that was read, delivered and applied.
    fn running(&mut self, source: &SourceConfiguration, bundle: u8, sync: u128, objects: &[&str]) {
        self.read(source, "aaa", bundle, u32::try_from(objects.len()).unwrap());
        let id = source.id;
        self.on_source(id, delivered(source, bundle, sync));
        self.applied(&source.name, sync, objects, false);
        self.observed(1, vec![started(id, sync), finished(id, sync, SyncOutcome::Succeeded)]);
    }
}

fn delivered(source: &SourceConfiguration, bundle: u8, sync: u128) -> DeliveryEvent {
    DeliveryEvent::BundleDesired(events::delivery::BundleDesired {
        source: source.id,
        agent: AGENT,
        sync: SyncId(Uuid::from_u128(sync)),
        commit: "aaa".to_owned(),
        bundle: BlobDigest([bundle; 32]),
        objects: 1,
        prune: None,
        prunes: 0,
        wanted: None,
        withheld: 0,
        selection: Some(source.selection()),
    })
}

#[test]
fn a_renamed_source_hands_over_what_its_new_name_has_and_only_the_rest_goes() {
    let (old, new) = (pruning("old"), pruning("new"));
    let mut given = Given::agent_with(vec![old.clone()]);
    given.running(&old, 1, 10, &["stays", "gone"]);
    given.configured(vec![new.clone()]);
    let verdict = given.verdict("old", &[]);
    assert_eq!(verdict, Verdict::Remove { prune: Vec::new() }, "nobody knows what the new one has");
    given.decided_as("old", verdict, 11);
    let count = given.state.touched_since(0).count;
    given.read(&new, "bbb", 2, 1);
    assert!(given.state.touched_since(count).sources.contains(&old.id), "it is looked at again");
    assert_eq!(pruned(&given.verdict("old", &[(2, &["stays"])])), ["gone"]);
    given.running(&new, 2, 12, &["stays"]);
    assert_eq!(pruned(&given.verdict("old", &[(2, &["stays"])])), ["gone"]);
}

#[test]
fn nothing_goes_because_a_new_name_cannot_be_read() {
    let (old, new) = (pruning("old"), pruning("new"));
    let mut given = Given::agent_with(vec![old.clone()]);
    given.running(&old, 1, 10, &["stays"]);
    given.configured(vec![new.clone()]);
    given.decided(
        AggregateKind::Ref,
        "main".to_owned(),
        RepositoryEvent::BundleRejected(BundleRejected {
            source: new.id,
            agent: AGENT,
            commit: "bbb".to_owned(),
            findings: Vec::new(),
            more: 0,
            warnings: Vec::new(),
        }),
    );
    assert_eq!(given.verdict("old", &[]), Verdict::Remove { prune: Vec::new() });
    given.configured(Vec::new());
    assert_eq!(pruned(&given.verdict("old", &[])), ["stays"], "it left as well");
}

#[test]
fn a_source_that_is_joined_with_another_waits_until_that_one_was_read_with_its_files() {
    let (before, after) = (of_files("new", "shop/*.yaml"), of_files("new", "shop/**"));
    let more = of_files("more", "shop/more/**");
    let mut given = Given::agent_with(vec![before.clone(), more.clone()]);
    given.running(&before, 1, 10, &["a"]);
    given.running(&more, 2, 11, &["b"]);
    given.configured(vec![after.clone()]);
    let nothing = Verdict::Remove { prune: Vec::new() };
    assert_eq!(given.verdict("more", &[(1, &["a"])]), nothing);
    // By a poller that had not heard of the new files.
    given.read(&before, "bbb", 3, 1);
    assert_eq!(given.verdict("more", &[(1, &["a"]), (3, &["a"])]), nothing);
    given.read(&after, "bbb", 4, 2);
    assert_eq!(given.verdict("more", &[(1, &["a"]), (4, &["a", "b"])]), nothing, "it has it");
    given.read(&after, "ccc", 5, 1);
    assert_eq!(pruned(&given.verdict("more", &[(1, &["a"]), (5, &["a"])])), ["b"], "it has it no more");
}

#[test]
fn a_source_that_is_split_is_delivered_and_prunes_once_the_other_part_was_read() {
    let (before, after) = (of_files("new", "shop/**"), of_files("new", "shop/*.yaml"));
    let more = of_files("more", "shop/more/**");
    let mut given = Given::agent_with(vec![before.clone()]);
    given.running(&before, 1, 10, &["a", "b", "c"]);
    given.configured(vec![after.clone(), more.clone()]);
    given.read(&after, "bbb", 2, 1);
    let contents: &[(u8, &[&str])] = &[(2, &["a"]), (3, &["b"])];
    let verdict = given.verdict("new", contents);
    assert!(
        matches!(&verdict, Verdict::Deliver { prune, withheld: 2, .. } if prune.is_empty()),
        "{verdict:?}"
    );
    given.decided_as("new", verdict, 11);
    given.observed(1, vec![started(after.id, 11), finished(after.id, 11, SyncOutcome::Succeeded)]);
    assert_eq!(given.verdict("new", contents), Verdict::Nothing, "it waits");
    given.read(&more, "bbb", 3, 1);
    let verdict = given.verdict("new", contents);
    assert_eq!(pruned(&verdict), ["c"]);
    given.decided_as("new", verdict, 12);
    given.observed(1, vec![started(after.id, 12), finished(after.id, 12, SyncOutcome::Succeeded)]);
    // From here on what leaves it left Git, whoever else cannot be read.
    given.configured(vec![after.clone(), more, pruning("broken")]);
    given.read(&after, "ccc", 6, 1);
    given.applied("new", 12, &["x"], false);
    let contents: &[(u8, &[&str])] = &[(2, &["a"]), (3, &["b"]), (6, &["x"])];
    assert!(pruned(&given.verdict("new", contents)).contains(&"a".to_owned()));
}

#[test]
fn a_source_that_comes_back_is_read_anew() {
    let (old, new) = (pruning("old"), pruning("new"));
    let mut given = Given::agent_with(vec![old.clone()]);
    given.running(&old, 1, 10, &["a"]);
    given.configured(vec![new.clone()]);
    given.running(&new, 2, 11, &["a", "b"]);
    given.configured(vec![old.clone()]);
    let nothing = Verdict::Remove { prune: Vec::new() };
    let contents: &[(u8, &[&str])] = &[(1, &["a"]), (2, &["a", "b"])];
    assert_eq!(given.verdict("new", contents), nothing, "what it had when it left is old");
    given.read(&old, "bbb", 2, 2);
    assert_eq!(given.verdict("new", contents), nothing);
}

#[test]
fn an_agent_is_told_which_agents_it_replaces() {
    let mut given = Given::agent_with(vec![pruning("shop")]);
    let former = AgentId(Uuid::from_u128(77));
    let registered = AgentRegistered {
        agent: AGENT,
        name: "production".to_owned(),
        project: ProjectId(Uuid::from_u128(3)),
        group: None,
        replaces: vec![former],
    };
    given.decided(AggregateKind::Agent, AGENT.to_string(), DirectoryEvent::AgentRegistered(registered));
    assert_eq!(desired_plan(&given.state, AGENT).unwrap().replaces, [former]);
}
