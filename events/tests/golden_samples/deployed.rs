//! An event of each kind of environments, deployments and subscriptions.

use events::environment::*;
use events::subscription::*;
use events::*;

use super::samples::{commit, id};

fn environment_settings(agent: AgentId, deployer: ProjectId) -> EnvironmentSettings {
    EnvironmentSettings {
        tier: Tier::Development,
        url: Some("https://login.review.example.com".to_owned()),
        agent: Some(agent),
        namespace: Some("review-login".to_owned()),
        auto_stop_seconds: Some(86_400),
        deployers: [deployer].into(),
        grouping: Some(Grouping::reserved_labels()),
    }
}

fn refused(deployment: DeploymentId, deployer: ProjectId, project: ProjectId) -> DeploymentRefused {
    let sync = SyncRun { source: SourceId(id(8)), sync: SyncId(id(9)), run: 1 };
    DeploymentRefused { deployment, deployer, project, name: "production".to_owned(), sync, commit: commit() }
}

pub fn environments() -> Vec<(&'static str, Event)> {
    let (project, deployer, agent) = (ProjectId(id(3)), ProjectId(id(20)), AgentId(id(2)));
    let environment = EnvironmentId::derive(project, "review/login");
    let (deployment, source) = (DeploymentId(id(21)), SourceId(id(8)));
    let settings = environment_settings(agent, deployer);
    let auto_stop_at = Some(Timestamp(1_700_086_400_000));
    let created = EnvironmentCreated {
        environment,
        project,
        name: "review/login".to_owned(),
        slug: slug("review/login"),
        settings: settings.clone(),
        auto_stop_at,
    };
    let started = DeploymentStarted {
        deployment,
        environment,
        project,
        deployer,
        association: Some(Association { agent, namespace: "review-login".to_owned() }),
        reference: "refs/heads/login".to_owned(),
        commit: commit(),
        job_url: Some("https://ci.example.com/jobs/4711".to_owned()),
        sync: None,
        deadline: Some(Timestamp(1_700_003_600_000)),
    };
    let of_a_sync = DeploymentStarted {
        job_url: None,
        sync: Some(SyncRun { source, sync: SyncId(id(9)), run: 1 }),
        deadline: None,
        ..started.clone()
    };
    let full = [
        EnvironmentEvent::EnvironmentCreated(created),
        EnvironmentEvent::EnvironmentChanged(EnvironmentChanged {
            environment,
            settings: EnvironmentSettings { grouping: Some(Grouping::Inventory), ..settings },
            reopened: true,
            auto_stop_at,
        }),
        EnvironmentEvent::EnvironmentStopped(EnvironmentStopped {
            environment,
            reason: StopReason::Requested("merged".to_owned()),
        }),
        EnvironmentEvent::EnvironmentDeleted(EnvironmentDeleted { environment }),
        EnvironmentEvent::DeploymentStarted(started),
        EnvironmentEvent::DeploymentFinished(DeploymentFinished { deployment, environment }),
        EnvironmentEvent::DeploymentFailed(DeploymentFailed {
            deployment,
            environment,
            reason: "the image cannot be pulled".to_owned(),
        }),
        EnvironmentEvent::DeploymentUnknown(DeploymentUnknown { deployment, environment }),
        EnvironmentEvent::DeploymentRefused(refused(deployment, deployer, project)),
    ];
    let stopped = EnvironmentStopped { environment, reason: StopReason::AutoStop };
    let mut all: Vec<_> = full.into_iter().map(|event| ("full", Event::from(event))).collect();
    all.push(("by-itself", EnvironmentEvent::EnvironmentStopped(stopped).into()));
    all.push(("of-a-sync", EnvironmentEvent::DeploymentStarted(of_a_sync).into()));
    all
}

pub fn subscriptions() -> Vec<(&'static str, Event)> {
    let subscription = SubscriptionId(id(40));
    let position = export::ExportPosition { log: id(41), sequence: 7, at: Timestamp(1_700_000_000_000) };
    let filter = export::EventFilter {
        types: vec!["kasbah.sync.*".parse().expect("a pattern")],
        project: Some(ProjectId(id(3))),
        environment: Some(EnvironmentId(id(30))),
    };
    let webhook = Webhook {
        shown: "https://hooks.example/…".into(),
        sealed: "c2VhbGVk".into(),
        format: WebhookFormat::Slack,
    };
    let from = SendFrom::Behind(position);
    let created = SubscriptionCreated {
        subscription,
        name: "alerts".into(),
        filter,
        webhook: Some(webhook),
        consumer: None,
        from,
    };
    let fetched = SubscriptionCreated { webhook: None, consumer: Some(3), ..created.clone() };
    let former_until = Timestamp(1_700_086_400_000);
    let again = SubscriptionReplayed { subscription, from: Some(SendFrom::Time(former_until)) };
    let on = SubscriptionReplayed { subscription, from: None };
    let full = [
        SubscriptionEvent::SubscriptionCreated(created),
        SubscriptionEvent::SubscriptionSecretRotated(SubscriptionSecretRotated {
            subscription,
            secret: 2,
            former_until,
        }),
        SubscriptionEvent::SubscriptionReplayed(again),
        SubscriptionEvent::SubscriptionPaused(SubscriptionPaused { subscription }),
        SubscriptionEvent::SubscriptionResumed(SubscriptionResumed { subscription }),
        SubscriptionEvent::DeadLettersResent(DeadLettersResent { subscription, sequences: vec![3, 5] }),
        SubscriptionEvent::SubscriptionDeleted(SubscriptionDeleted { subscription }),
    ];
    let mut all: Vec<_> = full.into_iter().map(|event| ("full", Event::from(event))).collect();
    all.push(("fetched", SubscriptionEvent::SubscriptionCreated(fetched).into()));
    all.push(("on", SubscriptionEvent::SubscriptionReplayed(on).into()));
    all
}
