use events::bundle::BundleEntry;
use events::configuration::SyncPolicies;
use events::{CorrelationId, ObjectIdentity, SyncId};
use uuid::Uuid;

use super::*;

fn head() -> SourceHead {
    SourceHead {
        source: SourceId(Uuid::from_u128(1)),
        name: "shop".into(),
        sync: SyncId(Uuid::from_u128(2)),
        check_all: false,
        commit: "c".into(),
        correlation_id: CorrelationId(Uuid::from_u128(3)),
        traceparent: None,
        suspended: false,
        removed: false,
        default_namespace: "shop".into(),
        service_account: None,
        policies: SyncPolicies::default(),
        finished: Vec::new(),
    }
}

pub(crate) fn state(revision: u64, pages: Option<Vec<Sha256>>) -> DesiredState {
    DesiredState {
        revision,
        organization: OrganizationId(Uuid::from_u128(4)),
        agent: AgentId(Uuid::from_u128(5)),
        applier: None,
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        lockdown: false,
        replaces: Vec::new(),
        rejected: None,
        sources: vec![DesiredSource { pages, prune: vec![], wanted: vec![], head: head(), refused: None }],
    }
}

fn put(desired: &Desired, state: DesiredState) -> Result<DesiredReply, PutError> {
    let digest = Sha256::of(&events::encode(&state).expect("encodes"));
    desired.put(state, digest)
}

/// A page that names one ConfigMap, and its manifest.
pub(crate) fn content(manifest: &'static [u8]) -> (Bytes, Bytes) {
    let identity = ObjectIdentity {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: String::new(),
        name: "a".into(),
    };
    let entry = BundleEntry { identity, digest: Sha256::of(manifest), file: "a.yaml".into(), line: 1 };
    let page = events::encode(&BundlePage { entries: vec![entry] }).expect("encodes");
    (Bytes::from(page), Bytes::from_static(manifest))
}

#[test]
fn a_state_is_taken_over_only_when_nothing_is_missing() {
    let desired = Desired::default();
    let (page, object) = content(b"{}");
    let (page_digest, object_digest) = (Sha256::of(&page), Sha256::of(&object));
    let wanted = state(1, Some(vec![page_digest]));
    assert_eq!(put(&desired, wanted.clone()).expect("taken").missing, [page_digest]);
    desired.put_contents([page]);
    assert_eq!(put(&desired, wanted.clone()).expect("taken").missing, [object_digest]);
    assert!(desired.view().is_none());
    desired.put_contents([object]);
    assert!(put(&desired, wanted).expect("taken").missing.is_empty());
    let view = desired.view().expect("a view");
    let entries = view.sources[0].entries.as_ref().expect("entries");
    assert_eq!((entries.len(), &*entries[0].file), (1, "a.yaml"));
    // What nothing names any more is dropped, and asked for when it is wanted again.
    assert!(put(&desired, state(2, None)).expect("taken").missing.is_empty());
    assert!(desired.view().expect("a view").sources[0].entries.is_none());
    assert_eq!(put(&desired, state(3, Some(vec![page_digest]))).expect("taken").missing, [page_digest]);
    assert_eq!(desired.view().expect("a view").revision, 2);
}

#[test]
fn unused_contents_are_evicted_and_what_the_view_names_stays() {
    let desired = Desired::default();
    desired.set_capacity(64 << 10);
    let (page, object) = content(b"{}");
    let (page_digest, object_digest) = (Sha256::of(&page), Sha256::of(&object));
    let large = |number: u8| Bytes::from(vec![number; 16 << 10]);
    desired.put_contents((0..4).map(large));
    desired.put_contents([large(0)]);
    let wanted = state(1, Some(vec![page_digest]));
    desired.put_contents([page.clone()]);
    assert_eq!(put(&desired, wanted.clone()).expect("taken").missing, [page_digest], "beyond the capacity");
    desired.put_contents([page]);
    assert_eq!(put(&desired, wanted.clone()).expect("taken").missing, [object_digest], "now there is");
    desired.put_contents([object]);
    assert!(put(&desired, wanted).expect("taken").missing.is_empty());
    let dropped = Sha256::of(&large(3));
    assert_eq!(put(&desired, state(2, Some(vec![dropped]))).expect("taken").missing, [dropped]);
    let still = state(3, Some(vec![page_digest]));
    assert!(put(&desired, still).expect("taken").missing.is_empty(), "what the view names stays");
}

/// What the server does: sends what is lacking until nothing is; gives how many rounds that took.
fn push(desired: &Desired, state: &DesiredState, contents: &BTreeMap<Sha256, Bytes>) -> usize {
    for round in 1..=6 {
        let missing = put(desired, state.clone()).expect("taken").missing;
        if missing.is_empty() {
            return round;
        }
        desired.put_contents(missing.iter().map(|digest| contents[digest].clone()));
    }
    panic!("not taken within the rounds that the server allows");
}

#[test]
fn one_of_twenty_sources_far_over_its_share_fails_alone() {
    let desired = Desired::default();
    desired.set_capacity(1 << 20);
    let mut contents = BTreeMap::new();
    let mut wanted = DesiredState { sources: vec![], ..state(1, None) };
    let mut source = |number: u8, objects: u8, bytes: usize| {
        let manifests: Vec<Bytes> =
            (0..objects).map(|n| Bytes::from([vec![number, n], vec![b' '; bytes]].concat())).collect();
        let entries = manifests.iter().zip(0..).map(|(manifest, n): (_, u8)| BundleEntry {
            identity: ObjectIdentity {
                group: String::new(),
                version: "v1".into(),
                kind: "ConfigMap".into(),
                namespace: String::new(),
                name: format!("{number}-{n}"),
            },
            digest: Sha256::of(manifest),
            file: "a.yaml".into(),
            line: 1,
        });
        let page = Bytes::from(events::encode(&BundlePage { entries: entries.collect() }).expect("encodes"));
        let pages = Some(vec![Sha256::of(&page)]);
        contents.extend(manifests.into_iter().chain([page]).map(|bytes| (Sha256::of(&bytes), bytes)));
        let head = SourceHead { source: SourceId(Uuid::from_u128(number.into())), ..head() };
        DesiredSource { pages, prune: vec![], wanted: vec![], head, refused: None }
    };
    wanted.sources.extend((1..=19).map(|number| source(number, 2, 1_000)));
    let small = source(20, 2, 1_000);
    let huge = source(20, 200, 100_000);
    let huge_page = huge.pages.clone().expect("pages");
    wanted.sources.push(small);
    push(&desired, &wanted, &contents);
    assert!(desired.view().expect("a view").sources.iter().all(|source| source.refused.is_none()));

    wanted.revision = 2;
    wanted.sources[19] = huge;
    push(&desired, &wanted, &contents);
    let view = desired.view().expect("a view");
    let refused: Vec<&SourceView> =
        view.sources.iter().map(AsRef::as_ref).filter(|source| source.refused.is_some()).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].head.source, SourceId(Uuid::from_u128(20)));
    assert_eq!(refused[0].entries.as_ref().map(Vec::len), Some(2), "it stays as it was");
    assert!(refused[0].refused.as_ref().expect("why").contains("its share of 1024 KiB"), "{refused:?}");
    assert_eq!(view.sources.iter().filter(|source| source.entries.is_some()).count(), 20);

    // It is not sent again with each push of another source.
    wanted.revision = 3;
    wanted.sources.remove(0);
    assert_eq!(push(&desired, &wanted, &contents), 1);
    wanted.sources[18].pages = Some(huge_page.into_iter().take(0).collect());
    wanted.revision = 4;
    push(&desired, &wanted, &contents);
    assert!(desired.view().expect("a view").sources.iter().all(|source| source.refused.is_none()));
}

#[test]
fn an_older_state_is_refused_and_a_broken_page_fails_its_source_alone() {
    let desired = Desired::default();
    put(&desired, state(5, None)).expect("taken");
    put(&desired, state(5, None)).expect("the same again");
    assert_eq!(put(&desired, state(4, None)), Err(PutError::Stale { revision: 5 }));
    let broken = Bytes::from_static(b"\xc1");
    desired.put_contents([broken.clone()]);
    let mut with_broken = state(6, Some(vec![Sha256::of(&broken)]));
    let head = SourceHead { source: SourceId(Uuid::from_u128(9)), ..head() };
    let pages = Some(vec![]);
    with_broken.sources.push(DesiredSource { pages, prune: vec![], wanted: vec![], head, refused: None });
    assert!(put(&desired, with_broken).expect("taken").missing.is_empty());
    let view = desired.view().expect("a view");
    assert!(view.sources[0].refused.as_ref().expect("why").contains("cannot be read"));
    assert_eq!((&view.sources[1].refused, view.sources[1].entries.as_ref().map(Vec::len)), (&None, Some(0)));
    // So does one that the server could not send.
    let mut unsent = state(7, None);
    unsent.sources[0].refused = Some("an object is too large".into());
    assert!(put(&desired, unsent).expect("taken").missing.is_empty());
    let view = desired.view().expect("a view");
    assert_eq!(view.sources[0].refused.as_deref(), Some("an object is too large"));
}

#[test]
fn the_fingerprint_follows_what_a_sync_depends_on() {
    let print = |change: &dyn Fn(&mut DesiredState)| {
        let mut state = state(1, None);
        change(&mut state);
        fingerprint(&state, &state.sources[0], false)
    };
    let plain = print(&|_| {});
    assert_eq!(print(&|state| state.revision = 9), plain);
    assert_eq!(print(&|state| state.sources[0].head.suspended = true), plain);
    assert_ne!(print(&|state| state.sources[0].head.sync = SyncId(Uuid::from_u128(9))), plain);
    assert_ne!(print(&|state| state.sources[0].head.policies.prune_adopted = true), plain);
    assert_ne!(print(&|state| state.lockdown = true), plain);
    assert_ne!(print(&|state| state.sources[0].pages = Some(vec![])), plain);
}
