//! What a PromQL expression names. Not a parser: it only has to tell metrics and labels from the words of the language.

use std::collections::BTreeSet;

/// Words of the language that may stand where a metric may.
const WORDS: &[&str] = &[
    "sum",
    "max",
    "min",
    "avg",
    "count",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "rate",
    "increase",
    "delta",
    "deriv",
    "changes",
    "resets",
    "time",
    "histogram_quantile",
    "max_over_time",
    "min_over_time",
    "avg_over_time",
    "last_over_time",
    "absent",
    "clamp_min",
    "clamp_max",
    "label_replace",
    "topk",
    "offset",
    "bool",
    "vector",
    "label_values",
    "query_result",
];
/// Labels that scraping adds.
const OF_SCRAPING: &[&str] = &["job", "instance", "namespace", "pod"];

/// Metrics and labels that an expression names; `known` are the metrics there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub metrics: BTreeSet<String>,
    pub labels: BTreeSet<String>,
    /// Words that are neither.
    pub strange: BTreeSet<String>,
}

/// Takes an expression apart.
pub fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let (mut inside, mut grouped, mut rest) = (false, None::<usize>, expression);
    let mut depth = 0_usize;
    while let Some(letter) = rest.chars().next() {
        match letter {
            '"' => {
                let text = rest[1..].split('"').next().unwrap();
                rest = &rest[text.len() + 2..];
                continue;
            }
            '[' => {
                rest = rest.split_once(']').unwrap().1;
                continue;
            }
            '{' => inside = true,
            '}' => inside = false,
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                grouped = grouped.filter(|at| *at <= depth);
            }
            '$' => {
                rest = rest[1..].trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_');
                continue;
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => {
                let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
                let word = &rest[..end.unwrap_or(rest.len())];
                rest = &rest[word.len()..];
                if inside || grouped.is_some() {
                    named.labels.insert(word.to_owned());
                } else if word.starts_with("kasbah_") || word.starts_with("process_") || word == "up" {
                    named.metrics.insert(word.to_owned());
                } else if !WORDS.contains(&word) {
                    named.strange.insert(word.to_owned());
                } else if ["by", "without", "on", "ignoring", "group_left", "group_right"].contains(&word) {
                    grouped = rest.trim_start().starts_with('(').then_some(depth + 1);
                }
                continue;
            }
            letter if letter.is_ascii_digit() => {
                // A number, with its unit where it is a time.
                rest =
                    rest.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '.');
                continue;
            }
            _ => {}
        }
        rest = &rest[letter.len_utf8()..];
    }
    named
}

/// What is wrong with an expression.
pub fn complaints(expression: &str) -> Vec<String> {
    let known = crate::declared::series();
    let named = named(expression);
    let mut found: Vec<String> =
        named.strange.iter().map(|word| format!("{word} is no metric and no word of the language")).collect();
    let mut labels: BTreeSet<&str> = OF_SCRAPING.iter().copied().collect();
    for metric in &named.metrics {
        match known.get(metric) {
            Some(of_metric) => labels.extend(of_metric),
            None if metric == "up" => {}
            None => found.push(format!("there is no {metric}")),
        }
    }
    let unknown = named.labels.iter().filter(|label| !labels.contains(label.as_str()));
    found.extend(unknown.map(|label| format!("no metric in it has a label {label}")));
    if named.metrics.is_empty() {
        found.push("it names no metric".to_owned());
    }
    found
}

#[test]
fn expressions_are_taken_apart() {
    let text = r#"histogram_quantile(0.99, sum by (le, route) (rate(kasbah_a_seconds_bucket{instance=~"$instance", status="5xx"}[5m]))) > 0.5 and on (job) up == 1"#;
    let found = named(text);
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found.metrics, set(&["kasbah_a_seconds_bucket", "up"]));
    assert_eq!(found.labels, set(&["instance", "job", "le", "route", "status"]));
    assert_eq!(found.strange, set(&[]));
}

#[test]
fn what_does_not_exist_is_found() {
    assert_eq!(
        complaints("sum(rate(kasbah_console_requests_total{status=\"500\"}[5m]))"),
        Vec::<String>::new()
    );
    for (wrong, complaint) in [
        ("kasbah_console_request_total", "there is no kasbah_console_request_total"),
        ("kasbah_console_requests_total{code=\"500\"}", "no metric in it has a label code"),
        ("sum by (agent) (kasbah_tunnel_gateway_agents)", "no metric in it has a label agent"),
        ("ratte(kasbah_console_pushes_total[5m])", "ratte is no metric and no word of the language"),
        ("1 > 0", "it names no metric"),
    ] {
        assert_eq!(complaints(wrong), [complaint], "{wrong}");
    }
}
