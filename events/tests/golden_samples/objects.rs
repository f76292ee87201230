//! Changes of objects that agents saw, as they lie in the stream of objects.

use events::observation::{FieldWriter, Gone, MissingRight, ObjectBody, Observed, ObservedKind, SeenObject};
use events::{BlobDigest, Sha256, Timestamp};

use crate::samples::identity;

fn text(text: &str) -> String {
    text.to_owned()
}

/// All Deployments of one namespace.
fn kind() -> ObservedKind {
    ObservedKind {
        group: text("apps"),
        version: text("v1"),
        kind: text("Deployment"),
        plural: text("deployments"),
        namespaced: true,
        namespace: text("shop"),
    }
}

fn seen(body: ObjectBody, writers: Vec<FieldWriter>) -> Observed {
    let object = SeenObject {
        identity: identity(),
        uid: text("5f0c7f0e-5a7e-4a51-8a3f-2b1d0c9e8f7a"),
        resource_version: text("4711"),
        digest: Sha256([7; 32]),
        body,
        writers,
    };
    Observed::ObjectSeen { object: Box::new(object) }
}

/// One of each kind, as full as it may be.
pub fn of_object_changes() -> Vec<Observed> {
    let writer = FieldWriter {
        manager: text("kube-controller-manager"),
        operation: text("Update"),
        subresource: text("status"),
        at: Some(Timestamp(1_700_000_000_000)),
    };
    let missing = MissingRight {
        user: text("system:serviceaccount:kasbah:agent"),
        verb: text("list"),
        group: text("apps"),
        resource: text("deployments"),
        namespace: text("shop"),
    };
    let (uid, resource_version) = (text("u"), text("4712"));
    vec![
        seen(ObjectBody::Json(text(r#"{"kind":"Deployment","spec":{"replicas":2}}"#)), vec![writer]),
        Observed::ObjectKept { identity: identity(), uid: uid.clone(), digest: Sha256([7; 32]) },
        Observed::ObjectGone {
            identity: identity(),
            uid,
            resource_version: resource_version.clone(),
            why: Gone::Deleted,
        },
        Observed::KindListed { of: kind(), resource_version, since: 12, objects: 340 },
        Observed::KindBlind { of: kind(), reason: text("forbidden"), missing: Some(missing) },
        Observed::KindDropped { of: kind(), why: Gone::NotObserved },
        Observed::KindsSettled { silent: vec![text("metrics.k8s.io")] },
        Observed::ObjectsGap { of: kind(), from: text("4700"), to: text("4711"), dropped: 9 },
    ]
}

/// Others of the same kinds, by what is special of them.
pub fn further_object_changes() -> Vec<(&'static str, Observed)> {
    let blob = |blob| seen(ObjectBody::Blob { blob, bytes: 700_000 }, Vec::new());
    let everywhere = ObservedKind {
        group: String::new(),
        kind: text("Node"),
        plural: text("nodes"),
        namespaced: false,
        namespace: String::new(),
        ..kind()
    };
    vec![
        ("object-seen-without-its-body", blob(None)),
        ("object-seen-with-a-blob", blob(Some(BlobDigest([9; 32])))),
        ("kind-dropped-that-is-gone", Observed::KindDropped { of: everywhere, why: Gone::KindGone }),
    ]
}
