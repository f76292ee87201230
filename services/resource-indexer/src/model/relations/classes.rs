//! Classes and drivers: which kind of storage, of gateway, of priority an object has, and what attaches volumes to nodes.

use super::usage::add_named;
use super::{Body, Key, Link, Relation};

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

pub(super) fn add(body: &Body<'_>, links: &mut Vec<Link>) {
    let mut uses = |group: &str, kind: &str, pointer: &str| {
        let name = body.text(pointer);
        if !name.is_empty() {
            links.push(Link::to_key(Relation::Uses, Key::new(group, kind, "", name)));
        }
    };
    match (body.group, body.kind) {
        ("", "PersistentVolumeClaim") => {
            uses(STORAGE, "StorageClass", "/spec/storageClassName");
            uses(STORAGE, "VolumeAttributesClass", "/spec/volumeAttributesClassName");
        }
        ("", "PersistentVolume") => {
            uses(STORAGE, "StorageClass", "/spec/storageClassName");
            uses(STORAGE, "CSIDriver", "/spec/csi/driver");
        }
        ("", "Pod") => {
            uses("scheduling.k8s.io", "PriorityClass", "/spec/priorityClassName");
            uses("node.k8s.io", "RuntimeClass", "/spec/runtimeClassName");
        }
        (STORAGE, "StorageClass") => uses(STORAGE, "CSIDriver", "/provisioner"),
        (STORAGE, "VolumeAttachment") => {
            uses(STORAGE, "CSIDriver", "/spec/attacher");
            let volume = body.text("/spec/source/persistentVolumeName");
            add_named(links, Relation::Binds, "PersistentVolume", "", volume);
            add_named(links, Relation::RunsOn, "Node", "", body.text("/spec/nodeName"));
        }
        (SNAPSHOTS, "VolumeSnapshot") => {
            uses(SNAPSHOTS, "VolumeSnapshotClass", "/spec/volumeSnapshotClassName");
            let claim = body.text("/spec/source/persistentVolumeClaimName");
            add_named(links, Relation::Reads, "PersistentVolumeClaim", body.namespace, claim);
        }
        ("networking.k8s.io" | "extensions", "Ingress") => {
            uses("networking.k8s.io", "IngressClass", "/spec/ingressClassName");
        }
        ("gateway.networking.k8s.io", "Gateway") => {
            uses("gateway.networking.k8s.io", "GatewayClass", "/spec/gatewayClassName");
        }
        _ => {}
    }
}
