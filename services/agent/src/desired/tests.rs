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

fn state(revision: u64, pages: Option<Vec<Sha256>>) -> DesiredState {
    DesiredState {
        revision,
        organization: OrganizationId(Uuid::from_u128(4)),
        agent: AgentId(Uuid::from_u128(5)),
        applier: None,
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        lockdown: false,
        sources: vec![DesiredSource { pages, prune: vec![], head: head(), refused: None }],
    }
}

fn put(desired: &Desired, state: DesiredState) -> Result<DesiredReply, PutError> {
    let digest = Sha256::of(&events::encode(&state).expect("encodes"));
    desired.put(state, digest)
}

fn content(manifest: &'static [u8]) -> (Bytes, Bytes) {
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
    desired.put_contents([page]).expect("kept");
    assert_eq!(put(&desired, wanted.clone()).expect("taken").missing, [object_digest]);
    assert!(desired.view().is_none());
    desired.put_contents([object]).expect("kept");
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
fn what_is_of_no_more_use_makes_room_and_a_state_under_way_keeps_what_it_has() {
    let desired = Desired::default();
    let (page, object) = content(b"{}");
    let (page_digest, object_digest) = (Sha256::of(&page), Sha256::of(&object));
    let large = |number: u8| Bytes::from(vec![number; LOOSE_MAXIMUM / 4]);
    for number in 0..3 {
        desired.put_contents([large(number)]).expect("kept");
    }
    desired.put_contents([page]).expect("kept");
    desired.put_contents([large(0)]).expect("it is here already");
    let one_more = || desired.put_contents([large(3)]);
    assert_eq!(one_more(), Err(TooMuch));
    assert_eq!(one_more(), Err(TooMuch), "nothing is dropped while it is not known of what use it is");
    let wanted = state(1, Some(vec![page_digest]));
    assert_eq!(
        put(&desired, wanted.clone()).expect("taken").missing,
        [object_digest],
        "the page is still here"
    );
    one_more().expect("room");
    desired.put_contents([object]).expect("kept");
    assert!(put(&desired, wanted).expect("taken").missing.is_empty());
    let dropped = Sha256::of(&large(3));
    assert_eq!(put(&desired, state(2, Some(vec![dropped]))).expect("taken").missing, [dropped]);
    let still = state(3, Some(vec![page_digest]));
    assert!(put(&desired, still).expect("taken").missing.is_empty(), "what the view names stays");
}

#[test]
fn an_older_state_and_a_broken_page_are_refused() {
    let desired = Desired::default();
    put(&desired, state(5, None)).expect("taken");
    put(&desired, state(5, None)).expect("the same again");
    assert_eq!(put(&desired, state(4, None)), Err(PutError::Stale { revision: 5 }));
    let broken = Bytes::from_static(b"\xc1");
    desired.put_contents([broken.clone()]).expect("kept");
    assert!(matches!(put(&desired, state(6, Some(vec![Sha256::of(&broken)]))), Err(PutError::Page { .. })));
    assert_eq!(desired.view().expect("a view").revision, 5, "the last good one stays");
}

#[test]
fn the_fingerprint_follows_what_a_sync_depends_on() {
    let print = |change: &dyn Fn(&mut DesiredState)| {
        let mut state = state(1, None);
        change(&mut state);
        fingerprint(&state, &state.sources[0])
    };
    let plain = print(&|_| {});
    assert_eq!(print(&|state| state.revision = 9), plain);
    assert_eq!(print(&|state| state.sources[0].head.suspended = true), plain);
    assert_ne!(print(&|state| state.sources[0].head.sync = SyncId(Uuid::from_u128(9))), plain);
    assert_ne!(print(&|state| state.sources[0].head.policies.prune_adopted = true), plain);
    assert_ne!(print(&|state| state.lockdown = true), plain);
    assert_ne!(print(&|state| state.sources[0].pages = Some(vec![])), plain);
}
