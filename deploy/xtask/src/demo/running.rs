//! What runs in the cluster, as the command line tells it once the shop is up.

use serde_json::Value;

use crate::client::Client;

/// Staging and production.
const ENVIRONMENTS: usize = 2;

const SHOWN: &[&[&str]] = &[
    &["env", "ls"],
    &["get", "deploy", "-n", "shop-staging"],
    &["tree", "deploy/storefront", "-n", "shop-staging"],
    &["why", "deploy/storefront", "-n", "shop-staging"],
    &["history", "deploy/storefront", "-n", "shop-staging", "--limit", "3"],
];

/// The commands with what they print, once the shop's first page is healthy and both environments are there; `None` before.
pub fn shown(client: &Client) -> Option<String> {
    let found = client.json(&["get", "deploy/storefront", "-n", "shop-staging"]).ok()?;
    let state = found.get(0)?.pointer("/health/state").and_then(Value::as_str);
    if state != Some("healthy") {
        return None;
    }
    let environments = client.json(&["env", "ls"]).ok()?;
    if environments.as_array().is_none_or(|all| all.len() < ENVIRONMENTS) {
        return None;
    }
    let mut text = String::new();
    for command in SHOWN {
        text.push_str(&format!("\n    $ kasbah {}\n", command.join(" ")));
        for line in client.call(command).ok()?.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    Some(text)
}
