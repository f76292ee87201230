//! Rules that a configuration declares.

use events::configuration::HealthRule;

use super::*;

fn rule(group: &str, kind: &str, healthy: &str) -> HealthRule {
    HealthRule {
        group: group.to_owned(),
        kind: kind.to_owned(),
        healthy: healthy.to_owned(),
        progressing: None,
        degraded: None,
        suspended: None,
        message: None,
    }
}

fn options(rules: &[HealthRule]) -> HealthOptions {
    HealthOptions { rules: Arc::new(RuleSet::new(rules)), ..HealthOptions::default() }
}

fn dock(status: &Value) -> Value {
    object("example.com/v1", "Dock", &json!({}), status)
}

fn full() -> HealthRule {
    HealthRule {
        progressing: Some("status.phase == 'Filling'".to_owned()),
        degraded: Some("status.phase in ['Broken', 'Filling']".to_owned()),
        suspended: Some("has(spec.paused) && spec.paused".to_owned()),
        message: Some("'phase ' + status.phase".to_owned()),
        ..rule("example.com", "Dock", "status.phase == 'Dry'")
    }
}

#[test]
fn the_first_expression_that_holds_decides() {
    let options = options(&[full()]);
    for (phase, expected) in
        [("Dry", Healthy), ("Filling", Progressing), ("Broken", Degraded), ("Elsewhere", Progressing)]
    {
        let health = judge_with(&dock(&json!({"phase": phase})), &options);
        assert_eq!((health.status, health.source), (expected, RuleSource::Declared), "{phase}: {health:?}");
        assert_eq!(health.message, format!("phase {phase}"));
    }
    let mut paused = dock(&json!({"phase": "Dry"}));
    paused["spec"] = json!({"paused": true});
    let health = judge_with(&paused, &options);
    assert!(health.status == Suspended && health.is_settled(), "{health:?}");
}

#[test]
fn deletion_and_an_older_generation_come_before_the_rule() {
    let options = options(&[rule("example.com", "Dock", "true")]);
    let stale = judge_with(&dock(&json!({"observedGeneration": 1})), &options);
    assert!(stale.status == Progressing && stale.message.contains("latest is 2"), "{stale:?}");
    let mut going = dock(&json!({}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let going = judge_with(&going, &options);
    assert!(going.terminating && going.source == RuleSource::Deletion, "{going:?}");
}

#[test]
fn a_rule_comes_before_the_built_in_and_the_generic_ones_and_judges_what_says_nothing() {
    let broken = json!({"conditions": [condition("Ready", "False", "Broken")]});
    let always = options(&[rule("example.com", "Dock", "true"), rule("", "Pod", "true")]);
    assert_eq!(judge_with(&dock(&broken), &always).status, Healthy);
    assert_eq!(judge(&dock(&broken)).status, Progressing);
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "status": {"phase": "Failed"}});
    assert_eq!((judge_with(&pod, &always).status, judge(&pod).status), (Healthy, Degraded));
    let bare = json!({"apiVersion": "example.com/v1", "kind": "Dock", "metadata": {"name": "x"}});
    assert_eq!(evaluate(&bare, NEW_YEAR, &HealthOptions::default()), None);
    let asks = options(&[rule("example.com", "Dock", "has(status.phase) && status.phase == 'Dry'")]);
    let health = judge_with(&bare, &asks);
    assert_eq!((health.status, health.message.as_str()), (Progressing, "no expression of the rule holds"));
}

#[test]
fn what_cannot_be_evaluated_is_unknown_and_holds_a_wait() {
    let options = options(&[rule("example.com", "Dock", "status.phase == 'Dry'")]);
    let health = judge_with(&dock(&json!({})), &options);
    assert_eq!(health.status, Unknown);
    let why = "the rule's expression 'healthy' cannot be evaluated: column 7: there is no field 'phase'";
    assert_eq!(health.message, why);
    assert!(!health.is_settled() && health.source == RuleSource::Declared);
}

#[test]
fn a_message_that_fails_says_so_and_the_state_stands() {
    let mut failing = rule("example.com", "Dock", "true");
    failing.message = Some("status.absent".to_owned());
    let health = judge_with(&dock(&json!({})), &options(&[failing]));
    assert_eq!(health.status, Healthy);
    assert!(health.message.starts_with("the rule's message cannot be evaluated"), "{health:?}");
    let mut silent = rule("example.com", "Dock", "false");
    silent.degraded =
        Some("status.conditions.exists(c, c.type == 'Ready' && c.status == 'False')".to_owned());
    let status = json!({"conditions": [condition("Ready", "False", "Leaks")]});
    let health = judge_with(&dock(&status), &options(&[silent]));
    assert_eq!((health.status, health.message.as_str()), (Degraded, "Leaks: told"));
}

#[test]
fn the_rule_that_names_a_kind_comes_before_patterns_and_these_in_their_order() {
    let rules = [
        rule("*.example.com", "*", "false"),
        rule("*", "Dock", "false"),
        rule("sea.example.com", "Dock", "true"),
    ];
    let set = RuleSet::new(&rules);
    let judged = |api_version: &str, kind: &str| {
        let object = object(api_version, kind, &json!({}), &json!({}));
        evaluate(&object, NEW_YEAR, &options(&rules)).map(|health| (health.status, health.source))
    };
    assert_eq!(judged("sea.example.com/v1", "Dock"), Some((Healthy, RuleSource::Declared)));
    assert_eq!(judged("sea.example.com/v1", "Pier"), Some((Progressing, RuleSource::Declared)));
    assert_eq!(judged("lake/v1", "Dock"), Some((Progressing, RuleSource::Declared)));
    assert!(!set.covers("lake", "Pier"));
    let everything = RuleSet::new(&[rule("*", "*", "true")]);
    assert!(everything.covers("apps", "Deployment") && !everything.covers("", "Secret"));
}

#[test]
fn a_rule_set_is_named_by_its_definitions() {
    let (one, other) = (RuleSet::new(&[full()]), RuleSet::new(&[rule("example.com", "Dock", "true")]));
    assert_eq!(one.version().len(), 12);
    assert_ne!(one.version(), other.version());
    assert_eq!(one, RuleSet::new(&[full()]));
    assert_eq!(RuleSet::new(&[]).version(), "");
}

#[test]
fn a_rule_that_cannot_be_read_here_judges_unknown() {
    let health = judge_with(&dock(&json!({})), &options(&[rule("example.com", "Dock", "later.invented(3)")]));
    assert_eq!(health.status, Unknown);
    assert!(health.message.contains("no function 'invented'"), "{health:?}");
}

#[test]
fn pods_explain_a_workload_with_a_rule_and_leave_its_state() {
    let mut deployment = object("apps/v1", "Deployment", &json!({}), &json!({}));
    deployment["metadata"]["uid"] = json!("u");
    let declared =
        Health { source: RuleSource::Declared, ..Health::progressing("no expression of the rule holds") };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x-1-a", "ownerReferences":
        [{"kind": "ReplicaSet", "name": "x-1", "uid": "r", "controller": true}]}, "status": {"phase": "Failed"}});
    let health = with_pods(&deployment, declared, &[pod], &[], NEW_YEAR, &HealthOptions::default());
    assert!(health.status == Progressing && health.message.contains("pod x-1-a"), "{health:?}");
}
