//! What changes of pods' status take on the disk.

use events::observation::FieldWriter;

use super::*;

const PODS: u64 = 100;
/// Changes of each: so many that rows are full.
const CHANGES: u64 = 300;
/// A whole body, packed by itself as zstd packs it, takes 1,041 B; a change takes 0.15 of that at most.
const MOST: u64 = 156;

struct Pod {
    number: u64,
    uid: Text,
}

impl Pod {
    fn new(number: u64) -> Self {
        let uid = events::id::derived_uuid(&[&number.to_be_bytes()]).to_string();
        Self { number, uid: Text::from(uid.as_str()) }
    }

    /// It becomes ready and not ready in turns, as when its container crashes.
    fn body(&self, change: u64) -> Value {
        let name = format!("app-{:05}-6bb7c8fd5d-{:05x}", self.number / 4, self.number % 4);
        let is_ready = change.is_multiple_of(2);
        let ready = if is_ready { "True" } else { "False" };
        let at = format!("2026-05-04T11:{:02}:{:02}Z", change / 60 % 60, change % 60);
        let condition = |of: &str, status: &str, at: &str| json!({"lastProbeTime": null, "lastTransitionTime": at, "status": status, "type": of});
        let state = match is_ready {
            true => json!({"running": {"startedAt": at}}),
            false => json!({"waiting": {
                "message": format!("back-off 2m40s restarting failed container=main pod={name}_history"),
                "reason": "CrashLoopBackOff",
            }}),
        };
        let labels = json!({"app.kubernetes.io/instance": "app", "app.kubernetes.io/version": "1.14.2"});
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"creationTimestamp": "2026-05-04T10:11:12Z", "labels": labels, "name": name, "namespace": "history", "uid": &*self.uid},
            "spec": {
                "containers": [{
                    "env": [{"name": "CONFIG", "value": "/etc/shop/config.yaml"}, {"name": "REGION", "value": "north"}],
                    "image": "registry.example/shop/web:1.14.2", "imagePullPolicy": "IfNotPresent", "name": "main",
                    "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
                    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                    "volumeMounts": [{"mountPath": "/etc/shop", "name": "config", "readOnly": true}],
                }],
                "dnsPolicy": "ClusterFirst", "nodeName": "node-1", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            },
            "status": {
                "conditions": [
                    condition("Initialized", "True", "2026-05-04T10:11:13Z"), condition("Ready", ready, &at),
                    condition("ContainersReady", ready, &at), condition("PodScheduled", "True", "2026-05-04T10:11:12Z"),
                ],
                "containerStatuses": [{
                    "containerID": format!("containerd://{}", Sha256::of(name.as_bytes())),
                    "image": "registry.example/shop/web:1.14.2", "name": "main", "ready": is_ready,
                    "restartCount": change.div_ceil(2), "started": is_ready, "state": state,
                }],
                "hostIP": "192.0.2.10", "phase": "Running", "podIP": "10.244.1.2", "qosClass": "Burstable",
            },
        })
    }

    /// Ten pods' changes come in one record, at no regular times.
    fn change(&self, number: u64) -> Change {
        let record = self.number / 10;
        let recorded_at =
            at(7 * number).plus_millis(300 * i64::try_from(record).unwrap() + irregular(number, record));
        let seen_at = recorded_at.plus_millis(-irregular(number, 1_000 + self.number));
        let writer = FieldWriter {
            manager: "kubelet".to_owned(),
            operation: "Update".to_owned(),
            subresource: "status".to_owned(),
            at: Some(Timestamp(seen_at.0 / 1_000 * 1_000)),
        };
        Change {
            agent: AGENT,
            uid: self.uid.clone(),
            number,
            sequence: 10 * number + record,
            recorded_at,
            seen_at,
            not_before: None,
            what: if number == 1 { What::FirstSeen } else { What::Changed },
            writer: Some(writer),
            body: Some(Bytes::from(self.body(number).to_string())),
            health: if number.is_multiple_of(2) { HealthState::Healthy } else { HealthState::Degraded },
        }
    }
}

/// Milliseconds, fewer than 256.
fn irregular(number: u64, other: u64) -> i64 {
    let Sha256([first, ..]) = Sha256::of(&[number.to_be_bytes(), other.to_be_bytes()].concat());
    i64::from(first)
}

fn allocated(store: &Store) -> u64 {
    let stats = store.begin().unwrap().stats().unwrap();
    stats.allocated_pages() * u64::try_from(stats.page_size()).unwrap()
}

#[test]
fn a_change_of_a_pods_status_takes_a_small_part_of_its_body() {
    let life = in_memory();
    let pods: Vec<Pod> = (0..PODS).map(Pod::new).collect();
    let mut before = 0;
    for number in 1..=2 * CHANGES {
        let changes = pods.iter().map(|pod| pod.change(number)).collect();
        life.write(&Batch { changes, ..Batch::default() }, &Standing::default());
        if number == CHANGES {
            before = allocated(&life.store);
        }
    }
    life.store.sync().unwrap();
    let each = (allocated(&life.store) - before) / (PODS * CHANGES);
    println!("a change of a pod's status takes {each} B");
    assert!(each <= MOST, "{each}");
    let reader = life.store.reader().unwrap();
    let pod = &pods[17];
    for number in [1, 2, 99, 300, 2 * CHANGES] {
        let body = reader.body_after(AGENT, &pod.uid, number).unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), pod.body(number));
        let stored = reader.change(AGENT, &pod.uid, number).unwrap().unwrap();
        let change = pod.change(number);
        let told = (stored.sequence, stored.recorded_at, stored.seen_at, stored.writer, stored.health);
        assert_eq!(told, (change.sequence, change.recorded_at, change.seen_at, change.writer, change.health));
    }
}
