//! The baseline: the same changes as bare server-side applies, seen by the same watch.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use futures::StreamExt as _;
use testkit::{Cluster, ControlPlane, eventually};

use super::LIMIT;
use super::stage::Kind;
use super::watch::Watch;

/// The best of 8, 32 and 64 requests at once.
pub async fn first_apply(plane: &ControlPlane, kind: Kind, count: usize) -> anyhow::Result<Duration> {
    let mut best = Duration::MAX;
    let mut namespaces = Vec::new();
    for at_once in [8, 32, 64] {
        let namespace = plane.namespace("bare", false).await?;
        let watch = Watch::start(plane, &namespace, kind).await?;
        let cluster: Arc<Cluster> = Arc::new(Cluster::clone(plane));
        let start = SystemTime::now();
        let mut applies = futures::stream::iter(0..count)
            .map(|number| apply(Arc::clone(&cluster), namespace.clone(), kind, number, "first".to_owned()))
            .buffer_unordered(at_once);
        while let Some(applied) = applies.next().await {
            applied?;
        }
        let seen = watch.sees_many(count, "first").await?;
        best = best.min(seen.duration_since(start).unwrap_or_default());
        drop(applies);
        namespaces.push(namespace);
    }
    remove(plane, &namespaces).await?;
    Ok(best)
}

/// Deletes namespaces and waits until nothing of them is left, so that the next measurement has the machine for itself.
pub async fn remove(cluster: &Cluster, namespaces: &[String]) -> anyhow::Result<()> {
    let path = |namespace: &String| format!("/api/v1/namespaces/{namespace}");
    for namespace in namespaces {
        cluster.send(http::Method::DELETE, &path(namespace), None).await?;
    }
    for namespace in namespaces {
        eventually(LIMIT, || async {
            ensure!(!cluster.exists(&path(namespace)).await?, "{namespace} is still there");
            Ok(())
        })
        .await;
    }
    Ok(())
}

/// Changes of one object, one after the other.
pub async fn changes(plane: &ControlPlane, count: usize) -> anyhow::Result<Vec<Duration>> {
    let namespace = plane.namespace("bare", false).await?;
    let cluster: Arc<Cluster> = Arc::new(Cluster::clone(plane));
    apply(Arc::clone(&cluster), namespace.clone(), Kind::ConfigMap, 0, "first".to_owned()).await?;
    let watch = Watch::start(plane, &namespace, Kind::ConfigMap).await?;
    let mut times = Vec::new();
    for number in 0..count {
        let value = format!("change-{number}");
        let start = SystemTime::now();
        apply(Arc::clone(&cluster), namespace.clone(), Kind::ConfigMap, 0, value.clone()).await?;
        let seen = watch.sees(&Kind::ConfigMap.name(0), &value).await?;
        times.push(seen.duration_since(start).unwrap_or_default());
    }
    remove(plane, &[namespace]).await?;
    Ok(times)
}

async fn apply(
    cluster: Arc<Cluster>,
    namespace: String,
    kind: Kind,
    number: usize,
    value: String,
) -> anyhow::Result<()> {
    let object = kind.object(number, &value);
    let path = format!(
        "{}/namespaces/{namespace}/{}/{}?fieldManager=bare&force=true&fieldValidation=Strict",
        kind.api(),
        kind.plural(),
        kind.name(number)
    );
    let answer =
        cluster.send(http::Method::PATCH, &path, Some(("application/apply-patch+yaml", &object))).await?;
    ensure!(answer.status.is_success(), "bare apply: {}: {}", answer.status, answer.body);
    Ok(())
}
