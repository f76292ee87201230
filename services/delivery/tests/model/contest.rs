//! Two sources with the same object: one holds it, the other one wants it.

use delivery::model::{DeliveryState, Verdict, desired_plan};
use events::configuration::OnRemoval;
use events::delivery::{
    BundleDesired, DeliveryEvent, SourceSuspended, SyncCounts, SyncOutcome, WantedList, WantedObject,
};
use events::observation::Observed;
use events::{BlobDigest, ObjectIdentity, SourceId, SyncId};
use store::Projection;
use uuid::Uuid;

use crate::given::*;
use events::requests::status::Reason;

type Bundles<'a> = &'a [(u8, &'a [&'a str])];

impl Given {
    /// What a source wants of others, as `object < holder`.
    fn wants(&self, name: &str, bundles: Bundles<'_>) -> Vec<String> {
        let source = SourceId::derive(AGENT, name);
        let mut contents = contents(bundles);
        let needed = self.state.bundles_needed(source);
        contents.retain(|digest, _| needed.contains(digest));
        let wanted = self.state.wanted(source, &contents, &self.wanted).expect("all is known");
        wanted.iter().map(|one| format!("{} < {}", one.object, one.holder_name)).collect()
    }

    /// Delivers what the verdict says, as the driver would; whether there was anything to do.
    fn settles(&mut self, name: &str, bundles: Bundles<'_>) -> bool {
        let source = SourceId::derive(AGENT, name);
        let mut contents = contents(bundles);
        // Not more than what the driver reads.
        let needed = self.state.bundles_needed(source);
        contents.retain(|digest, _| needed.contains(digest));
        let Verdict::Deliver { commit, bundle, objects, .. } =
            self.state.verdict(source, &contents, &[], &self.wanted)
        else {
            return false;
        };
        let all = self.state.wanted(source, &contents, &self.wanted).expect("all is known");
        let list = BlobDigest([100 + u8::try_from(self.wanted.len()).unwrap(); 32]);
        let wanted = (!all.is_empty()).then(|| WantedList {
            list,
            objects: u32::try_from(all.len()).unwrap(),
            first: all.iter().take(WantedObject::FIRST).cloned().collect(),
        });
        self.wanted.insert(list, all.into());
        let sync = SyncId(Uuid::from_u128(1_000 + self.records.len() as u128));
        let desired = BundleDesired {
            source,
            agent: AGENT,
            sync,
            commit,
            bundle,
            objects,
            prune: None,
            prunes: 0,
            wanted,
            withheld: 0,
            selection: None,
        };
        self.on_source(source, DeliveryEvent::BundleDesired(desired));
        true
    }

    /// Settles the sources again and again until there is nothing to do.
    fn settle_all(&mut self, names: &[&str], bundles: Bundles<'_>) {
        for _ in 0..4 {
            if !names.iter().map(|name| self.settles(name, bundles)).fold(false, |any, one| any | one) {
                return;
            }
        }
        panic!("it goes round in circles");
    }
}

fn two() -> Given {
    // Ids order them the other way round than the file does, or not: the file is what counts.
    Given::agent_with(vec![source("web"), source("base")])
}

#[test]
fn without_an_inventory_the_source_that_stands_first_in_the_file_holds_it() {
    for names in [["web", "base"], ["base", "web"]] {
        let mut given = Given::agent_with(names.iter().map(|name| source(name)).collect());
        given.advanced("web", "aaa", 1, 2);
        given.advanced("base", "bbb", 2, 2);
        let bundles: Bundles<'_> = &[(1, &["shared", "x"]), (2, &["shared", "y"])];
        given.settle_all(&["base", "web"], bundles);
        assert_eq!(given.wants(names[0], bundles), [""; 0]);
        assert_eq!(given.wants(names[1], bundles), [format!("ConfigMap shared < {}", names[0])]);
    }
}

#[test]
fn the_source_whose_inventory_has_it_keeps_it_wherever_it_stands() {
    let mut given = two();
    given.advanced("base", "bbb", 2, 1);
    let alone: Bundles<'_> = &[(2, &["shared"])];
    given.settle_all(&["base", "web"], alone);
    given.applied("base", 10, &["shared"], false);
    given.advanced("web", "aaa", 1, 1);
    let bundles: Bundles<'_> = &[(1, &["shared"]), (2, &["shared"])];
    given.settle_all(&["web", "base"], bundles);
    assert_eq!(given.wants("web", bundles), ["ConfigMap shared < base"]);
    assert_eq!(given.wants("base", bundles), [""; 0]);
    // The plan names it, and nothing prunes it for either.
    let plan = desired_plan(&given.state, AGENT).unwrap();
    assert_eq!(plan.sources.iter().filter(|source| source.wanted.is_some()).count(), 1);
    given.applied("web", 11, &["shared"], false);
    for name in ["web", "base"] {
        assert_eq!(given.verdict(name, bundles), Verdict::Nothing);
    }
}

#[test]
fn both_were_given_it_before_that_was_decided_and_the_inventory_decides() {
    let mut given = two();
    given.advanced("web", "aaa", 1, 1);
    given.desired("web", "aaa", 1, 10, 1);
    given.advanced("base", "bbb", 2, 1);
    given.desired("base", "bbb", 2, 11, 1);
    given.applied("base", 11, &["shared"], false);
    let bundles: Bundles<'_> = &[(1, &["shared"]), (2, &["shared"])];
    given.settle_all(&["web", "base"], bundles);
    assert_eq!(given.wants("web", bundles), ["ConfigMap shared < base"]);
    // What the other one had under way is heard of late: it is decided, and stays so.
    given.applied("web", 10, &["shared"], false);
    given.settle_all(&["web", "base"], bundles);
    assert_eq!(given.wants("web", bundles), ["ConfigMap shared < base"]);
}

#[test]
fn it_is_handed_over_once_the_holders_next_bundle_is_delivered() {
    let mut given = two();
    given.advanced("web", "aaa", 1, 2);
    given.advanced("base", "bbb", 2, 1);
    let bundles: Bundles<'_> = &[(1, &["shared", "x"]), (2, &["shared"]), (3, &["x"])];
    given.settle_all(&["web", "base"], bundles);
    given.applied("web", 10, &["shared", "x"], false);
    let (web, base) = (SourceId::derive(AGENT, "web"), SourceId::derive(AGENT, "base"));
    given.on_source(
        web,
        DeliveryEvent::SourceSuspended(SourceSuspended { source: web, reason: String::new() }),
    );
    given.advanced("web", "ccc", 3, 1);
    assert_eq!(given.wants("base", bundles), ["ConfigMap shared < web"], "its agent still has it");
    given.on_source(web, DeliveryEvent::SourceResumed(events::delivery::SourceResumed { source: web }));
    let all = given.state.wanted(base, &contents(bundles), &given.wanted).unwrap();
    assert_eq!(Vec::from_iter(given.state.about_to_drop(&all, &contents(bundles))), [web]);
    assert_eq!(pruned(&given.verdict("web", bundles)), [""; 0], "never pruned");
    let count = given.state.touched_since(0).count;
    assert!(given.settles("web", bundles));
    assert!(given.state.touched_since(count).sources.contains(&base), "it is looked at again");
    assert_eq!(given.wants("base", bundles), [""; 0]);
    assert!(given.settles("base", bundles));
    given.applied("base", 12, &["shared"], false);
    assert_eq!(given.verdict("base", bundles), Verdict::Nothing);
    given.advanced("base", "ddd", 3, 1);
    assert_eq!(pruned(&given.verdict("base", bundles)), ["shared"], "it is the other one's own now");
}

#[test]
fn a_holder_that_leaves_the_file_hands_over_and_prunes_nothing_that_is_wanted() {
    let mut leaving = source("web");
    leaving.policies.on_removal = OnRemoval::Prune;
    let mut given = Given::agent_with(vec![leaving, source("base")]);
    given.advanced("web", "aaa", 1, 2);
    given.advanced("base", "bbb", 2, 1);
    let bundles: Bundles<'_> = &[(1, &["shared", "x"]), (2, &["shared"])];
    given.settle_all(&["web", "base"], bundles);
    given.applied("web", 10, &["shared", "x"], false);
    given.configured(vec![source("base")]);
    assert_eq!(pruned(&given.verdict("web", bundles)), ["x"]);
    assert_eq!(given.wants("base", bundles), [""; 0]);
    assert!(given.settles("base", bundles));
}

#[test]
fn the_same_name_elsewhere_is_another_object_unless_the_kind_has_no_namespace() {
    let (mut web, mut base) = (source("web"), source("base"));
    web.default_namespace = "web".to_owned();
    base.default_namespace = "base".to_owned();
    let mut given = Given::agent_with(vec![web, base]);
    given.advanced("web", "aaa", 1, 1);
    given.advanced("base", "bbb", 2, 1);
    let wants = |given: &Given, one: &str, other: &str| given.wants("base", &[(1, &[one]), (2, &[other])]);
    assert_eq!(wants(&given, "a", "a"), [""; 0]);
    assert_eq!(wants(&given, "a", "web/a"), ["ConfigMap web/a < web"]);
    assert_eq!(wants(&given, "base/a", "a"), ["ConfigMap a < web"]);
    let role = "ClusterRole.rbac.authorization.k8s.io a";
    assert_eq!(wants(&given, role, role), ["ClusterRole.rbac.authorization.k8s.io a < web"]);
    // Of a kind of somebody's own that is known once an object of it was applied.
    let own = "Shop.example.com a";
    assert_eq!(wants(&given, own, own), [""; 0]);
    let identity = ObjectIdentity {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        kind: "Shop".to_owned(),
        namespace: String::new(),
        name: "a".to_owned(),
    };
    let object =
        events::observation::OwnedObject { identity, ..owned(SourceId::derive(AGENT, "web"), "a", false) };
    let write = events::observation::Write::Created;
    given.observed(1, vec![Observed::ObjectApplied { sync: None, object, write, taken_over: Vec::new() }]);
    assert_eq!(wants(&given, own, own), ["Shop.example.com a < web"]);
}

#[test]
fn a_source_says_what_it_wants_and_of_whom() {
    let mut given = two();
    given.advanced("web", "aaa", 1, 1);
    given.advanced("base", "bbb", 2, 3);
    let bundles: Bundles<'_> = &[(1, &["a", "b"]), (2, &["a", "b", "c"])];
    given.settle_all(&["web", "base"], bundles);
    let instance = events::InstanceId(Uuid::from_u128(9));
    let named = DeliveryEvent::ApplierNamed(events::delivery::ApplierNamed { agent: AGENT, instance });
    given.decided(events::AggregateKind::Applier, AGENT.to_string(), named);
    let base = SourceId::derive(AGENT, "base");
    let sync = view(&given.state, base).unwrap().sync.unwrap().id;
    given.observed(1, vec![started(base, sync.0.as_u128())]);
    let mut end = finished(base, sync.0.as_u128(), SyncOutcome::Failed);
    if let Observed::SyncFinished { counts, .. } = &mut end {
        *counts = SyncCounts { created: 1, failed: 2, ..SyncCounts::default() };
    }
    given.observed(1, vec![end]);
    let shown = view(&given.state, base).unwrap();
    assert_eq!((shown.wants, shown.wanted.len(), shown.wanted[0].holder_name.as_str()), (2, 2, "web"));
    let conditions = shown.status.conditions;
    let wanted = conditions.iter().find(|condition| condition.reason == Reason::Wanted).unwrap();
    assert!(conditions.iter().all(|condition| condition.reason != Reason::SyncFailed), "{conditions:?}");
    assert_eq!(
        wanted.message,
        "everything else is applied; not applied: ConfigMap a (and 1 more): source web of this agent holds it; \
         it is handed over once that source drops it"
    );
    let restored =
        DeliveryState::restore(DeliveryState::FOLD_VERSION, &given.state.snapshot().unwrap()).unwrap();
    assert_eq!(restored.snapshot().unwrap(), given.state.snapshot().unwrap());
}
