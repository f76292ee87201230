//! What pods and warnings add to what a workload says.

use super::*;

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "uid": "d", "generation": 2},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 600},
        "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}})
}

fn pod(hash: &str, made: &str, state: Value) -> Value {
    json!({"metadata": {"name": format!("web-{hash}-x"), "creationTimestamp": made,
            "labels": {"app": "web", "pod-template-hash": hash},
            "ownerReferences": [{"kind": "ReplicaSet", "name": format!("web-{hash}"), "uid": hash, "controller": true}]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "web", "state": state}]}})
}

fn told(workload: &Value, pods: &[Value], warnings: &[Value]) -> Health {
    with_pods(workload, judge(workload), pods, warnings, NEW_YEAR, &HealthOptions::default())
}

const EARLY: &str = "2025-12-31T23:00:00Z";
const LATE: &str = "2025-12-31T23:59:00Z";

#[test]
fn the_reason_comes_from_the_pod_of_the_newest_template() {
    let broken = json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
    let fine = json!({"running": {}});
    let web = deployment();
    assert!(judge(&web).message.contains("old pods"), "what it says of itself");
    let health = told(&web, &[pod("old", EARLY, fine.clone()), pod("new", LATE, broken.clone())], &[]);
    assert_eq!((health.status, health.is_settled()), (Degraded, false));
    assert!(health.message.contains("ErrImagePull: no such image"), "{health:?}");
    let health = told(&web, &[pod("old", EARLY, broken.clone()), pod("new", LATE, fine)], &[]);
    assert_eq!(health.status, Progressing, "what is on its way out does not count: {health:?}");
    let mut strange = pod("new", LATE, broken);
    strange["metadata"]["ownerReferences"][0]["name"] = json!("web-api-new");
    assert_eq!(told(&web, &[strange], &[]).status, Progressing, "another workload's pod");
}

#[test]
fn a_container_that_ends_again_and_again_says_with_which_code() {
    let mut crashing =
        pod("new", LATE, json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}));
    crashing["status"]["phase"] = json!("Running");
    crashing["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 3}});
    let health = told(&deployment(), &[crashing], &[]);
    assert!(health.status == Degraded && health.message.contains("exit code 3"), "{health:?}");
    let mut ended = pod("new", LATE, json!({"terminated": {"exitCode": 4}}));
    ended["status"]["phase"] = json!("Running");
    assert!(told(&deployment(), &[ended], &[]).message.contains("exit code 4"));
}

#[test]
fn what_cannot_be_made_says_so_unless_something_was_made_since() {
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "s", "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "db"}}}, "status": {"observedGeneration": 1}});
    let warning =
        |reason: &str, at: &str| json!({"reason": reason, "message": "exceeded quota", "lastTimestamp": at});
    let health = told(&set, &[], &[warning("FailedCreate", LATE)]);
    assert_eq!((health.status, health.message.as_str()), (Degraded, "FailedCreate: exceeded quota"));
    assert_eq!(told(&set, &[], &[warning("Odd", LATE)]).status, Progressing);
    let mut since = pod("db", LATE, json!({"running": {}}));
    since["metadata"]["ownerReferences"] = json!([{"kind": "StatefulSet", "uid": "s", "controller": true}]);
    assert_eq!(told(&set, &[since], &[warning("FailedCreate", EARLY)]).status, Progressing);
}

#[test]
fn what_is_well_stays_well_and_a_job_tries_again() {
    let broken = json!({"waiting": {"reason": "ImagePullBackOff"}});
    let mut web = deployment();
    web["status"] = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition("Available", "True", ""), condition("Progressing", "True", "NewReplicaSetAvailable")]});
    assert_eq!(told(&web, &[pod("new", LATE, broken.clone())], &[]).status, Healthy);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "j"},
        "spec": {"selector": {"matchLabels": {"job": "j"}}}, "status": {}});
    let mut own = pod("j", LATE, broken);
    own["metadata"]["ownerReferences"] = json!([{"kind": "Job", "uid": "j", "controller": true}]);
    let health = told(&job, &[own], &[]);
    assert!(health.status == Progressing && health.message.contains("ImagePullBackOff"), "{health:?}");
}

#[test]
fn pods_that_find_no_node_are_judged_again_when_their_time_is_up() {
    let mut pending = pod("new", LATE, json!({}));
    pending["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "no node", "lastTransitionTime": LATE}]);
    let health = told(&deployment(), std::slice::from_ref(&pending), &[]);
    assert_eq!((health.status, health.recheck_at), (Progressing, Some(NEW_YEAR + 4 * 60_000)));
    let late = NEW_YEAR + 4 * 60_000;
    let web = deployment();
    let health = with_pods(&web, judge(&web), &[pending], &[], late, &HealthOptions::default());
    assert!(health.status == Degraded && health.message.contains("no node"), "{health:?}");
}

#[test]
fn which_labels_find_the_pods() {
    let expected = vec![("app".to_owned(), "web".to_owned())];
    assert_eq!(selector_of_pods(&deployment()), Some(expected.clone()));
    let controller =
        json!({"apiVersion": "v1", "kind": "ReplicationController", "spec": {"selector": {"app": "web"}}});
    assert_eq!(selector_of_pods(&controller), Some(expected));
    for other in
        [json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "web"}}}), json!({})]
    {
        assert_eq!(selector_of_pods(&other), None);
    }
}
