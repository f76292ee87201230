//! Dashboard and alert rules as they are shipped.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use crate::expressions::complaints;
use crate::root;

const RULES: &str = "deploy/monitoring/alerts.yaml";
const TESTS: &str = "deploy/monitoring/alerts-test.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasting: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    runbook: String,
}

#[test]
fn alerts_name_only_what_is_measured_and_say_what_to_do() {
    let text = fs::read_to_string(root().join(RULES)).unwrap();
    let rules: Rules = serde_saphyr::from_str(&text).unwrap();
    let mut names = BTreeSet::new();
    for group in rules.groups {
        assert!(!group.rules.is_empty(), "{} is empty", group.name);
        for rule in group.rules {
            let name = &rule.alert;
            assert!(names.insert(name.clone()), "{name} is there twice");
            assert!(name.starts_with("Kasbah"), "{name}");
            assert_eq!(complaints(&rule.expr), Vec::<String>::new(), "{name}: {}", rule.expr);
            assert!(rule.lasting.ends_with(['m', 'h', 's']), "{name}: {}", rule.lasting);
            assert!(["critical", "warning"].contains(&rule.labels.severity.as_str()), "{name}");
            assert!(rule.annotations.summary.len() > 10, "{name}");
            assert!(rule.annotations.runbook.len() > 40, "{name} does not say what to do");
        }
    }
    assert!(names.len() > 8, "{names:?}");
}

/// Every value of a key, wherever it stands.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key));
            fields.values().for_each(|field| all(field, key, found));
        }
        Value::Array(items) => items.iter().for_each(|item| all(item, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_shows_only_what_is_measured() {
    let text = fs::read_to_string(root().join(DASHBOARD)).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    let mut expressions = Vec::new();
    all(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 20, "{}", expressions.len());
    for expression in &expressions {
        let expression = expression.as_str().unwrap();
        assert_eq!(complaints(expression), Vec::<String>::new(), "{expression}");
        assert!(expression.contains("instance=~\"$instance\""), "{expression} is of all instances");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{} has no unit", panel["title"]);
        }
    }
    // Importable: nothing of the Grafana that it was made with.
    assert!(dashboard["id"].is_null());
    assert_eq!(dashboard["uid"], "kasbah");
}

#[derive(Deserialize)]
struct Tests {
    tests: Vec<OneTest>,
}

#[derive(Deserialize)]
struct OneTest {
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<Value>,
}

#[test]
fn each_alert_is_seen_to_fire() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let rules: Rules = serde_saphyr::from_str(&read(RULES)).unwrap();
    let tests: Tests = serde_saphyr::from_str(&read(TESTS)).unwrap();
    let tried = tests.tests.into_iter().flat_map(|test| test.alert_rule_test);
    let fired: BTreeSet<_> =
        tried.filter(|test| !test.exp_alerts.is_empty()).map(|test| test.alertname).collect();
    let alerts: BTreeSet<_> =
        rules.groups.into_iter().flat_map(|group| group.rules).map(|rule| rule.alert).collect();
    assert_eq!(fired, alerts);
}

/// Prometheus' own check, and its tests of the rules, where it can be had; the tests above do not need it.
#[test]
fn prometheus_itself_takes_the_rules() {
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        match Command::new(testkit::promtool()).current_dir(root()).args(arguments).output() {
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
            }
            Err(_) => println!("skipped: there is no promtool on this machine (Debian: prometheus)"),
        }
    }
}
