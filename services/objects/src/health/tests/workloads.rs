//! What runs pods.

use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn deployments() {
    let available = condition("Available", "True", "MinimumReplicasAvailable");
    let rolled_out = condition("Progressing", "True", "NewReplicaSetAvailable");
    let good = json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [rolled_out, available]});
    let spec = json!({"replicas": 2, "progressDeadlineSeconds": 600});
    let conditions = |list: Value| with(&good, "/conditions", list);
    table(
        "apps/v1",
        "Deployment",
        &[
            ("rolled out", spec.clone(), good.clone(), Healthy),
            ("no status", spec.clone(), json!({}), Progressing),
            ("stale", spec.clone(), with(&good, "/observedGeneration", json!(1)), Progressing),
            ("paused", with(&spec, "/paused", json!(true)), good.clone(), Suspended),
            ("too few updated", spec.clone(), with(&good, "/updatedReplicas", json!(1)), Progressing),
            ("old ones left", spec.clone(), with(&good, "/replicas", json!(3)), Progressing),
            ("too few available", spec.clone(), with(&good, "/availableReplicas", json!(1)), Progressing),
            ("too few ready", spec.clone(), with(&good, "/readyReplicas", json!(1)), Progressing),
            ("replicas default to one", json!({}), json!({}), Progressing),
            ("none wanted, none seen", json!({"replicas": 0}), json!({}), Progressing),
            ("none wanted, none there", json!({"replicas": 0}), json!({"conditions": [available]}), Healthy),
            (
                "deadline exceeded",
                spec.clone(),
                conditions(json!([available, condition("Progressing", "False", "ProgressDeadlineExceeded")])),
                Degraded,
            ),
            (
                "replica failure",
                spec.clone(),
                conditions(json!([
                    rolled_out,
                    available,
                    condition("ReplicaFailure", "True", "FailedCreate")
                ])),
                Degraded,
            ),
            (
                "replica failure is over",
                spec.clone(),
                conditions(json!([condition("ReplicaFailure", "False", ""), rolled_out, available])),
                Healthy,
            ),
            ("the new ReplicaSet is not there", spec.clone(), conditions(json!([available])), Progressing),
            (
                "no deadline",
                json!({"replicas": 2, "progressDeadlineSeconds": i32::MAX}),
                conditions(json!([available])),
                Healthy,
            ),
            (
                "not available",
                spec.clone(),
                conditions(json!([
                    rolled_out,
                    condition("Available", "False", "MinimumReplicasUnavailable")
                ])),
                Progressing,
            ),
            ("availability unknown", spec, conditions(json!([rolled_out])), Progressing),
        ],
    );
}

#[test]
fn replica_sets_and_replication_controllers() {
    let good = json!({"replicas": 2, "fullyLabeledReplicas": 2, "availableReplicas": 2, "readyReplicas": 2});
    let spec = json!({"replicas": 2});
    let failure = json!([condition("ReplicaFailure", "True", "FailedCreate")]);
    let rows = [
        ("all there", spec.clone(), good.clone(), Healthy),
        ("stale", spec.clone(), with(&good, "/observedGeneration", json!(1)), Progressing),
        ("replica failure", spec.clone(), with(&good, "/conditions", failure), Degraded),
        ("not labelled", spec.clone(), with(&good, "/fullyLabeledReplicas", json!(1)), Progressing),
        ("not available", spec.clone(), with(&good, "/availableReplicas", json!(1)), Progressing),
        ("not ready", spec.clone(), with(&good, "/readyReplicas", json!(1)), Progressing),
        ("too many", spec, with(&good, "/replicas", json!(3)), Progressing),
        ("none wanted", json!({"replicas": 0}), json!({"replicas": 0}), Healthy),
        ("replicas default to one", json!({}), json!({"replicas": 0}), Progressing),
    ];
    table("apps/v1", "ReplicaSet", &rows);
    table("v1", "ReplicationController", &rows);
}

#[test]
fn stateful_sets() {
    let good = json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "b", "updateRevision": "b"});
    let rolling = |partition: i64| {
        json!({"replicas": 3,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}})
    };
    let on_delete = json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
    let old = with(&good, "/currentRevision", json!("a"));
    table(
        "apps/v1",
        "StatefulSet",
        &[
            ("all there", rolling(0), good.clone(), Healthy),
            ("never seen", rolling(0), json!({"observedGeneration": 0}), Progressing),
            ("stale", rolling(0), with(&good, "/observedGeneration", json!(1)), Progressing),
            ("not ready", rolling(0), with(&good, "/readyReplicas", json!(2)), Progressing),
            ("not available", rolling(0), with(&good, "/availableReplicas", json!(2)), Progressing),
            ("too many", rolling(0), with(&good, "/replicas", json!(4)), Progressing),
            // Argo CD calls this healthy because defaulting always sets a partition.
            (
                "the old revision still runs",
                rolling(0),
                with(&old, "/updatedReplicas", json!(1)),
                Progressing,
            ),
            (
                "above the partition all are new",
                rolling(2),
                with(&old, "/updatedReplicas", json!(1)),
                Healthy,
            ),
            (
                "above the partition one is old",
                rolling(1),
                with(&old, "/updatedReplicas", json!(1)),
                Progressing,
            ),
            ("OnDelete with an old revision", on_delete.clone(), old, Healthy),
            (
                "OnDelete with missing replicas",
                on_delete,
                with(&good, "/readyReplicas", json!(2)),
                Progressing,
            ),
        ],
    );
}

#[test]
fn daemon_sets() {
    let good = json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2,
        "numberAvailable": 2, "numberReady": 2});
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let short = |field: &str| with(&good, field, json!(1));
    table(
        "apps/v1",
        "DaemonSet",
        &[
            ("all there", json!({}), good.clone(), Healthy),
            ("stale", json!({}), short("/observedGeneration"), Progressing),
            ("never seen", json!({}), json!({"observedGeneration": null}), Progressing),
            ("nodes not counted", json!({}), json!({"observedGeneration": 2}), Progressing),
            ("no node fits", json!({}), json!({"desiredNumberScheduled": 0}), Healthy),
            ("not scheduled", json!({}), short("/currentNumberScheduled"), Progressing),
            ("not updated", json!({}), short("/updatedNumberScheduled"), Progressing),
            ("not available", json!({}), short("/numberAvailable"), Progressing),
            ("not ready", json!({}), short("/numberReady"), Progressing),
            ("OnDelete, not updated", on_delete.clone(), short("/updatedNumberScheduled"), Healthy),
            ("OnDelete, not available", on_delete, short("/numberAvailable"), Progressing),
        ],
    );
}

#[test]
fn jobs() {
    let conditions = |list: Value| json!({"conditions": list, "startTime": "2026-01-01T00:00:00Z"});
    let none = json!({});
    table(
        "batch/v1",
        "Job",
        &[
            ("not started", none.clone(), none.clone(), Progressing),
            ("running", none.clone(), json!({"active": 1, "startTime": "2026-01-01T00:00:00Z"}), Progressing),
            ("complete", none.clone(), conditions(json!([condition("Complete", "True", "")])), Healthy),
            (
                "failed",
                none.clone(),
                conditions(json!([condition("Failed", "True", "BackoffLimitExceeded")])),
                Degraded,
            ),
            (
                "about to fail",
                none.clone(),
                conditions(json!([condition("FailureTarget", "True", "BackoffLimitExceeded")])),
                Degraded,
            ),
            ("not failed", none.clone(), conditions(json!([condition("Failed", "False", "")])), Progressing),
            ("suspended", json!({"suspend": true}), none.clone(), Suspended),
            (
                "suspended, told so",
                none.clone(),
                conditions(json!([condition("Suspended", "True", "")])),
                Suspended,
            ),
            (
                "resumed",
                none.clone(),
                conditions(json!([condition("Suspended", "False", "JobResumed")])),
                Progressing,
            ),
            (
                "resumed and complete",
                none,
                conditions(json!([condition("Suspended", "False", ""), condition("Complete", "True", "")])),
                Healthy,
            ),
        ],
    );
}

#[test]
fn cron_jobs_and_workflows() {
    let none = json!({});
    let run = |scheduled: &str, succeeded: &str| json!({"lastScheduleTime": scheduled, "lastSuccessfulTime": succeeded});
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
    table(
        "batch/v1",
        "CronJob",
        &[
            ("suspended", json!({"suspend": true}), none.clone(), Suspended),
            ("no status", none.clone(), Value::Null, Progressing),
            ("never scheduled", none.clone(), none.clone(), Healthy),
            ("never successful", none.clone(), json!({"lastScheduleTime": late}), Healthy),
            ("the last run succeeded", none.clone(), run(early, late), Healthy),
            ("the last run failed", none.clone(), run(late, early), Degraded),
            (
                "running again",
                none.clone(),
                with(&run(late, early), "/active", json!([{"name": "x"}])),
                Healthy,
            ),
        ],
    );
    let mut failed = object("batch/v1", "CronJob", &json!({}), &run(late, early));
    assert!(judge(&failed).is_settled(), "nothing waits for the next night's run");
    failed["metadata"]["deletionTimestamp"] = json!(late);
    assert!(!judge(&failed).is_settled());
    table(
        "argoproj.io/v1alpha1",
        "Workflow",
        &[
            ("succeeded", none.clone(), json!({"phase": "Succeeded"}), Healthy),
            ("running", none.clone(), json!({"phase": "Running", "message": "told"}), Progressing),
            ("pending", none.clone(), json!({"phase": "Pending", "message": "told"}), Progressing),
            ("not started", none.clone(), none.clone(), Progressing),
            ("failed", none.clone(), json!({"phase": "Failed", "message": "told"}), Degraded),
            ("in error", none.clone(), json!({"phase": "Error", "message": "told"}), Degraded),
            ("something else", none, json!({"phase": "Omitted"}), Unknown),
        ],
    );
}

#[test]
fn rollouts() {
    let none = json!({});
    let phase = |phase: &str| json!({"phase": phase, "message": "told", "observedGeneration": "2"});
    let counts = |all: u32, updated: u32, available: u32| json!({"replicas": all, "updatedReplicas": updated, "availableReplicas": available});
    table(
        "argoproj.io/v1alpha1",
        "Rollout",
        &[
            ("healthy", none.clone(), phase("Healthy"), Healthy),
            ("paused at a step", none.clone(), phase("Paused"), Suspended),
            ("going on", none.clone(), phase("Progressing"), Progressing),
            ("degraded", none.clone(), phase("Degraded"), Degraded),
            ("something else", none.clone(), phase("Odd"), Unknown),
            (
                "of the generation before",
                none.clone(),
                with(&phase("Healthy"), "/observedGeneration", json!("1")),
                Progressing,
            ),
            (
                "aborted",
                none.clone(),
                with(
                    &phase("Progressing"),
                    "/conditions",
                    json!([condition("Progressing", "False", "RolloutAborted")]),
                ),
                Degraded,
            ),
            (
                "of no valid form",
                none.clone(),
                json!({"conditions": [condition("InvalidSpec", "True", "InvalidSpec")]}),
                Degraded,
            ),
            ("not seen", none.clone(), Value::Null, Progressing),
            ("old controller, done", json!({"replicas": 2}), counts(2, 2, 2), Healthy),
            ("old controller, updating", json!({"replicas": 2}), counts(2, 1, 1), Progressing),
            ("old controller, starting", json!({"replicas": 2}), counts(2, 2, 1), Progressing),
            ("blue and green", json!({"strategy": {"blueGreen": {}}}), counts(2, 1, 1), Healthy),
            ("canary", json!({"strategy": {"canary": {}}}), counts(2, 1, 1), Progressing),
        ],
    );
    let mut follows = object("argoproj.io/v1alpha1", "Rollout", &none, &phase("Healthy"));
    follows["metadata"]["annotations"] = json!({"rollout.argoproj.io/workload-generation": "5"});
    follows["status"]["workloadObservedGeneration"] = json!("4");
    assert_eq!(judge(&follows).status, Progressing);
    follows["status"]["workloadObservedGeneration"] = json!("5");
    assert_eq!(judge(&follows).status, Healthy);
}
