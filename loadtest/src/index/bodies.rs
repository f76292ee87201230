//! Objects as agents report them: applications of ten objects each, and pods whose status changes.

use events::id::derived_uuid;
use events::observation::{FieldWriter, ObjectBody, Observed, SeenObject};
use events::{ObjectIdentity, Sha256};
use serde_json::{Value, json};

/// Objects of an application besides its pods.
pub const BESIDE_PODS: usize = 6;
/// Its pods.
const PODS: usize = 4;
/// Objects of an application.
pub const OF_EACH: usize = BESIDE_PODS + PODS;

/// Where an application is.
#[derive(Debug, Clone)]
pub struct Place {
    /// A number for the cluster: equal names there are other objects.
    pub cluster: usize,
    pub namespace: String,
    pub name: String,
}

/// A pod of an application, which changes.
#[derive(Debug, Clone)]
pub struct Pod {
    pub place: Place,
    pub number: usize,
}

impl Place {
    fn uid(&self, kind: &str, name: &str) -> String {
        derived_uuid(&[
            &self.cluster.to_be_bytes(),
            kind.as_bytes(),
            self.namespace.as_bytes(),
            name.as_bytes(),
        ])
        .to_string()
    }

    fn metadata(&self, kind: &str, name: &str, owner: Option<(&str, &str, &str)>) -> Value {
        let owners: Vec<Value> = owner
            .map(|(version, kind, name)| {
                json!({
                    "apiVersion": version, "blockOwnerDeletion": true, "controller": true, "kind": kind,
                    "name": name, "uid": self.uid(kind, name),
                })
            })
            .into_iter()
            .collect();
        json!({
            "creationTimestamp": "2026-05-04T10:11:12Z",
            "generation": 1,
            "labels": {
                "app.kubernetes.io/instance": self.name, "app.kubernetes.io/name": self.name,
                "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/version": "1.14.2",
            },
            "name": name,
            "namespace": self.namespace,
            "ownerReferences": owners,
            "uid": self.uid(kind, name),
        })
    }

    fn set(&self) -> String {
        format!("{}-6bb7c8fd5d", self.name)
    }

    /// The application's pods.
    pub fn pods(&self) -> impl Iterator<Item = Pod> {
        self.first_pods(PODS)
    }

    /// As many pods, where it has more than others.
    pub fn first_pods(&self, count: usize) -> impl Iterator<Item = Pod> {
        (0..count).map(|number| Pod { place: self.clone(), number })
    }

    /// All of the application, as it is when it is well.
    pub fn objects(&self) -> Vec<Observed> {
        self.objects_with(PODS)
    }

    /// The same with as many pods.
    pub fn objects_with(&self, pods: usize) -> Vec<Observed> {
        let name = self.name.as_str();
        let (set, slice) = (self.set(), format!("{name}-x7k2p"));
        let selector = json!({"matchLabels": {"app.kubernetes.io/instance": name}});
        let template = json!({
            "metadata": {"labels": {"app.kubernetes.io/instance": name, "app.kubernetes.io/name": name}},
            "spec": containers(name),
        });
        let status = json!({
            "availableReplicas": pods, "observedGeneration": 1, "readyReplicas": pods, "replicas": pods,
            "updatedReplicas": pods,
        });
        let mut bodies = vec![
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata("Deployment", name, None),
                "spec": {"replicas": pods, "selector": selector, "template": template}, "status": status,
            }),
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": self.metadata("ReplicaSet", &set, Some(("apps/v1", "Deployment", name))),
                "spec": {"replicas": pods, "selector": selector, "template": template}, "status": status,
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": self.metadata("Service", name, None),
                "spec": {
                    "clusterIP": "10.96.12.7", "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                    "selector": {"app.kubernetes.io/instance": name}, "type": "ClusterIP",
                },
                "status": {"loadBalancer": {}},
            }),
            json!({
                "addressType": "IPv4", "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "endpoints": self.first_pods(pods).map(|pod| pod.endpoint()).collect::<Vec<_>>(),
                "metadata": self.metadata("EndpointSlice", &slice, Some(("v1", "Service", name))),
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }),
            json!({
                "apiVersion": "v1", "data": {"config.yaml": "log: info\nlisten: 0.0.0.0:8080\n"}, "kind": "ConfigMap",
                "metadata": self.metadata("ConfigMap", name, None),
            }),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata("ServiceAccount", name, None),
            }),
        ];
        bodies.extend(self.first_pods(pods).map(|pod| pod.body(0)));
        bodies.iter().map(seen).collect()
    }
}

fn containers(name: &str) -> Value {
    json!({
        "containers": [{
            "env": [{"name": "CONFIG", "value": "/etc/shop/config.yaml"}, {"name": "REGION", "value": "north"}],
            "image": "registry.example/shop/web:1.14.2",
            "imagePullPolicy": "IfNotPresent",
            "name": "main",
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "terminationMessagePath": "/dev/termination-log",
            "volumeMounts": [{"mountPath": "/etc/shop", "name": "config", "readOnly": true}],
        }],
        "dnsPolicy": "ClusterFirst",
        "nodeName": "node-1",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"configMap": {"defaultMode": 420, "name": name}, "name": "config"}],
    })
}

impl Pod {
    fn name(&self) -> String {
        format!("{}-{:05x}", self.place.set(), self.number)
    }

    fn address(&self) -> String {
        format!("10.244.{}.{}", self.place.cluster % 250, self.number + 2)
    }

    fn endpoint(&self) -> Value {
        json!({
            "addresses": [self.address()], "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": "node-1",
            "targetRef": {"kind": "Pod", "name": self.name(), "namespace": self.place.namespace, "uid": self.place.uid("Pod", &self.name())},
        })
    }

    /// As it is after so many changes of its status: it becomes ready and not ready in turns, as when a container crashes.
    fn body(&self, changes: usize) -> Value {
        let name = self.name();
        let is_ready = changes.is_multiple_of(2);
        let ready = if is_ready { "True" } else { "False" };
        let (minute, second) = (changes / 60 % 60, changes % 60);
        let at = format!("2026-05-04T11:{minute:02}:{second:02}Z");
        let condition = |of: &str, status: &str, at: &str| json!({"lastProbeTime": null, "lastTransitionTime": at, "status": status, "type": of});
        let state = match is_ready {
            true => json!({"running": {"startedAt": at}}),
            false => json!({"waiting": {
                "message": format!("back-off 2m40s restarting failed container=main pod={name}_{}", self.place.namespace),
                "reason": "CrashLoopBackOff",
            }}),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.place.metadata("Pod", &name, Some(("apps/v1", "ReplicaSet", &self.place.set()))),
            "spec": containers(&self.place.name),
            "status": {
                "conditions": [
                    condition("Initialized", "True", "2026-05-04T10:11:13Z"), condition("Ready", ready, &at),
                    condition("ContainersReady", ready, &at), condition("PodScheduled", "True", "2026-05-04T10:11:12Z"),
                ],
                "containerStatuses": [{
                    "containerID": "containerd://0f6bb7c8fd5d0f6bb7c8fd5d0f6bb7c8fd5d0f6bb7c8fd5d0f6bb7c8fd5d0f6b",
                    "image": "registry.example/shop/web:1.14.2", "imageID": "registry.example/shop/web@sha256:0f6bb7c8fd5d",
                    "name": "main", "ready": is_ready, "restartCount": changes.div_ceil(2), "started": is_ready, "state": state,
                }],
                "hostIP": "192.0.2.10", "phase": "Running", "podIP": self.address(), "podIPs": [{"ip": self.address()}],
                "qosClass": "Burstable", "startTime": "2026-05-04T10:11:12Z",
            },
        })
    }

    /// The report of it after so many changes.
    pub fn changed(&self, changes: usize) -> Observed {
        seen(&self.body(changes))
    }

    /// Its whole body after so many changes.
    pub fn whole(&self, changes: usize) -> String {
        self.body(changes).to_string()
    }
}

fn seen(body: &Value) -> Observed {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let identity = ObjectIdentity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    };
    let writer = FieldWriter {
        manager: "kubelet".to_owned(),
        operation: "Update".to_owned(),
        subresource: "status".to_owned(),
        at: None,
    };
    let uid = text("/metadata/uid");
    let body = body.to_string();
    Observed::ObjectSeen {
        object: Box::new(SeenObject {
            identity,
            uid,
            resource_version: "1".to_owned(),
            digest: Sha256::of(body.as_bytes()),
            body: ObjectBody::Json(body),
            writers: vec![writer],
        }),
    }
}
