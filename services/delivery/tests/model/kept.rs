//! What the agent was asked to delete, and kept.

use delivery::model::Verdict;
use events::SourceId;
use events::observation::{Observed, Write};

use crate::given::*;

fn left_in_place(id: SourceId, name: &str, stays_owned: bool) -> Observed {
    let object = owned(id, name, false);
    let kept = Some("something in it is not deleted".to_owned());
    let (identity, uid) = (object.identity, object.uid);
    Observed::ObjectPruned { sync: None, source: id, identity, uid, kept, stays_owned }
}

#[test]
fn what_the_agent_kept_stays_in_the_inventory_and_is_listed_again_with_the_next_bundle() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    given.applied("shop", 10, &["a", "kept", "lost"], false);
    given.observed(1, vec![left_in_place(id, "kept", true), left_in_place(id, "lost", false)]);
    given.advanced("shop", "bbb", 2, 1);
    assert_eq!(pruned(&given.verdict("shop", &[(2, &["a"])])), ["kept"]);
    assert_eq!(view(&given.state, id).unwrap().inventory, 2);
    // A new applier states what it owns; it was not asked to delete it again.
    let stated = ["a", "kept"].map(|name| owned(id, name, false)).to_vec();
    given.observed_at(
        2,
        1,
        vec![Observed::InventoryStated { objects: stated, last: true, unlisted: Vec::new() }],
    );
    let shown = view(&given.state, id).unwrap();
    assert_eq!((shown.kept, shown.kept_objects.len()), (1, 1));
    assert_eq!(shown.kept_objects[0].identity, owned(id, "kept", false).identity);
    assert_eq!(shown.kept_objects[0].reason, "something in it is not deleted");
    // It is wanted again.
    let (object, write) = (owned(id, "kept", false), Write::Changed);
    given.observed_at(
        2,
        2,
        vec![Observed::ObjectApplied { sync: None, object, write, taken_over: Vec::new() }],
    );
    assert_eq!(view(&given.state, id).unwrap().kept, 0);
}

#[test]
fn what_was_kept_before_makes_no_prune_a_large_one() {
    let mut given = Given::agent_with(vec![source("shop")]);
    let id = SourceId::derive(AGENT, "shop");
    let all = names(24);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    given.applied("shop", 10, &all, false);
    given.advanced("shop", "bbb", 2, 11);
    assert!(matches!(given.verdict("shop", &[(2, &all[..11])]), Verdict::Hold { .. }));
    given.observed(1, all[11..].iter().map(|name| left_in_place(id, name, true)).collect());
    let shown = view(&given.state, id).unwrap();
    assert_eq!((shown.kept, shown.kept_objects.len()), (13, 13));
    assert_eq!(pruned(&given.verdict("shop", &[(2, &all[..11])])).len(), 13);
}
