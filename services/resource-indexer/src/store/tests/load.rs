//! What is loaded is what was folded, whatever thread loads it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::model::given::{self, Given, batch, below, config, gone, object, pod, seen};
use crate::model::{Link, Slot, Target};

const OTHER: AgentId = given::OTHER;
const TEXTS: [&str; 6] = ["web", "shop", "front", "team=", "failed", "nothing of it"];

/// Objects that have much in common, some that are not well, and one that is gone. UIDs are in no order.
fn words(apps: usize) -> Vec<events::observation::Observed> {
    let mut words = Vec::new();
    for number in 0..apps {
        let helm = json!({"meta.helm.sh/release-name": format!("web-{}", number % 2)});
        let place = |name: &str| format!("shop-{}/{name}-{}", number % 3, number * 7 % apps);
        let labels = json!({"app": format!("web-{number}"), "team": "Front"});
        let labelled = json!({"metadata": {"labels": labels, "annotations": helm}});
        let set = object("apps/v1", "ReplicaSet", &place("set"), labelled.clone());
        let selector = json!({"spec": {"selector": {"app": format!("web-{number}")}}});
        words.push(seen(&set));
        words.push(seen(&object("v1", "Service", &place("front"), selector)));
        for count in 0..3 {
            let phase = if count == 1 { "Failed" } else { "Running" };
            let rest = json!({"metadata": {"labels": labels}, "status": {"phase": phase, "message": "it Failed"},
                "spec": {"serviceAccountName": "web", "volumes": [{"configMap": {"name": "all"}, "name": "all"}]}});
            let set = format!("set-{}", number * 7 % apps);
            words.push(seen(&below(
                pod(&place(&format!("web-{count}")), rest),
                "apps/v1",
                "ReplicaSet",
                &set,
            )));
        }
    }
    let all = config("shop-0/all", json!({}));
    words.extend([
        seen(&all),
        seen(&config("shop-1/left", json!({}))),
        gone(&config("shop-1/left", json!({}))),
    ]);
    words.into_iter().map(by_helm).collect()
}

/// What is seen of an object that no person wrote.
fn by_helm(mut word: events::observation::Observed) -> events::observation::Observed {
    if let events::observation::Observed::ObjectSeen { object } = &mut word {
        object.writers.iter_mut().for_each(|writer| writer.manager = "helm-controller".to_owned());
    }
    word
}

fn write(given: &Given, store: &Store, standing: &Standing) {
    let index = &given.fold.index;
    let records = index.slots().filter_map(|slot| index.get(slot));
    let records: BTreeSet<(AgentId, Text)> =
        records.map(|record| (record.agent, record.uid.clone())).collect();
    let agents = given.fold.observed.keys().copied().collect();
    let batch = Batch { stated: records.clone(), records, agents, ..Batch::default() };
    let (directory, tunnels) = (Directory::default(), Tunnels::default());
    let observed = &given.fold.observed;
    let memory = Memory { index, observed, directory: &directory, tunnels: &tunnels, standing };
    store.write(&batch, &memory).unwrap();
}

fn of_two_agents() -> (Given, Store) {
    let mut given = Given::agents();
    given.says(words(200));
    given.apply(OTHER, batch(OTHER, 1, 1, words(30)));
    let store = Store::in_memory(16).unwrap();
    write(&given, &store, &Standing::default());
    (given, store)
}

/// What one finds in an index, by UIDs.
fn found(index: &Index, agent: AgentId) -> Vec<Vec<String>> {
    let name = |slot: Slot| index.get(slot).unwrap().uid.to_string();
    let names = |slots: &mut dyn Iterator<Item = Slot>| {
        let mut names: Vec<String> = slots.map(name).collect();
        names.sort();
        names
    };
    let slots: Vec<Slot> = index.slots().filter(|slot| index.get(*slot).unwrap().agent == agent).collect();
    let mut found = vec![vec![format!("{} {}", index.count(agent), index.kept(agent))]];
    for slot in slots {
        let record = index.get(slot).unwrap();
        assert_eq!(index.by_uid(agent, &record.uid), Some(slot));
        found.push(vec![format!("{record:?}")]);
        found.push(names(&mut index.targets(record).map(|(_, slot)| slot)));
        found.push(names(&mut index.sources(record).into_iter().map(|(_, slot)| slot)));
        for label in record.facts.labels.iter() {
            found.push(names(&mut index.labelled(agent, label)));
        }
    }
    let states =
        [HealthState::Degraded, HealthState::Progressing, HealthState::Unknown, HealthState::Missing];
    found.push(names(&mut index.unwell(agent, &states)));
    for text in TEXTS {
        found.push(names(&mut index.with_text(agent, text, 10_000).unwrap().into_iter()));
    }
    found
}

fn are_alike(loaded: &Index, folded: &Index) {
    assert_eq!((loaded.len(), loaded.next_deadline()), (folded.len(), folded.next_deadline()));
    for agent in [AGENT, OTHER] {
        let (loaded, folded) = (found(loaded, agent), found(folded, agent));
        assert_eq!(loaded.len(), folded.len());
        loaded.iter().zip(&folded).for_each(|(loaded, folded)| assert_eq!(loaded, folded));
    }
}

#[test]
fn what_is_loaded_is_found_as_what_was_folded() {
    let (given, store) = of_two_agents();
    let loaded = store.reader().unwrap().load().unwrap().fold.index;
    are_alike(&loaded, &given.fold.index);
    let again = store.reader().unwrap().load().unwrap().fold.index;
    assert!(loaded.slots().eq(again.slots()), "in the same slots at each start");
}

#[test]
fn what_is_loaded_goes_on_as_what_was_folded() {
    let (mut given, store) = of_two_agents();
    let (mut other, _) = of_two_agents();
    other.fold = store.reader().unwrap().load().unwrap().fold;
    let pod = |name: &str, label: &str| {
        seen(&pod(
            &format!("shop-1/{name}"),
            json!({"metadata": {"labels": {"app": label, "team": "Front"}}}),
        ))
    };
    for (agent, first) in [(AGENT, 1_004), (OTHER, 154)] {
        let changes =
            vec![pod("web-1-7", "web-9"), pod("new", "web-1"), gone(&config("shop-0/all", json!({})))];
        given.apply(agent, batch(agent, 1, first, changes.clone()));
        other.apply(agent, batch(agent, 1, first, changes));
    }
    are_alike(&other.fold.index, &given.fold.index);
}

#[test]
fn objects_share_lists_and_texts_once_they_are_loaded() {
    let (_, store) = of_two_agents();
    let index = store.reader().unwrap().load().unwrap().fold.index;
    let record = |agent, uid: &str| index.get(index.by_uid(agent, uid).unwrap()).unwrap();
    let [one, other] = ["uid-web-0-7", "uid-web-2-7"].map(|uid| record(AGENT, uid));
    assert!(std::ptr::eq(&*one.facts.labels, &*other.facts.labels));
    assert!(std::ptr::eq(&*one.facts.links, &*other.facts.links));
    let set = record(AGENT, "uid-set-7");
    let names_it = |link: &Link| match &link.target {
        Target::Uid(uid, key) => {
            std::ptr::eq(&raw const **uid, &raw const *set.uid)
                && std::ptr::eq(&raw const *key.name, &raw const *set.name)
        }
        _ => false,
    };
    assert!(one.facts.links.iter().any(names_it), "{:?}", one.facts.links);
}

/// Where that stands which an object shares with others.
fn shared_at(record: &Record) -> Vec<usize> {
    fn at<T: ?Sized>(shared: &T) -> usize {
        std::ptr::from_ref(shared).addr()
    }
    let rooms = record.facts.links.iter().filter_map(|link| match &link.target {
        Target::Uid(_, key) | Target::Key(key) => Some(at(&**key)),
        Target::Labels(..) | Target::Claims(..) => None,
    });
    let lists =
        [at(&*record.facts.labels), at(&*record.facts.links), at(&*record.marks), at(&*record.managers)];
    let writer = record.writer.as_ref().map(|writer| at(writer.by()));
    let one = [at(&**record), at(&*record.own)];
    let texts =
        [&record.kind.group, &record.kind.kind, &record.version, &record.namespace].map(|text| at(&**text));
    one.into_iter().chain(lists).chain(writer).chain(rooms).chain(texts).collect()
}

/// For each thing that an object of a cluster shares, the first one in which it stands.
fn shared(index: &Index, agent: AgentId) -> Vec<Vec<usize>> {
    let records = index.slots().filter_map(|slot| index.get(slot));
    let mut records: Vec<&Record> = records.filter(|record| record.agent == agent).collect();
    records.sort_by_key(|record| &record.uid);
    let mut firsts = BTreeMap::new();
    let mut first = |at: usize| {
        let next = firsts.len();
        *firsts.entry(at).or_insert(next)
    };
    records.into_iter().map(|record| shared_at(record).into_iter().map(&mut first).collect()).collect()
}

#[test]
fn what_objects_of_a_cluster_have_in_common_is_shared_as_once_it_was_folded() {
    let (given, store) = of_two_agents();
    let loaded = store.reader().unwrap().load().unwrap().fold.index;
    for (agent, objects) in [(AGENT, 1_002), (OTHER, 152)] {
        let (loaded, folded) = (shared(&loaded, agent), shared(&given.fold.index, agent));
        assert_eq!(loaded.len(), objects);
        loaded.iter().zip(&folded).for_each(|(loaded, folded)| assert_eq!(loaded, folded));
    }
}

#[test]
fn what_comes_later_shares_with_what_was_loaded_whichever_thread_loaded_it() {
    let (mut given, store) = of_two_agents();
    given.fold = store.reader().unwrap().load().unwrap().fold;
    let index = &given.fold.index;
    let known = index.slots().flat_map(|slot| shared_at(index.get(slot).unwrap()));
    let known: BTreeSet<usize> = known.collect();
    let labels = json!({"app": "web-1", "team": "Front"});
    for (agent, first) in [(AGENT, 1_004), (OTHER, 154)] {
        // One that is like another one, and one whose links are others to objects of the same kinds.
        let place = |name: &str, volume: &str, set: &str| {
            let rest = json!({"metadata": {"labels": labels}, "status": {"phase": "Running", "message": "it Failed"},
                "spec": {"serviceAccountName": "web", "volumes": [{"configMap": {"name": volume}, "name": volume}]}});
            by_helm(seen(&below(pod(&format!("shop-1/{name}"), rest), "apps/v1", "ReplicaSet", set)))
        };
        given.apply(
            agent,
            batch(agent, 1, first, vec![place("like", "all", "set-7"), place("other", "new", "set-7")]),
        );
        let index = &given.fold.index;
        let record = |uid: &str| index.get(index.by_uid(agent, uid).unwrap()).unwrap();
        assert!(shared_at(record("uid-like")).iter().all(|at| known.contains(at)), "{agent}");
        let new = shared_at(record("uid-other")).into_iter().filter(|at| !known.contains(at)).count();
        assert_eq!(new, 1, "its list of links");
    }
}

#[test]
fn objects_of_which_nothing_was_stated_and_statements_of_which_there_is_no_object_do_no_harm() {
    let (given, store) = of_two_agents();
    let writing = store.begin().unwrap();
    for number in 0..50 {
        remove(&writing, STATED, &object_key(AGENT, &format!("uid-web-0-{number}"))).unwrap();
    }
    for number in 0..40 {
        let key = object_key(OTHER, &format!("uid-of-nothing-{number}"));
        put(&writing, STATED, &key, &encode(&(1_u64, 1_u64)).unwrap()).unwrap();
    }
    writing.commit().unwrap();
    let mut fold = store.reader().unwrap().load().unwrap().fold;
    assert_eq!(fold.index.len(), given.fold.index.len());
    let slots: Vec<Slot> = given.fold.index.slots().collect();
    let stated =
        |index: &Index, agent, uid: &str| index.get(index.by_uid(agent, uid).unwrap()).unwrap().stated;
    assert_eq!(stated(&fold.index, AGENT, "uid-web-0-7"), (0, 0));
    for slot in slots {
        let record = given.fold.index.get(slot).unwrap();
        let here = fold.index.by_uid(record.agent, &record.uid).unwrap();
        fold.index.state(here, record.stated);
    }
    are_alike(&fold.index, &given.fold.index);
}

#[test]
fn nothing_is_loaded_of_an_agent_that_leaves() {
    let (given, store) = of_two_agents();
    write(&given, &store, &Standing { leaving: BTreeSet::from([AGENT]), ..Standing::default() });
    let index = store.reader().unwrap().load().unwrap().fold.index;
    assert_eq!(index.agents().collect::<Vec<_>>(), [OTHER]);
    assert_eq!((index.len(), index.kept(AGENT)), (given.fold.index.kept(OTHER), 0));
}

#[test]
fn an_object_under_the_key_of_another_one_is_damage() {
    let (_, store) = of_two_agents();
    let writing = store.begin().unwrap();
    let record = get(&writing, OBJECTS, &object_key(AGENT, "uid-all")).unwrap().unwrap();
    put(&writing, OBJECTS, &object_key(AGENT, "uid-elsewhere"), &record).unwrap();
    put(&writing, OBJECTS, &object_key(AGENT, "uid-none"), b"\x95none").unwrap();
    writing.commit().unwrap();
    assert!(store.reader().unwrap().load().is_err());
}
