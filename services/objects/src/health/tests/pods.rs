//! Pods, which say most about themselves.

use super::*;

/// A pod's restart policy and status.
fn pod(policy: &str, status: Value) -> Value {
    object("v1", "Pod", &json!({"restartPolicy": policy}), &status)
}

#[test]
fn pods() {
    let waiting = |list: &str, phase: &str, reason: &str| {
        json!({"phase": phase, list: [{"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {"reason": reason, "message": "told"}}}]})
    };
    let ready = |status: &str| json!({"phase": "Running", "conditions": [condition("Ready", status, "")]});
    let restarted = with(
        &ready("False"),
        "/containerStatuses",
        json!([{"name": "a", "lastState": {"terminated": {"exitCode": 1}}}]),
    );
    let (main, init) = ("containerStatuses", "initContainerStatuses");
    let rows = [
        ("succeeded", "Never", json!({"phase": "Succeeded"}), Healthy),
        ("failed", "Never", json!({"phase": "Failed"}), Degraded),
        ("no phase", "Always", json!({}), Progressing),
        ("pending", "Always", json!({"phase": "Pending"}), Progressing),
        ("unknown phase", "Always", json!({"phase": "Unknown"}), Unknown),
        ("ready", "Always", ready("True"), Healthy),
        ("ready, policy by default", "", ready("True"), Healthy),
        ("not ready", "Always", ready("False"), Progressing),
        ("not ready, has ended before", "Always", restarted, Degraded),
        ("runs to completion", "Never", ready("True"), Progressing),
        ("runs to completion or again", "OnFailure", ready("True"), Progressing),
        ("crash loop", "Always", waiting(main, "Running", "CrashLoopBackOff"), Degraded),
        ("crash loop on failure", "OnFailure", waiting(main, "Running", "CrashLoopBackOff"), Degraded),
        ("image cannot be pulled", "Always", waiting(main, "Pending", "ErrImagePull"), Degraded),
        ("image will be tried again", "Always", waiting(main, "Pending", "ImagePullBackOff"), Degraded),
        (
            "configuration is missing",
            "Always",
            waiting(main, "Pending", "CreateContainerConfigError"),
            Degraded,
        ),
        ("being created", "Always", waiting(main, "Pending", "ContainerCreating"), Progressing),
        ("init container in a crash loop", "Always", waiting(init, "Pending", "CrashLoopBackOff"), Degraded),
        ("init containers run", "Always", waiting(main, "Pending", "PodInitializing"), Progressing),
    ];
    for (what, policy, status, expected) in rows {
        let mut pod = pod(policy, status);
        if policy.is_empty() {
            pod["spec"] = json!({});
        }
        let health = judge(&pod);
        assert_eq!((health.status, health.optional), (expected, false), "{what}: {health:?}");
    }
}

#[test]
fn a_failed_pod_says_why() {
    let ended = |state: Value| json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": state}}]});
    let rows = [
        (
            json!({"phase": "Failed", "message": "The node was low on memory", "reason": "Evicted"}),
            "low on memory",
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (ended(json!({"exitCode": 137, "reason": "OOMKilled"})), "OOMKilled"),
        (ended(json!({"exitCode": 3, "reason": "Error"})), "exit code 3"),
        (ended(json!({"exitCode": 1, "message": "no such file"})), "no such file"),
        (
            json!({"phase": "Failed", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 9}}}]}),
            "container i ended with exit code 9",
        ),
    ];
    for (status, fragment) in rows {
        let health = judge(&pod("Never", status));
        assert!(health.status == Degraded && health.message.contains(fragment), "{fragment}: {health:?}");
    }
}

#[test]
fn a_failed_pod_below_a_job_is_counted_there() {
    let mut failed = pod("Never", json!({"phase": "Failed"}));
    failed["metadata"]["ownerReferences"] =
        json!([{"kind": "Job", "name": "x", "uid": "u", "controller": true}]);
    let health = judge(&failed);
    assert_eq!((health.status, health.optional), (Degraded, true));
    failed["metadata"]["ownerReferences"] =
        json!([{"kind": "ReplicaSet", "name": "x", "uid": "u", "controller": true}]);
    assert!(!judge(&failed).optional);
}

#[test]
fn an_unschedulable_pod_is_degraded_after_a_while() {
    let mut pod = pod(
        "Always",
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "no node", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
    );
    let options = HealthOptions { unschedulable_after_ms: 60_000, ..HealthOptions::default() };
    let deadline = NEW_YEAR + 60_000;
    let before = evaluate(&pod, deadline - 1, &options).expect("a health");
    assert_eq!((before.status, before.recheck_at), (Progressing, Some(deadline)));
    assert!(before.message.contains("no node"));
    let after = evaluate(&pod, deadline, &options).expect("a health");
    assert_eq!((after.status, after.recheck_at), (Degraded, None));
    // Without a time of the condition the pod's own age counts; without either there is nothing to wait for.
    pod["status"]["conditions"][0].as_object_mut().expect("a mapping").remove("lastTransitionTime");
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(evaluate(&pod, deadline, &options).expect("a health").status, Degraded);
    pod["metadata"].as_object_mut().expect("a mapping").remove("creationTimestamp");
    assert_eq!(evaluate(&pod, deadline, &options).expect("a health").status, Progressing);
}
