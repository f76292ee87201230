//! Statements of the inventory that come in parts.

use events::SourceId;
use events::observation::Observed;

use crate::given::*;

fn part(names: &[&str], last: bool) -> Observed {
    let source = SourceId::derive(AGENT, "shop");
    let objects = names.iter().map(|name| owned(source, name, false)).collect();
    Observed::InventoryStated { objects, last, unlisted: Vec::new() }
}

/// What the source owns, as far as a bundle without objects would prune it.
fn inventory(given: &mut Given) -> Vec<String> {
    given.advanced("shop", "bbb", 2, 1);
    pruned(&given.verdict("shop", &[(2, &[])]))
}

#[test]
fn half_a_statement_ends_with_its_epoch() {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.observed_at(1, 1, vec![part(&["of-the-first"], false)]);
    let mut other_streams_first = given.clone();
    given.observed_at(2, 1, vec![part(&["a"], false), part(&["b"], true)]);
    assert_eq!(inventory(&mut given), ["a", "b"]);
    other_streams_first.observed_at(2, 3, Vec::new());
    other_streams_first.observed_at(2, 1, vec![part(&["a"], true)]);
    assert_eq!(inventory(&mut other_streams_first), ["a"]);
}

#[test]
fn a_statement_without_an_end_is_let_go_and_the_inventory_stays() {
    let mut given = Given::agent_with(vec![source("shop")]);
    given.observed_at(1, 1, vec![part(&["known"], true)]);
    let long = "x".repeat(1 << 20);
    let parts = u64::from(70_u32);
    for sequence in 0..parts {
        given.observed_at(1, 2 + sequence, vec![part(&[&long], false)]);
    }
    let size = store::Projection::snapshot(&given.state).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes are kept of what can never be used");
    given.observed_at(1, 2 + parts, vec![part(&["rest"], true)]);
    assert_eq!(inventory(&mut given), ["known"]);
    given.observed_at(1, 3 + parts, vec![part(&["anew"], true)]);
    assert_eq!(inventory(&mut given), ["anew"], "the next one counts again");
}
