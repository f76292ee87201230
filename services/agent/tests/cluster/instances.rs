use std::time::Duration;

use events::delivery::SyncOutcome;
use events::desired::{Applier, DesiredState};
use events::observation::Observed;
use serde_json::Value;
use testkit::{Audit, ControlPlane, ControlPlaneOptions, eventually};
use tokio::time::timeout;

use crate::rig::{Rig, Source, cluster, config_map, map_path, put_to, version};

#[tokio::test]
async fn one_of_two_instances_applies_and_the_other_takes_over() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("two", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let standby = rig.another().await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "v")]);
    rig.sync(&[&source]).await;
    // The standby has the state and does nothing, also when it is named without the Lease.
    let (state, contents) = rig.state(&[&source]);
    put_to(&standby, &state, &contents).await;
    let named = |epoch, revision| DesiredState {
        applier: Some(Applier { instance: standby.service.instance(), epoch }),
        revision,
        ..state.clone()
    };
    put_to(&standby, &named(9, state.revision), &contents).await;
    assert!(standby.observed().is_empty());

    // kill -9: the other one may apply within fifteen seconds.
    rig.process.die();
    timeout(Duration::from_secs(15), standby.holds_lease()).await.expect("taken over in time");
    put_to(&standby, &named(10, state.revision + 1), &contents).await;
    let stated = |one: &Observed| match one {
        Observed::InventoryStated { objects, last: true, .. } => Some(objects.len()),
        _ => None,
    };
    assert_eq!(standby.wait(0, "inventory", stated).await.0, 1);
    let ended = |one: &Observed| match one {
        Observed::SyncFinished { outcome, counts, .. } => Some((*outcome, counts.unchanged)),
        _ => None,
    };
    assert_eq!(standby.wait(0, "end", ended).await.0, (SyncOutcome::Succeeded, 1));

    // In order: at once.
    let third = rig.another().await;
    standby.stop().await;
    timeout(Duration::from_secs(5), third.holds_lease()).await.expect("taken over at once");
}

#[tokio::test]
async fn who_gets_the_lease_back_in_the_same_epoch_goes_on_with_its_sequence() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("regain", false).await.unwrap();
    let mut rig = Rig::start(&cluster, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with([config_map("a", "one")]);
    assert_eq!(rig.sync(&[&source]).await.outcome, SyncOutcome::Succeeded);
    // Somebody takes the Lease and dies at once.
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}",
        agent::lease::lease_name(rig.agent)
    );
    let body = serde_json::json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3}});
    let patch = Some(("application/merge-patch+json", &body));
    cluster.send(http::Method::PATCH, &path, patch).await.unwrap();
    rig.process.lost_lease().await;
    source.with([config_map("a", "two")]);
    let from = rig.process.observed().len();
    rig.put(&[&source]).await;
    rig.process.holds_lease().await;
    // The reader of the events checks that their sequence has no gap and no second beginning.
    let finished = rig.finished(from, &source).await;
    assert_eq!((finished.outcome, finished.counts.changed), (SyncOutcome::Succeeded, 1), "{finished:?}");
    assert_eq!(cluster.get(&map_path(&namespace, "a")).await.unwrap()["data"]["key"], "two");
}

#[tokio::test]
async fn a_new_process_states_what_is_owned_and_writes_nothing() {
    let options =
        ControlPlaneOptions { audit: Audit::Requests, workloads: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("audit", false).await.unwrap();
    let mut rig = Rig::start(&plane, &namespace).await;
    let mut source = Source::new(&rig, "shop", &namespace);
    source.with((0..150).map(|n| config_map(&format!("m{n}"), "v")));
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.created), (SyncOutcome::Succeeded, 150));
    let patches = || {
        let log = plane.audit_log().unwrap();
        log.iter()
            .filter(|entry| entry["objectRef"]["resource"] == "configmaps" && entry["verb"] == "patch")
            .map(|entry| entry["requestURI"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let all = patches();
    let dry = all.iter().filter(|uri| uri.contains("dryRun=All")).count();
    assert_eq!((dry, all.len() - dry), (150, 150), "one dry run and one write an object");
    assert!(
        all.iter().all(|uri| uri.contains("fieldValidation=Strict") && uri.contains("fieldManager=kasbah"))
    );
    let before = version(&plane, &map_path(&namespace, "m3")).await;

    rig.restart().await;
    let finished = rig.sync(&[&source]).await;
    assert_eq!((finished.outcome, finished.counts.unchanged), (SyncOutcome::Succeeded, 150), "{finished:?}");
    assert_eq!(rig.owned().len(), 150);
    assert_eq!(patches().len(), 300, "what is as it should be costs no request");
    assert_eq!(version(&plane, &map_path(&namespace, "m3")).await, before);

    // It comes to rest: between three renewals of its Lease nothing else is asked.
    eventually(Duration::from_secs(90), || async {
        let busy = asked_lately(&plane.audit_log().unwrap());
        if busy.is_empty() { Ok(()) } else { Err(format!("{busy:?}")) }
    })
    .await;

    // Something changed and something was deleted while nobody looked.
    let old = rig.another().await;
    rig.process.die();
    plane.kubectl(["delete", "configmap", "m4", "-n", &namespace]).await.unwrap();
    let patch = r#"{"data":{"key":"by hand"}}"#;
    plane.kubectl(["patch", "configmap", "m5", "-n", &namespace, "--type=merge", "-p", patch]).await.unwrap();
    rig.process = old;
    rig.process.holds_lease().await;
    rig.epoch += 1;
    let finished = rig.sync(&[&source]).await;
    let counts = finished.counts;
    assert_eq!((counts.created, counts.changed, counts.unchanged), (1, 1, 148), "{finished:?}");
    assert_eq!(plane.get(&map_path(&namespace, "m5")).await.unwrap()["data"]["key"], "v");
}

/// Requests of agents since the last renewal but two, besides renewals and watches.
fn asked_lately(log: &[Value]) -> Vec<String> {
    let is_renewal = |entry: &Value| entry["objectRef"]["resource"] == "leases";
    let ours = log
        .iter()
        .filter(|entry| entry["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kasbah-agent/")));
    let mut renewals = 0;
    let mut asked = Vec::new();
    for entry in ours.rev().filter(|entry| entry["verb"] != "watch") {
        if is_renewal(entry) {
            renewals += u32::from(entry["verb"] == "update");
            if renewals == 3 {
                return asked;
            }
        } else {
            asked.push(format!("{} {}", entry["verb"], entry["requestURI"]));
        }
    }
    vec!["fewer than three renewals so far".to_owned()]
}
