use events::grants::UserAccessAs;
use events::requests::rights::ReviewedNamespaces;
use serde_json::json;

use super::*;
use crate::model::given::{AGENT, Given, gone, kind, listed, object, pod, seen, usable};
use crate::model::{ClusterRights, Rights, Sight};

fn narrowed(namespaces: &[&str], resources: &[&str]) -> Narrowing {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Narrowing { namespaces: texts(namespaces), verbs: Vec::new(), resources: texts(resources) }
}

/// Two pods, a Namespace, a Node, a Secret in a namespace of its own that is gone, and a kind without objects.
fn cluster() -> Given {
    let mut given = Given::agents();
    let secret = object("v1", "Secret", "old/token", json!({}));
    given.says(vec![
        seen(&pod("shop/web", json!({}))),
        seen(&pod("test/web-2", json!({}))),
        seen(&object("v1", "Namespace", "quiet", json!({}))),
        seen(&object("v1", "Node", "one", json!({}))),
        seen(&secret),
        gone(&secret),
        listed(kind("example.com", "Widget", "widgets", ""), 1),
    ]);
    given
}

fn asked(given: &Given, grants: &[Narrowing]) -> (Vec<String>, Vec<String>) {
    let question = given.look(|view| Question::of(view, AGENT, grants));
    assert!(question.left_out.is_empty(), "{question:?}");
    let scope = |kind: &ReviewedKind| if kind.namespaced { "" } else { " in none" };
    let line = |kind: &ReviewedKind| format!("{}.{}{}", kind.resource, kind.group, scope(kind));
    (question.kinds.iter().map(line).collect(), question.namespaces)
}

#[test]
fn what_the_index_has_of_a_cluster_is_asked_about_as_far_as_the_configuration_leaves_it() {
    let given = cluster();
    let (kinds, namespaces) = asked(&given, &[Narrowing::default()]);
    assert_eq!(kinds, ["namespaces. in none", "nodes. in none", "pods.", "secrets.", "widgets.example.com"]);
    assert_eq!(namespaces, ["quiet", "shop", "test", "old"], "those that are there first");
    let (kinds, namespaces) = asked(&given, &[narrowed(&["shop"], &[]), narrowed(&["old"], &["secrets"])]);
    assert_eq!(kinds, ["namespaces. in none", "pods.", "secrets.", "widgets.example.com"]);
    assert_eq!(namespaces, ["shop", "old"]);
    let (kinds, namespaces) = asked(&given, &[narrowed(&[], &["pods"])]);
    assert_eq!((kinds.len(), namespaces.len()), (1, 4));
    assert_eq!(asked(&given, &[]), (Vec::new(), Vec::new()));
}

#[test]
fn a_question_is_limited_and_says_what_it_leaves_out() {
    let mut given = Given::agents();
    let namespaces =
        (0..=ReviewRights::NAMESPACES).map(|number| seen(&pod(&format!("n{number}/p{number}"), json!({}))));
    given.says(namespaces.collect());
    let kinds = (0..=ReviewRights::KINDS)
        .map(|number| listed(kind("example.com", &format!("K{number}"), &format!("k{number}s"), ""), 1));
    given.says(kinds.collect());
    let question = given.look(|view| Question::of(view, AGENT, &[Narrowing::default()]));
    assert_eq!(question.kinds.len(), ReviewRights::KINDS);
    assert_eq!(question.namespaces.len(), ReviewRights::NAMESPACES);
    assert_eq!(question.kinds[0].resource, "pods", "a kind with objects comes first");
    let listable = Listable::of(&question, ReviewedRights::default());
    assert_eq!(listable.unknown().len(), 2, "{listable:?}");
}

fn same(namespaces: &[&str], kinds: &[u32]) -> ReviewedNamespaces {
    ReviewedNamespaces {
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
        kinds: kinds.to_vec(),
    }
}

/// What is seen of the cluster by somebody whom it said this to, with these grants.
fn sees(given: &Given, grants: &[Narrowing], said: ReviewedRights) -> Vec<String> {
    let question = given.look(|view| Question::of(view, AGENT, &[Narrowing::default()]));
    let listable = Arc::new(Listable::of(&question, said));
    let mut of = usable(AGENT, UserAccessAs::User, Narrowing::default());
    of.grants = grants.to_vec();
    let rights = Rights::of([of]).with([(AGENT, ClusterRights::Known(listable))]);
    assert!(rights.shows(AGENT) && !rights.shows_all(AGENT));
    given.look_as(&rights, |view| {
        let all = view.index.slots().filter_map(|slot| view.there(slot));
        let mut seen: Vec<String> = all.map(|record| record.name.to_string()).collect();
        seen.sort();
        seen
    })
}

#[test]
fn only_what_both_the_configuration_and_the_cluster_permit_is_seen() {
    let given = cluster();
    let all = [Narrowing::default()];
    // Places: 0 namespaces, 1 nodes, 2 pods, 3 secrets.
    let everywhere =
        |kinds: &[u32]| ReviewedRights { everywhere: kinds.to_vec(), ..ReviewedRights::default() };
    assert_eq!(sees(&given, &all, everywhere(&[0, 1, 2])), ["one", "quiet", "web", "web-2"]);
    assert_eq!(sees(&given, &all, everywhere(&[2])), ["web", "web-2"]);
    assert_eq!(sees(&given, &[narrowed(&["shop"], &[])], everywhere(&[1, 2])), ["web"]);
    assert_eq!(sees(&given, &[narrowed(&[], &["nodes"])], everywhere(&[1, 2])), ["one"]);
    let somewhere =
        |same: Vec<ReviewedNamespaces>| ReviewedRights { somewhere: same, ..ReviewedRights::default() };
    assert_eq!(sees(&given, &all, somewhere(vec![same(&["test", "quiet"], &[2])])), ["web-2"]);
    assert_eq!(
        sees(&given, &all, somewhere(vec![same(&["quiet"], &[0, 1])])),
        ["quiet"],
        "nodes are in none"
    );
    assert_eq!(sees(&given, &all, somewhere(vec![same(&["shop"], &[3]), same(&["test"], &[])])), [""; 0]);
    assert_eq!(sees(&given, &all, everywhere(&[99])), [""; 0], "a place that is none");
    assert_eq!(sees(&given, &[], everywhere(&[0, 1, 2, 3])), [""; 0]);
}

#[test]
fn what_is_known_of_a_part_only_is_said_and_what_nobody_asked_is_unknown() {
    let unknown = vec!["the API server did not answer".to_owned()];
    let said = ReviewedRights { unknown, ..ReviewedRights::default() };
    let listable = Arc::new(Listable::of(&Question::default(), said));
    let rights = Rights::of([usable(AGENT, UserAccessAs::User, Narrowing::default())]);
    assert!(rights.unknown(AGENT).is_some() && !rights.shows(AGENT), "not asked yet");
    let known = rights.with([(AGENT, ClusterRights::Known(listable))]);
    assert_eq!(known.unknown(AGENT).unwrap(), "of a part: the API server did not answer");
    assert!(known.shows(AGENT));
    let away = known.with([(AGENT, ClusterRights::Unknown("away".to_owned()))]);
    assert_eq!((away.unknown(AGENT).as_deref(), away.shows(AGENT)), (Some("away"), false));
    let as_agent = Rights::of([usable(AGENT, UserAccessAs::Agent, Narrowing::default())]);
    let changed = as_agent.with([(AGENT, ClusterRights::Unknown("away".to_owned()))]);
    assert_eq!(changed, as_agent, "the cluster has no say where the agent is seen");
}

#[test]
fn namespaces_that_share_their_rights_share_memory() {
    let given = cluster();
    let question = given.look(|view| Question::of(view, AGENT, &[Narrowing::default()]));
    let somewhere = vec![same(&["shop", "test", "old"], &[2, 3]), same(&["quiet"], &[0])];
    let listable =
        Listable::of(&question, ReviewedRights { everywhere: vec![1], somewhere, unknown: Vec::new() });
    assert_eq!(listable.entries(), 1 + 4 + 2 + 1);
    let rights = Rights::of([usable(AGENT, UserAccessAs::User, Narrowing::default())])
        .with([(AGENT, ClusterRights::Known(Arc::new(listable)))]);
    assert!(rights.lists_somewhere(AGENT, "", "secrets") && !rights.lists_somewhere(AGENT, "", "configmaps"));
    let sight = Sight::of(&rights);
    assert!(
        sight.sees((AGENT, &Kind::new("", "Secret"), &Text::from("old")), || Some(Text::from("secrets")))
    );
    assert!(
        !sight.sees((AGENT, &Kind::new("", "Secret"), &Text::from("quiet")), || Some(Text::from("secrets")))
    );
}
