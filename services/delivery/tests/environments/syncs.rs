//! Syncs of a source that names an environment are deployments.

use events::delivery::{NO_COMMIT, SyncOutcome};
use events::environment::{EnvironmentSettings, Grouping, Tier};
use events::requests::environments::DeploymentStatus;
use events::{DeploymentId, Timestamp};

use super::given::{Log, SHOP, TOOLS, environment, of_sync, production, source, source_id};
use super::{Given, SettingsChange, resource_group};

const CREATED: &str = "kasbah.environment.created";
const STARTED: &str = "kasbah.deployment.started";
const FINISHED: &str = "kasbah.deployment.finished";
const REFUSED: &str = "kasbah.deployment.refused";
const FAILED: &str = "kasbah.deployment.failed";

fn deploying() -> Log {
    let mut log = Log::start();
    log.configured(vec![source(production(None))]);
    log.desired(1, "aaa", 1);
    log
}

#[test]
fn the_first_sync_creates_the_environment_and_each_one_is_a_deployment() {
    let mut log = deploying();
    assert_eq!(log.follow(), [""; 0], "nothing runs yet");
    log.began(1, 1);
    assert_eq!(log.follow(), [CREATED, STARTED]);
    assert_eq!(log.follow(), [""; 0], "once");
    log.ended(1, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [FINISHED]);
    let group = resource_group(&log.state, environment("production")).unwrap();
    assert_eq!((&group.grouping, group.tier), (&Grouping::Inventory, Tier::Production));
    assert_eq!(group.places[0].commit, "aaa");
    assert_eq!(group.places[0].sync.unwrap().source, source_id());

    log.desired(2, "aaa", 1);
    log.began(2, 1);
    log.ended(2, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [""; 0], "the same once more is none");
    log.desired(3, "bbb", 2);
    log.began(3, 1);
    log.ended(3, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [STARTED, FINISHED]);
}

#[test]
fn a_sync_that_fails_is_one_deployment_and_its_later_success_another() {
    let mut log = deploying();
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Failed);
    assert_eq!(log.follow(), [CREATED, STARTED, FAILED]);
    for run in 2..10 {
        log.began(1, run);
        log.ended(1, run, SyncOutcome::Failed);
    }
    assert_eq!(log.follow(), [""; 0], "attempts that fail are none");
    log.began(1, 10);
    log.ended(1, 10, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [STARTED, FINISHED]);
    let id = DeploymentId::of_sync(source_id(), of_sync(1), 10);
    let success = Some(DeploymentStatus::Success);
    let mut found = log.state.deployments_behind(environment("production"), None, success);
    assert_eq!(found.next().map(|(_, id)| id), Some(id));
}

#[test]
fn what_a_newer_commit_takes_the_place_of_fails_and_an_interrupted_run_goes_on() {
    let mut log = deploying();
    log.began(1, 1);
    log.follow();
    log.ended(1, 1, SyncOutcome::Interrupted);
    assert_eq!(log.follow(), [""; 0], "another applier runs it again");
    log.desired(2, "bbb", 2);
    assert_eq!(log.follow(), [FAILED]);
    log.began(2, 1);
    log.ended(2, 1, SyncOutcome::Unhealthy);
    assert_eq!(log.follow(), [STARTED, FAILED]);
}

#[test]
fn a_source_that_names_an_environment_later_deploys_what_it_has() {
    let mut log = Log::start();
    log.configured(vec![source(None)]);
    log.desired(1, "aaa", 1);
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [""; 0]);
    log.configured(vec![source(production(None))]);
    assert_eq!(log.follow(), [CREATED, STARTED, FINISHED]);
}

#[test]
fn a_source_that_leaves_its_environment_ends_its_deployment() {
    for leaves in [vec![source(None)], Vec::new()] {
        let mut log = deploying();
        log.began(1, 1);
        log.follow();
        log.configured(leaves);
        assert_eq!(log.follow(), [FAILED]);
    }
}

#[test]
fn another_projects_environment_is_deployed_into_once_it_names_the_agents_project() {
    let mut log = Log::start();
    log.configured(vec![source(production(Some(TOOLS)))]);
    log.desired(1, "aaa", 1);
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [REFUSED], "it is not there");
    let said = log.state.unrecorded(source_id()).unwrap();
    let advice = "kasbah env set production --project shop/tools --deployer shop/front";
    assert!(said.contains("not recorded") && said.contains(advice), "{said}");
    assert_eq!(log.follow(), [""; 0], "once for each sync");
    let settings = EnvironmentSettings::of(Tier::Production);
    let create =
        Given::Create { project: TOOLS, name: "production".to_owned(), settings, at: Timestamp(1_000) };
    log.decide(&create).unwrap();
    assert_eq!(log.follow(), [""; 0], "it does not name the project");
    let id = events::EnvironmentId::derive(TOOLS, "production");
    let change = SettingsChange { deployers: Some([SHOP].into()), ..SettingsChange::default() };
    log.decide(&Given::Set { environment: id, change, at: Timestamp(1_000) }).unwrap();
    assert_eq!(log.follow(), [STARTED, FINISHED]);
    assert_eq!(log.state.unrecorded(source_id()), None);
}

#[test]
fn a_sync_makes_a_stopped_environment_available_again() {
    let mut log = deploying();
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Succeeded);
    log.follow();
    let stop = Given::Stop { environment: environment("production"), reason: String::new() };
    log.decide(&stop).unwrap();
    assert_eq!(log.follow(), [""; 0]);
    log.desired(2, "bbb", 2);
    log.began(2, 1);
    assert_eq!(log.follow(), ["kasbah.environment.changed", STARTED]);
}

#[test]
fn a_withdrawn_source_deploys_nothing_and_once_it_is_back_the_same_commit_is_a_deployment() {
    let mut log = deploying();
    log.began(1, 1);
    log.ended(1, 1, SyncOutcome::Succeeded);
    log.follow();
    assert_eq!(log.state.sources_into(environment("production")), [source_id()].into());
    assert!(log.state.sources_into(environment("staging")).is_empty());
    let stop = Given::Stop { environment: environment("production"), reason: String::new() };
    log.decide(&stop).unwrap();
    log.desired(2, NO_COMMIT, 9);
    log.began(2, 1);
    log.ended(2, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), [""; 0], "what deletes everything makes nothing available");
    log.desired(3, "aaa", 1);
    log.began(3, 1);
    log.ended(3, 1, SyncOutcome::Succeeded);
    assert_eq!(log.follow(), ["kasbah.environment.changed", STARTED, FINISHED]);
}

#[test]
fn a_source_of_a_project_that_may_not_deploy_there_is_none_of_the_environments() {
    let mut log = Log::start();
    log.configured(vec![source(production(Some(TOOLS)))]);
    let settings = EnvironmentSettings::of(Tier::Production);
    let create =
        Given::Create { project: TOOLS, name: "production".to_owned(), settings, at: Timestamp(1_000) };
    log.decide(&create).unwrap();
    let id = events::EnvironmentId::derive(TOOLS, "production");
    assert!(log.state.sources_into(id).is_empty(), "its objects are not the environment's to delete");
}
