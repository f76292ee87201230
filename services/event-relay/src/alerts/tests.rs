//! Alerts over events and over what the index says.

use serde_json::json;
use uuid::Uuid;

use super::*;

const PRODUCTION: EnvironmentId = EnvironmentId(Uuid::from_u128(5));

fn event(seconds: i64, event_type: &str, data: &Value) -> CloudEvent {
    let at = Timestamp(seconds * 1000);
    let json = json!({
        "specversion": "1.0", "id": "e", "source": "/organizations/1", "type": event_type, "subject": "agent-1",
        "time": at, "datacontenttype": "application/json", "recordedat": at, "environment": PRODUCTION,
        "actor": "user:00000000-0000-0000-0000-000000000001", "data": data,
    });
    CloudEvent::from_json(json.to_string().as_bytes()).unwrap()
}

fn health_changed(seconds: i64, name: &str, status: &str) -> CloudEvent {
    let identity = json!({ "kind": "Deployment", "namespace": "shop", "name": name });
    let data = json!({ "identity": identity, "status": status, "message": "0 of 1 available" });
    event(seconds, "kasbah.observed.health-changed", &data)
}

/// A minute.
const AFTER: i64 = 60_000;

fn now(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

#[test]
fn trouble_that_passes_by_itself_causes_no_alert() {
    let mut alerts = Alerts::default();
    alerts.take(&health_changed(10, "web", "degraded"));
    assert_eq!((alerts.due(AFTER), alerts.alert(now(69), AFTER)), (Some(now(70)), None));
    alerts.take(&health_changed(60, "web", "healthy"));
    assert_eq!((alerts.due(AFTER), alerts.alert(now(500), AFTER)), (None, None));
}

#[test]
fn trouble_that_stays_causes_one_alert_with_its_reason_and_one_once_all_is_well() {
    let mut alerts = Alerts::default();
    alerts.take(&event(5, "kasbah.bundle.desired", &json!({ "commit": "0123456789abcdef" })));
    alerts.take(&health_changed(10, "web", "degraded"));
    alerts.take(&health_changed(20, "db", "missing"));
    let alert = alerts.alert(now(70), AFTER).unwrap();
    assert!(alert.is_degraded);
    assert_eq!(alert.reason, "Deployment shop/web: 0 of 1 available (and 1 more)");
    assert_eq!((alert.since, alert.last_change.clone().unwrap().what), (now(10), "0123456789ab".to_owned()));
    alerts.told(&alert);
    assert_eq!((alerts.alert(now(900), AFTER), alerts.due(AFTER)), (None, None));
    alerts.take(&health_changed(1000, "web", "healthy"));
    assert_eq!(alerts.due(AFTER), None, "another one is still missing");
    alerts.take(&health_changed(1010, "db", "healthy"));
    assert_eq!(alerts.alert(now(1069), AFTER), None);
    let well = alerts.alert(now(1070), AFTER).unwrap();
    assert_eq!((well.is_degraded, well.reason.as_str()), (false, ""));
    alerts.told(&well);
    assert_eq!(alerts.due(AFTER), None);
}

#[test]
fn a_failed_sync_is_a_trouble_until_one_succeeds() {
    let mut alerts = Alerts::default();
    let data = json!({ "source": "s", "outcome": "failed", "failures": [{ "message": "denied\u{1b}" }] });
    alerts.take(&event(1, "kasbah.sync.finished", &data));
    assert_eq!(alerts.alert(now(61), AFTER).unwrap().reason, "a sync failed: denied");
    alerts.take(&event(70, "kasbah.sync.finished", &json!({ "source": "s", "outcome": "succeeded" })));
    assert_eq!(alerts.alert(now(500), AFTER), None);
}

/// What the index says of an environment with three objects at the top.
fn health(state: HealthState, message: &str) -> EnvironmentHealth {
    let worst = json!({
        "agent": Uuid::from_u128(6), "agent_name": "shop/deploy:production", "uid": "u",
        "identity": { "group": "postgres.example", "version": "v1", "kind": "Database", "namespace": "shop", "name": "orders" },
        "health": { "state": state, "message": message, "rule": "declared" }, "changed_at": now(9),
    });
    serde_json::from_value(json!({
        "environment": PRODUCTION, "name": "production", "project": Uuid::from_u128(7), "project_path": "shop/deploy",
        "tier": "production", "state": "available", "objects": 3, "health": state, "worst": worst,
        "counts": [{ "state": "healthy", "count": 1 }, { "state": state, "count": 2 }],
    }))
    .unwrap()
}

fn well() -> EnvironmentHealth {
    let mut well = health(HealthState::Healthy, "");
    well.worst = None;
    well
}

#[test]
fn an_object_that_no_source_has_degrades_its_environment_and_recovers() {
    let mut alerts = Alerts::default();
    alerts.hear(&[health(HealthState::Degraded, "disk full\u{7}")], now(10));
    assert_eq!((alerts.alert(now(69), AFTER), alerts.due(AFTER)), (None, Some(now(70))));
    let alert = alerts.alert(now(70), AFTER).unwrap();
    assert_eq!(alert.reason, "Database shop/orders: disk full (and 1 more)");
    assert_eq!((alert.is_degraded, alert.since), (true, now(10)));
    let filter = alert.object.clone().unwrap().filter();
    assert_eq!(
        (filter.kind.as_deref(), filter.name.as_deref()),
        (Some("Database.postgres.example"), Some("orders"))
    );
    alerts.told(&alert);
    alerts.hear(&[well()], now(100));
    assert_eq!(alerts.alert(now(159), AFTER), None);
    let recovered = alerts.alert(now(160), AFTER).unwrap();
    assert_eq!((recovered.is_degraded, recovered.reason.as_str(), recovered.since), (false, "", now(100)));
}

#[test]
fn an_index_that_is_away_stale_or_blind_makes_no_recovery() {
    let blind: [fn(&mut EnvironmentHealth); 5] = [
        |health| health.stale = Some("the agent is not connected".to_owned()),
        |health| health.hidden = Some("rights unknown".to_owned()),
        |health| health.health = HealthState::Unknown,
        |health| health.health = HealthState::Progressing,
        |health| health.objects = 0,
    ];
    let told = || {
        let mut alerts = Alerts::default();
        alerts.hear(&[health(HealthState::Degraded, "disk full")], now(10));
        let alert = alerts.alert(now(70), AFTER).unwrap();
        alerts.told(&alert);
        alerts
    };
    for (number, change) in blind.into_iter().enumerate() {
        let mut alerts = told();
        let mut unclear = well();
        change(&mut unclear);
        alerts.hear(&[unclear], now(100));
        assert_eq!((alerts.due(AFTER), alerts.alert(now(9_000), AFTER)), (None, None), "{number}");
        alerts.hear(&[well()], now(9_000));
        assert_eq!(alerts.due(AFTER), Some(now(9_060)), "{number}: well for a minute from now on");
    }
    let mut away = told();
    away.lose_index(now(100));
    assert_eq!(away.due(AFTER), None);
    away.take(&event(110, "kasbah.sync.finished", &json!({ "source": "s", "outcome": "succeeded" })));
    assert_eq!(away.alert(now(9_000), AFTER), None);
    let mut gone = told();
    gone.hear(&[], now(100));
    assert_eq!(gone.alert(now(9_000), AFTER), None, "out of its sight");
}

#[test]
fn of_objects_the_index_knows_better_than_events_and_of_syncs_events_do() {
    let mut alerts = Alerts::default();
    alerts.take(&health_changed(10, "web", "degraded"));
    alerts.hear(&[well()], now(20));
    assert_eq!(alerts.due(AFTER), None);
    let data = json!({ "source": "s", "outcome": "failed", "failures": [{ "message": "denied" }] });
    alerts.take(&event(30, "kasbah.sync.finished", &data));
    assert_eq!(alerts.alert(now(90), AFTER).unwrap().reason, "a sync failed: denied");
    alerts.take(&event(91, "kasbah.sync.finished", &json!({ "source": "s", "outcome": "succeeded" })));
    assert_eq!(alerts.due(AFTER), None);
    // Without the index, events are all there is.
    alerts.lose_index(now(100));
    assert_eq!(alerts.due(AFTER), Some(now(160)), "as events say");
    alerts.hear(&[well()], now(110));
    assert_eq!(alerts.due(AFTER), None);
}

#[test]
fn a_stopped_environment_is_forgotten() {
    let mut alerts = Alerts::default();
    alerts.hear(&[health(HealthState::Degraded, "disk full")], now(10));
    let mut stopped = health(HealthState::Degraded, "disk full");
    stopped.state = EnvironmentState::Stopped;
    alerts.hear(&[stopped], now(20));
    assert_eq!(alerts, Alerts { index_answers: true, ..Alerts::default() });
}
