//! A fresh list of everything that the API server has, beside what the index has: the same objects, no other, with the same bodies.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, eventually};

use super::stage::Stage;
use crate::scene::LIMIT;

/// Kinds that are not compared: Leases are not observed, and of Events only a few for each object.
const LEFT_OUT: &[(&str, &str)] =
    &[("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")];
/// What the agent leaves out of a body.
const PRUNED: &[&str] = &["managedFields", "resourceVersion"];
const COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Group, kind, namespace and name.
type Key = (String, String, String, String);

/// Waits until the index has exactly what the API server lists.
pub async fn agree(stage: &Stage) {
    eventually(LIMIT, || async {
        let listed = listed(stage.cluster()).await?;
        let indexed = indexed(stage)?;
        let uids: BTreeMap<&Key, &str> = listed.iter().map(|(key, object)| (key, uid(object))).collect();
        let known: BTreeMap<&Key, &str> = indexed.iter().map(|(key, uid)| (key, uid.as_str())).collect();
        let differing: BTreeSet<_> =
            uids.iter().filter(|(key, uid)| known.get(*key) != Some(uid)).map(|(key, _)| key).collect();
        ensure!(differing.is_empty(), "not in the index, or another: {differing:?}");
        let foreign: Vec<_> = known.keys().filter(|key| !uids.contains_key(*key)).collect();
        ensure!(foreign.is_empty(), "only in the index: {foreign:?}");
        for (key, object) in listed.iter().filter(|((_, _, namespace, _), _)| namespace == stage.namespace())
        {
            let body = body(stage, key)?;
            ensure!(body == pruned(object), "{key:?} is another: {body:#}, listed {object:#}");
        }
        Ok(())
    })
    .await;
}

fn indexed(stage: &Stage) -> Result<BTreeMap<Key, String>> {
    let found = stage.get(&[])?;
    let mut all = BTreeMap::new();
    for object in found.iter().filter(|object| object["identity"]["kind"] != "Event") {
        let text = |field: &str| object["identity"][field].as_str().unwrap_or_default().to_owned();
        let key = (text("group"), text("kind"), text("namespace"), text("name"));
        let uid = object["uid"].as_str().context("no uid")?.to_owned();
        ensure!(all.insert(key.clone(), uid).is_none(), "{key:?} twice");
    }
    Ok(all)
}

/// The body in the index, as JSON.
fn body(stage: &Stage, (group, kind, namespace, name): &Key) -> Result<Value> {
    let dot = if group.is_empty() { "" } else { "." };
    let shown = stage.json(&["show", &format!("{kind}{dot}{group}/{name}"), "-n", namespace])?;
    Ok(serde_json::from_str(shown["body"].as_str().context("no body")?)?)
}

/// Everything that can be listed and watched.
async fn listed(cluster: &Cluster) -> Result<BTreeMap<Key, Value>> {
    let mut all = BTreeMap::new();
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    for group in cluster.get("/apis").await?["groups"].as_array().context("no groups")? {
        let version = group["preferredVersion"]["groupVersion"].as_str().context("no version")?;
        versions.push((group["name"].as_str().unwrap_or_default().to_owned(), format!("/apis/{version}")));
    }
    for (group, path) in versions {
        for resource in cluster.get(&path).await?["resources"].as_array().context("no resources")? {
            let name = resource["name"].as_str().unwrap_or_default();
            let verbs = resource["verbs"].as_array().cloned().unwrap_or_default();
            let is_read = ["list", "watch"].iter().all(|verb| verbs.contains(&Value::from(*verb)));
            if name.contains('/') || !is_read || LEFT_OUT.contains(&(group.as_str(), name)) {
                continue;
            }
            let (kind, list) = (resource["kind"].as_str().unwrap_or_default(), format!("{path}/{name}"));
            for mut object in cluster.get(&list).await?["items"].as_array().cloned().unwrap_or_default() {
                object["kind"] = kind.into();
                object["apiVersion"] = path.trim_start_matches("/apis/").trim_start_matches("/api/").into();
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                let key = (group.clone(), kind.to_owned(), text("namespace"), text("name"));
                all.insert(key, object);
            }
        }
    }
    Ok(all)
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The object as the agent tells it. No Secret is among those that are compared.
fn pruned(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| !PRUNED.contains(&field.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(COPY);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}
