//! Environments and deployments: given events, when a command, then events.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests end a test by panicking"
)]

mod given;
mod golden;
mod syncs;

use std::collections::BTreeSet;

use delivery::environments::{
    Due, Ending, Environments, Given, ListFilter, SettingsChange, Viewer, deployment_view, environment_view,
    resource_group,
};
use events::environment::{
    Association, CHANGES_PER_ENVIRONMENT, DeploymentStarted, ENDED_PER_ENVIRONMENT, EnvironmentSettings,
    Grouping, RUNNING_PER_ENVIRONMENT, StopReason, Tier,
};
use events::requests::environments::{
    DeploymentStatus, EnvironmentChangeKind, EnvironmentState, ReportedDeployment,
};
use events::{Actor, AgentId, DeploymentId, Event, ProjectId, RefusalKind, Timestamp};
use given::{AGENT, Log, SHOP, TOOLS, environment};
use uuid::Uuid;

fn create(name: &str, settings: EnvironmentSettings) -> Given {
    Given::Create { project: SHOP, name: name.to_owned(), settings, at: Timestamp(1_000) }
}

fn plain() -> EnvironmentSettings {
    EnvironmentSettings::of(Tier::Production)
}

fn id(number: u128) -> DeploymentId {
    DeploymentId(Uuid::from_u128(100 + number))
}

fn start(number: u128, deployer: ProjectId) -> Given {
    let started = DeploymentStarted {
        deployment: id(number),
        environment: environment("production"),
        project: SHOP,
        deployer,
        association: Some(Association { agent: AGENT, namespace: "shop".to_owned() }),
        reference: "main".to_owned(),
        commit: format!("commit-{number}"),
        job_url: None,
        sync: None,
        deadline: Some(Timestamp(5_000)),
    };
    Given::Start { started }
}

fn finish(number: u128) -> Given {
    Given::End { deployment: id(number), ending: Ending::Finished }
}

fn types(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::event_type).collect()
}

fn with_production() -> Log {
    let mut log = Log::start();
    log.decide(&create("production", plain())).unwrap();
    log
}

fn status(state: &Environments, number: u128) -> Option<DeploymentStatus> {
    let (actor, agents) = (Actor::service("test"), BTreeSet::new());
    let viewer = Viewer { actor: &actor, agents: &agents };
    deployment_view(state, id(number), &viewer).map(|view| view.status)
}

#[test]
fn a_project_has_one_environment_of_a_name_and_of_a_slug() {
    let mut log = with_production();
    let again = log.decide(&create("production", plain())).unwrap_err();
    assert_eq!((again.kind, again.field.as_deref()), (RefusalKind::Conflict, Some("name")));
    log.decide(&create("blue", plain())).unwrap();
    let shares = log.decide(&create("blue-", plain())).unwrap_err();
    assert!(shares.message.contains("shares the slug blue"), "{}", shares.message);
    let other = Given::Create {
        project: TOOLS,
        name: "production".to_owned(),
        settings: plain(),
        at: Timestamp(1_000),
    };
    log.decide(&other).unwrap();
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_field() {
    let mut log = Log::start();
    let with = |change: &dyn Fn(&mut EnvironmentSettings)| {
        let mut settings = plain();
        change(&mut settings);
        create("production", settings)
    };
    let label = Grouping::Labels { project: "a b".to_owned(), environment: "c".to_owned() };
    let cases = [
        (with(&|settings| settings.url = Some("ftp://x".to_owned())), "url"),
        (with(&|settings| settings.url = Some("https://me:secret@x".to_owned())), "url"),
        (with(&|settings| settings.namespace = Some("n".repeat(256))), "namespace"),
        (with(&|settings| settings.auto_stop_seconds = Some(5)), "auto_stop_seconds"),
        (with(&|settings| settings.grouping = Some(label.clone())), "grouping"),
        (
            with(&|settings| settings.deployers = (0..51).map(|n| ProjectId(Uuid::from_u128(n))).collect()),
            "deployers",
        ),
        (create("", plain()), "name"),
    ];
    for (given, field) in cases {
        let refusal = log.decide(&given).unwrap_err();
        assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Invalid, Some(field)));
        assert!(!refusal.message.contains("secret"));
    }
    log.decide(&with(&|settings| settings.namespace = Some("n".repeat(255)))).unwrap();
}

#[test]
fn a_deployment_begins_once_and_ends_once() {
    let mut log = with_production();
    log.decide(&start(1, SHOP)).unwrap();
    assert_eq!(log.decide(&start(1, SHOP)).unwrap_err().kind, RefusalKind::Conflict);
    assert_eq!(types(&log.decide(&finish(1)).unwrap()), ["kasbah.deployment.finished"]);
    assert_eq!(log.decide(&finish(1)).unwrap(), [], "it is so already");
    let fail = Given::End { deployment: id(1), ending: Ending::Failed("no".to_owned()) };
    assert_eq!(log.decide(&fail).unwrap_err().kind, RefusalKind::Conflict);
    assert_eq!(log.decide(&finish(2)).unwrap_err().kind, RefusalKind::NotFound);
}

#[test]
fn a_deadline_makes_a_deployment_unknown_and_not_before() {
    let mut log = with_production();
    log.decide(&start(1, SHOP)).unwrap();
    let expire = |at| Given::Expire { due: Due::Deployment(id(1)), at: Timestamp(at) };
    assert_eq!(log.state.next_due(Timestamp(0)), Some(Timestamp(5_000)));
    assert_eq!(log.state.due(Timestamp(4_999)).count(), 0);
    assert_eq!(log.decide(&expire(4_999)).unwrap(), []);
    assert_eq!(log.state.due(Timestamp(5_000)).collect::<Vec<_>>(), [Due::Deployment(id(1))]);
    assert_eq!(types(&log.decide(&expire(5_000)).unwrap()), ["kasbah.deployment.unknown"]);
    assert_eq!(status(&log.state, 1), Some(DeploymentStatus::Unknown));
    assert_eq!(log.state.next_due(Timestamp(0)), None);
    log.decide(&start(2, SHOP)).unwrap();
    log.decide(&finish(2)).unwrap();
    assert_eq!(log.state.next_due(Timestamp(0)), None, "one that ended has no deadline");
}

#[test]
fn only_named_projects_deploy_into_anothers_environment() {
    let mut log = with_production();
    let prepare = |deployer| Given::Prepare {
        project: SHOP,
        deployer,
        name: "production".to_owned(),
        tier: None,
        auto_stop_seconds: None,
        at: Timestamp(1_000),
    };
    for given in [start(1, TOOLS), prepare(TOOLS)] {
        assert_eq!(log.decide(&given).unwrap_err().kind, RefusalKind::Denied);
    }
    let deployers = Some([TOOLS].into());
    let change = SettingsChange { deployers, ..SettingsChange::default() };
    let set = Given::Set { environment: environment("production"), change, at: Timestamp(1_000) };
    assert_eq!(types(&log.decide(&set).unwrap()), ["kasbah.environment.changed"]);
    assert_eq!(log.decide(&set).unwrap(), [], "nothing is different");
    assert_eq!(log.decide(&prepare(TOOLS)).unwrap(), []);
    log.decide(&start(1, TOOLS)).unwrap();
    let missing = Given::Prepare {
        project: SHOP,
        deployer: TOOLS,
        name: "new".to_owned(),
        tier: None,
        auto_stop_seconds: None,
        at: Timestamp(1_000),
    };
    assert_eq!(log.decide(&missing).unwrap_err().kind, RefusalKind::Denied, "nor do they create one");
}

#[test]
fn an_environment_stops_by_itself_and_a_deployment_makes_it_available_again() {
    let mut log = Log::start();
    let settings = EnvironmentSettings { auto_stop_seconds: Some(60), ..plain() };
    log.decide(&create("production", settings)).unwrap();
    let due = Due::Environment(environment("production"));
    assert_eq!(log.state.next_due(Timestamp(0)), Some(Timestamp(61_000)));
    log.now = 31_000;
    log.decide(&start(1, SHOP)).unwrap();
    log.decide(&finish(1)).unwrap();
    assert_eq!(log.state.due(Timestamp(61_000)).count(), 0, "a deployment puts it off");
    let expire = Given::Expire { due, at: Timestamp(91_000) };
    assert_eq!(types(&log.decide(&expire).unwrap()), ["kasbah.environment.stopped"]);
    assert_eq!(log.decide(&expire).unwrap(), []);
    assert_eq!(log.decide(&start(2, SHOP)).unwrap_err().kind, RefusalKind::Unavailable);
    let prepare = Given::Prepare {
        project: SHOP,
        deployer: SHOP,
        name: "production".to_owned(),
        tier: None,
        auto_stop_seconds: None,
        at: Timestamp(100_000),
    };
    log.now = 100_000;
    assert_eq!(types(&log.decide(&prepare).unwrap()), ["kasbah.environment.changed"]);
    log.decide(&start(2, SHOP)).unwrap();
    let stopped = ListFilter { state: Some(EnvironmentState::Stopped), ..ListFilter::default() };
    assert_eq!(log.state.matching(SHOP, None, &stopped).count(), 0);
    assert_eq!(status(&log.state, 1), Some(DeploymentStatus::Success), "its history stays");
}

#[test]
fn only_a_stopped_environment_is_deleted_and_one_of_the_same_name_begins_anew() {
    let mut log = with_production();
    log.decide(&start(1, SHOP)).unwrap();
    let delete = Given::Delete { environment: environment("production") };
    assert_eq!(log.decide(&delete).unwrap_err().kind, RefusalKind::Conflict);
    let stop = Given::Stop { environment: environment("production"), reason: String::new() };
    log.decide(&stop).unwrap();
    assert_eq!(types(&log.decide(&delete).unwrap()), ["kasbah.environment.deleted"]);
    assert_eq!((status(&log.state, 1), log.state.next_due(Timestamp(0))), (None, None));
    log.decide(&create("production", plain())).unwrap();
    assert_eq!(log.state.deployments_behind(environment("production"), None, None).count(), 0);
}

#[test]
fn what_is_kept_of_deployments_is_bounded_and_the_last_good_one_stays() {
    let mut log = with_production();
    log.decide(&start(0, SHOP)).unwrap();
    log.decide(&finish(0)).unwrap();
    for number in 1..=(ENDED_PER_ENVIRONMENT as u128 + 20) {
        log.now += 1;
        log.decide(&start(number, SHOP)).unwrap();
        let failed = Given::End { deployment: id(number), ending: Ending::Failed(String::new()) };
        log.decide(&failed).unwrap();
    }
    let kept: Vec<_> = log.state.deployments_behind(environment("production"), None, None).collect();
    assert_eq!(kept.len(), ENDED_PER_ENVIRONMENT + 1);
    assert_eq!(kept.first().map(|(_, id)| *id), Some(id(ENDED_PER_ENVIRONMENT as u128 + 20)), "newest first");
    assert_eq!(status(&log.state, 0), Some(DeploymentStatus::Success));
    for number in 200..(200 + RUNNING_PER_ENVIRONMENT as u128) {
        log.decide(&start(number, SHOP)).unwrap();
    }
    assert_eq!(log.decide(&start(999, SHOP)).unwrap_err().kind, RefusalKind::Conflict);
}

#[test]
fn lists_are_filtered_and_views_show_agents_only_to_those_who_see_them() {
    let mut log = with_production();
    for (name, tier) in [("production/eu", Tier::Production), ("review/a", Tier::Development)] {
        log.decide(&create(name, EnvironmentSettings::of(tier))).unwrap();
    }
    let names = |filter: ListFilter, after: Option<&str>| -> Vec<String> {
        log.state.matching(SHOP, after, &filter).map(|(name, _)| name.to_owned()).collect()
    };
    let all = ListFilter::default;
    assert_eq!(names(all(), None), ["production", "production/eu", "review/a"]);
    assert_eq!(names(all(), Some("production")), ["production/eu", "review/a"]);
    assert_eq!(names(ListFilter { name: Some("production/*".to_owned()), ..all() }, None), ["production/eu"]);
    assert_eq!(names(ListFilter { tier: Some(Tier::Development), ..all() }, None), ["review/a"]);

    log.decide(&start(1, SHOP)).unwrap();
    log.decide(&finish(1)).unwrap();
    let other = Actor::service("other");
    for (sees, agents) in [(true, BTreeSet::from([AGENT])), (false, BTreeSet::new())] {
        let viewer = Viewer { actor: &other, agents: &agents };
        let view = environment_view(&log.state, environment("production"), &viewer).unwrap();
        let last = view.last_successful.unwrap();
        assert_eq!((last.association.is_some(), last.without_association.is_none()), (sees, sees));
        assert_eq!(view.project_path, "shop/front");
    }
    let group = resource_group(&log.state, environment("production")).unwrap();
    assert_eq!((group.grouping, group.places.len()), (Grouping::Namespace, 1));
    assert_eq!((group.places[0].deployment, group.places[0].commit.as_str()), (id(1), "commit-1"));
    assert_eq!(resource_group(&log.state, environment("review/a")), None, "nothing was deployed there");
}

#[test]
fn a_report_means_running_deployments_of_its_own_project_by_id_or_page() {
    let mut log = with_production();
    let deployers = SettingsChange { deployers: Some([TOOLS].into()), ..SettingsChange::default() };
    log.decide(&Given::Set {
        environment: environment("production"),
        change: deployers,
        at: Timestamp(1_000),
    })
    .unwrap();
    for (number, deployer, page) in [(1, SHOP, "a"), (2, SHOP, "b"), (3, TOOLS, "a"), (4, SHOP, "a")] {
        let Given::Start { mut started } = start(number, deployer) else { panic!("a start") };
        started.job_url = Some(format!("https://ci.example/{page}"));
        log.decide(&Given::Start { started }).unwrap();
    }
    log.decide(&finish(4)).unwrap();
    let page = ReportedDeployment::JobUrl("https://ci.example/a".to_owned());
    assert_eq!(log.state.running_of(SHOP, &page), [id(1)], "not another project's, and not what ended");
    assert_eq!(log.state.running_of(TOOLS, &page), [id(3)]);
    assert_eq!(log.state.running_of(SHOP, &ReportedDeployment::Deployment(id(2))), [id(2)]);
    assert_eq!(log.state.running_of(SHOP, &ReportedDeployment::Deployment(id(3))), []);
}

#[test]
fn the_last_changes_of_settings_and_state_are_kept_with_what_is_different() {
    let mut log = with_production();
    let set = |change| Given::Set { environment: environment("production"), change, at: Timestamp(1_000) };
    let tier = SettingsChange { tier: Some(Tier::Staging), ..SettingsChange::default() };
    log.decide(&set(tier)).unwrap();
    let agent = SettingsChange { agent: Some(Some(AGENT)), ..SettingsChange::default() };
    log.decide(&set(agent)).unwrap();
    log.decide(&Given::Stop { environment: environment("production"), reason: "over".to_owned() }).unwrap();
    let found = |state: &Environments, agents: &BTreeSet<AgentId>| {
        let actor = Actor::service("test");
        state.changes_of(environment("production"), &Viewer { actor: &actor, agents })
    };
    let all = found(&log.state, &[AGENT].into());
    let over = EnvironmentChangeKind::Stopped(StopReason::Requested("over".to_owned()));
    let kinds: Vec<_> = all.iter().map(|change| change.change.clone()).collect();
    let (changed, created) = (EnvironmentChangeKind::Changed, EnvironmentChangeKind::Created);
    assert_eq!(kinds, [over, changed.clone(), changed, created]);
    let [tier] = &all[2].settings[..] else { panic!("{all:?}") };
    assert_eq!((tier.before.as_deref(), tier.after.as_deref()), (Some("production"), Some("staging")));
    assert_eq!(all[1].settings[0].after, Some(AGENT.to_string()));
    assert_eq!(
        found(&log.state, &BTreeSet::new())[1].settings[0].after,
        None,
        "an agent that may not be seen"
    );
    for number in 0..30 {
        let url = Some(Some(format!("https://example.com/{number}")));
        log.decide(&set(SettingsChange { url, ..SettingsChange::default() })).unwrap();
    }
    assert_eq!(found(&log.state, &BTreeSet::new()).len(), CHANGES_PER_ENVIRONMENT);
}
