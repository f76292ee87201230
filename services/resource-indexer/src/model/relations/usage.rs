//! What pods need to run: configuration, secrets, volumes, identity, a node; and the volume behind a claim.

use serde_json::Value;

use super::{Body, Claimed, Key, Link, Relation, Target, list, text};
use crate::model::selector::Selector;
use crate::model::text::Text;

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    match body.kind {
        "Pod" => pod(body, links),
        "PersistentVolumeClaim" => {
            add_named(links, Relation::Binds, "PersistentVolume", "", body.text("/spec/volumeName"));
        }
        "Secret" => add_account_of_token(body, links),
        "ServiceAccount" => {
            for secret in body.list("/secrets").chain(body.list("/imagePullSecrets")) {
                add_named(links, Relation::Reads, "Secret", body.namespace, text(secret, "/name"));
            }
        }
        _ => {}
    }
}

fn pod(body: &Body<'_>, links: &mut Vec<Link>) {
    add_named(links, Relation::RunsOn, "Node", "", body.text("/spec/nodeName"));
    let account = body.text("/spec/serviceAccountName");
    add_named(links, Relation::RunsAs, "ServiceAccount", body.namespace, account);
    for volume in body.list("/spec/volumes") {
        add_volume(body, volume, links);
    }
    for secret in body.list("/spec/imagePullSecrets") {
        add_named(links, Relation::Reads, "Secret", body.namespace, text(secret, "/name"));
    }
    for containers in ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"] {
        for container in body.list(containers) {
            add_environment(body, container, links);
        }
    }
}

fn add_volume(body: &Body<'_>, volume: &Value, links: &mut Vec<Link>) {
    let mut mounts = |kind: &str, name: &str| add_named(links, Relation::Mounts, kind, body.namespace, name);
    mounts("ConfigMap", text(volume, "/configMap/name"));
    mounts("Secret", text(volume, "/secret/secretName"));
    mounts("PersistentVolumeClaim", text(volume, "/persistentVolumeClaim/claimName"));
    if volume.get("ephemeral").is_some() {
        // The claim of such a volume is made for the pod, under this name.
        let name = format!("{}-{}", body.name, text(volume, "/name"));
        mounts("PersistentVolumeClaim", &name);
    }
    for source in list(volume, "/projected/sources") {
        mounts("ConfigMap", text(source, "/configMap/name"));
        mounts("Secret", text(source, "/secret/name"));
    }
}

fn add_environment(body: &Body<'_>, container: &Value, links: &mut Vec<Link>) {
    let mut reads = |kind: &str, name: &str| add_named(links, Relation::Reads, kind, body.namespace, name);
    for from in list(container, "/envFrom") {
        reads("ConfigMap", text(from, "/configMapRef/name"));
        reads("Secret", text(from, "/secretRef/name"));
    }
    for variable in list(container, "/env") {
        reads("ConfigMap", text(variable, "/valueFrom/configMapKeyRef/name"));
        reads("Secret", text(variable, "/valueFrom/secretKeyRef/name"));
    }
}

/// A link to an object of the core group, if its name is given.
pub(super) fn add_named(links: &mut Vec<Link>, relation: Relation, kind: &str, namespace: &str, name: &str) {
    if !name.is_empty() {
        links.push(Link::to_key(relation, Key::new("", kind, namespace, name)));
    }
}

/// Names of claims that one StatefulSet may make.
const TEMPLATES: usize = 50;

/// The claims that a StatefulSet made, also those of pods that are no more: `<template>-<set>-<ordinal>`, with the labels of its pods.
pub(super) fn add_claims(body: &Body<'_>, links: &mut Vec<Link>) {
    if body.kind != "StatefulSet" {
        return;
    }
    let templates = body.list("/spec/volumeClaimTemplates").map(|template| text(template, "/metadata/name"));
    let prefixes = templates.filter(|name| !name.is_empty()).take(TEMPLATES);
    let prefixes: Box<[Text]> =
        prefixes.map(|name| Text::from(format!("{name}-{}-", body.name).as_str())).collect();
    let labels = Selector::of_labels(body.value, "/spec/selector/matchLabels");
    if let (false, Some(labels)) = (prefixes.is_empty(), labels) {
        let claimed = Claimed { namespace: Text::from(body.namespace), prefixes, selector: labels };
        links.push(Link { relation: Relation::Mounts, target: Target::Claims(Box::new(claimed)) });
    }
}

/// The account that a token was made for.
fn add_account_of_token(body: &Body<'_>, links: &mut Vec<Link>) {
    let annotation =
        |name: &str| body.text(&format!("/metadata/annotations/kubernetes.io~1service-account.{name}"));
    let (name, uid) = (annotation("name"), annotation("uid"));
    if body.text("/type") == "kubernetes.io/service-account-token" && !uid.is_empty() {
        let account = Key::new("", "ServiceAccount", body.namespace, name);
        links.push(Link { relation: Relation::Owns, target: Target::Uid(Text::from(uid), account) });
    }
}
