use events::pass::{Narrowing, PassGrant, SignedPass};
use events::{Actor, AgentId, OrganizationId, Timestamp};
use uuid::Uuid;

use super::*;

fn kind(group: &str, resource: &str, namespaced: bool) -> ReviewedKind {
    ReviewedKind { group: group.to_owned(), resource: resource.to_owned(), namespaced }
}

fn question(namespaces: &[&str]) -> ReviewRights {
    ReviewRights {
        pass: SignedPass { pass: Vec::new(), signature: Vec::new() },
        roots: Vec::new(),
        kinds: vec![
            kind("", "pods", true),
            kind("apps", "deployments", true),
            kind("", "nodes", false),
            kind("", "namespaces", false),
        ],
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn grant(group: &str, namespaces: &[&str], resources: &[&str]) -> PassGrant {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let narrowing =
        Narrowing { namespaces: texts(namespaces), verbs: Vec::new(), resources: texts(resources) };
    PassGrant { narrowing, groups: vec![group.to_owned()], place: group.to_owned() }
}

fn pass(grants: Vec<PassGrant>) -> Pass {
    Pass {
        organization: OrganizationId(Uuid::nil()),
        agent: AgentId(Uuid::nil()),
        holder: Actor::service("test"),
        access_as: AccessAs::Impersonated(Impersonated {
            username: "kasbah:user:ann".to_owned(),
            groups: vec!["kasbah:user".to_owned()],
            ..Impersonated::default()
        }),
        grants,
        audit: events::audit::AuditMode::default(),
        record_sessions: events::recording::RecordSessions::default(),
        issued_at: Timestamp(0),
        expires_at: Timestamp(1),
    }
}

/// Kinds, and the groups as which they are asked about.
fn shown(asked: &[Asking]) -> Vec<(Vec<usize>, String)> {
    asked.iter().map(|asking| (asking.kinds.clone(), asking.whom.groups.join(" "))).collect()
}

#[test]
fn each_question_is_asked_as_the_one_whom_the_request_would_be_sent_as() {
    let pass = pass(vec![
        grant("everywhere", &[], &["pods", "nodes"]),
        grant("shop", &["shop"], &[]),
        grant("apps", &["shop"], &["*.apps"]),
    ]);
    let question = question(&["shop", "other"]);
    let first = in_all_namespaces(&pass, &question);
    let everywhere = "kasbah:user everywhere".to_owned();
    assert_eq!(shown(&first), [(vec![0], everywhere.clone()), (vec![2], everywhere.clone())]);
    assert!(first.iter().all(|asking| asking.whom.username == "kasbah:user:ann"));
    let shop = in_namespace(&pass, &question, &[0, 1, 2, 3], "shop");
    assert_eq!(
        shown(&shop),
        [
            (vec![0], "kasbah:user everywhere shop".to_owned()),
            (vec![1], "kasbah:user shop apps".to_owned()),
            (vec![3], "kasbah:user shop".to_owned()),
        ],
        "nodes are in no namespace, and a Namespace is read by its name"
    );
    assert_eq!(shown(&in_namespace(&pass, &question, &[0, 1, 3], "other")), [(vec![0], everywhere)]);
    let nobody = Pass { access_as: AccessAs::Agent, ..pass };
    assert!(in_all_namespaces(&nobody, &question).is_empty(), "the agent itself is not asked about");
}

#[test]
fn kinds_of_one_identity_are_asked_about_together() {
    let pass = pass(vec![grant("all", &[], &[])]);
    let asked = in_namespace(&pass, &question(&["shop"]), &[0, 1, 2, 3, 9], "shop");
    assert_eq!(shown(&asked), [(vec![0, 1, 3], "kasbah:user all".to_owned())]);
}

fn rules(rules: Value) -> Rules {
    let answer = json!({"status": {"resourceRules": rules, "nonResourceRules": [], "incomplete": false}});
    Rules::read(answer.to_string().as_bytes()).unwrap()
}

#[test]
fn a_rule_permits_a_list_by_its_verb_group_and_resource_and_never_by_names() {
    let pods = kind("", "pods", true);
    let deployments = kind("apps", "deployments", true);
    let permits = |rule: Value, kind: &ReviewedKind| rules(json!([rule])).permit(kind, "shop");
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    assert!(permits(rule(&["get", "list"], &[""], &["pods"]), &pods));
    assert!(permits(rule(&["*"], &["*"], &["*"]), &deployments));
    assert!(!permits(rule(&["get", "watch"], &[""], &["pods"]), &pods), "no list");
    assert!(!permits(rule(&["list"], &["apps"], &["pods"]), &pods), "another group");
    assert!(!permits(rule(&["list"], &[""], &["pods/log", "*/status"]), &pods), "what is below pods");
    assert!(!permits(rule(&["list"], &[""], &["deployments"]), &deployments), "another group");
    let mut named = rule(&["*"], &["*"], &["*"]);
    named["resourceNames"] = json!(["web"]);
    assert!(!permits(named.clone(), &pods), "a name permits no list");
    let both = rules(json!([named, rule(&["list"], &[""], &["pods"])]));
    assert!(both.permit(&pods, "shop") && !both.permit(&deployments, "shop"), "any rule permits");
    assert!(!rules(json!([])).permit(&pods, "shop"));
}

#[test]
fn a_namespace_is_seen_by_those_who_may_read_it_by_its_name() {
    let namespaces = kind("", "namespaces", false);
    let rule = |verb: &str, names: &[&str]| {
        let rule = json!([{"verbs": [verb], "apiGroups": [""], "resources": ["namespaces"], "resourceNames": names}]);
        rules(rule).permit(&namespaces, "shop")
    };
    assert!(rule("get", &[]) && rule("get", &["other", "shop"]) && rule("*", &[]));
    assert!(!rule("list", &[]) && !rule("get", &["other"]));
    let asked = access_review(&namespaces, "shop");
    let of = |verb: &str, place: &str| json!({"verb": verb, "group": "", "resource": "namespaces", "namespace": place, "name": place});
    assert_eq!(asked["spec"]["resourceAttributes"], of("get", "shop"));
    let asked = access_review(&namespaces, "");
    assert_eq!(asked["spec"]["resourceAttributes"], of("list", ""));
}

#[test]
fn only_a_clear_yes_is_one() {
    let allowed = |status: Value| is_allowed(json!({ "status": status }).to_string().as_bytes());
    assert!(allowed(json!({"allowed": true, "reason": "RBAC"})).unwrap());
    assert!(!allowed(json!({"allowed": false, "evaluationError": "no such role"})).unwrap());
    assert!(!allowed(json!({"allowed": true, "denied": true})).unwrap());
    assert!(allowed(json!({})).is_err() && is_allowed(b"{}").is_err() && Rules::read(b"{}").is_err());
}

#[test]
fn namespaces_with_the_same_rights_stand_together_and_reasons_are_limited() {
    let mut reviewed = Reviewed::default();
    reviewed.permit("", [2]);
    for namespace in ["b", "a"] {
        reviewed.permit(namespace, [0, 1]);
        reviewed.permit(namespace, [3]);
    }
    reviewed.permit("c", [0]);
    reviewed.permit("nothing", []);
    for number in 0..20 {
        reviewed.unknown(&format!("{number} {}", "x".repeat(1_000)));
    }
    assert_eq!(reviewed.rest(&question(&[])), [0, 1, 3]);
    let answer = reviewed.answer();
    let same = |namespaces: &[&str], kinds: &[u32]| ReviewedNamespaces {
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
        kinds: kinds.to_vec(),
    };
    assert_eq!(answer.everywhere, [2]);
    assert_eq!(answer.somewhere, [same(&["c"], &[0]), same(&["a", "b"], &[0, 1, 3])]);
    assert_eq!(answer.unknown.len(), ReviewRights::REASONS);
    assert!(answer.unknown.iter().all(|reason| reason.len() == 300));
}

#[test]
fn a_question_has_limits() {
    let mut question = question(&[]);
    question.namespaces = vec![String::new(); ReviewRights::NAMESPACES];
    question.kinds = vec![kind("", "pods", true); ReviewRights::KINDS];
    assert_eq!(check(&question), Ok(()));
    question.namespaces.push(String::new());
    assert_eq!(check(&question), Err(TooMuch));
    question.namespaces.pop();
    question.kinds.push(kind("", "pods", true));
    assert_eq!(check(&question), Err(TooMuch));
}
