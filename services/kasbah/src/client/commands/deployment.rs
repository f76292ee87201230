//! `kasbah deployment …`.

use std::time::Duration;

use chassis::args::parse_duration;
use events::DeploymentId;
use events::environment::Tier;
use events::requests::environments::{
    DeploymentView, FailDeployment, FinishDeployment, StartDeployment, WithoutAssociation,
};
use reqwest::Method;

use super::env::{self, EnvironmentArg, deployment_details, seconds};
use crate::client::failure::Failure;
use crate::client::session::Session;

/// What to do with deployments.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Record that a deployment begins, from a CI job or by hand; creates the environment if the project has none of the name
    Start(Box<Start>),
    /// Record that a deployment succeeded
    Finish(Which),
    /// Record that a deployment failed
    Fail {
        #[command(flatten)]
        which: Which,
        /// Reason, shown to other users
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Show one deployment
    Show {
        /// Id of the deployment
        id: DeploymentId,
    },
}

#[derive(Debug, clap::Args)]
#[allow(missing_docs, reason = "a comment here would stand in the help of each command")]
pub struct Place {
    /// Name of the environment, such as production or review/login
    #[arg(long = "env", value_name = "NAME")]
    pub(super) environment: String,
    /// Project of the environment: group/name, or id; by default the job's own
    #[arg(long)]
    pub(super) project: Option<String>,
    /// Project that deploys, if it is another one that the environment names as deployer; by default the job's own
    #[arg(long, value_name = "PROJECT")]
    pub(super) deployer: Option<String>,
    /// Agent of the cluster: name, group/project:name, or id; by default the environment's
    #[arg(long)]
    pub(super) agent: Option<String>,
    /// Namespace; by default the environment's
    #[arg(long, short)]
    pub(super) namespace: Option<String>,
}

/// A deployment that begins.
#[derive(Debug, clap::Args)]
pub struct Start {
    #[command(flatten)]
    place: Place,
    /// Tier of a new environment: production, staging, testing, development or other; guessed from the name by default
    #[arg(long)]
    tier: Option<Tier>,
    /// Git branch or tag
    #[arg(long = "ref", value_name = "REF", default_value = "", hide_default_value = true)]
    reference: String,
    /// Git commit
    #[arg(long = "sha", value_name = "COMMIT", default_value = "", hide_default_value = true)]
    commit: String,
    /// Page of the job
    #[arg(long, value_name = "URL")]
    job_url: Option<String>,
    /// Mark the deployment as unknown if its end is not recorded within this time; by default 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Stop the environment this long after its last deployment began, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    auto_stop_in: Option<Duration>,
    /// Print only the id
    #[arg(long)]
    id_only: bool,
}

/// A deployment that ends.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Id of the deployment, by default the one that `kasbah ci kubeconfig --env` started
    #[arg(required_unless_present = "environment", env = "KASBAH_DEPLOYMENT")]
    id: Option<DeploymentId>,
    /// Name of the environment, instead of an id, where only one deployment into it runs
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,
    /// Project of the environment: group/name, or id
    #[arg(long, requires = "environment")]
    project: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Start(wanted) => start(session, *wanted).await,
        Command::Finish(which) => {
            let deployment = which.resolve(session).await?;
            let path = ["deployments", &deployment.to_string(), "finish"];
            let view = session.api.send(Method::POST, &path, &FinishDeployment { deployment }).await?;
            print(session, &view).await
        }
        Command::Fail { which, reason } => {
            let deployment = which.resolve(session).await?;
            let path = ["deployments", &deployment.to_string(), "fail"];
            let view = session.api.send(Method::POST, &path, &FailDeployment { deployment, reason }).await?;
            print(session, &view).await
        }
        Command::Show { id } => {
            let view = session.api.get(&["deployments", &id.to_string()], &[]).await?;
            print(session, &view).await
        }
    }
}

async fn start(session: &Session, wanted: Start) -> Result<(), Failure> {
    let id_only = wanted.id_only;
    let Place { environment, project, deployer, agent, namespace } = wanted.place;
    let body = StartDeployment {
        environment,
        project,
        deployer,
        tier: wanted.tier,
        agent,
        namespace,
        reference: wanted.reference,
        commit: wanted.commit,
        job_url: wanted.job_url,
        deadline_seconds: wanted.deadline.map(seconds),
        auto_stop_seconds: wanted.auto_stop_in.map(seconds),
    };
    let view: DeploymentView = session.api.send(Method::POST, &["deployments"], &body).await?;
    warn_of_association(&view);
    if id_only {
        return session.printer.text(&view.id.to_string());
    }
    print(session, &view).await
}

/// On standard error, so that programs can read what is printed.
pub(super) fn warn_of_association(view: &DeploymentView) {
    if let Some(WithoutAssociation::NotGranted(reason)) = &view.without_association {
        eprintln!("warning: the deployment is recorded without agent and namespace: {reason}");
    }
}

async fn print(session: &Session, view: &DeploymentView) -> Result<(), Failure> {
    let names = env::names(session).await?;
    session.printer.show(view, |view, style| deployment_details(view, &names, style))
}

impl Which {
    /// The deployment that is meant: the only one that runs, where only its environment is named.
    async fn resolve(&self, session: &Session) -> Result<DeploymentId, Failure> {
        let (id, environment) = (self.id, self.environment.as_ref());
        let Some(name) = environment else {
            return id.ok_or_else(|| Failure::usage("ID", "name a deployment, or an environment with --env"));
        };
        let named = EnvironmentArg { name: name.clone(), project: self.project.clone() };
        let environment = env::resolve(session, &named).await?.to_string();
        let path = ["environments", environment.as_str(), "deployments"];
        let query = [("status", "running".to_owned())];
        let running: Vec<DeploymentView> = session.api.list(&path, &query).await?;
        let by_hand: Vec<_> = running.iter().filter(|one| one.sync.is_none()).collect();
        match by_hand.as_slice() {
            [one] => Ok(one.id),
            [] => Err(Failure::not_found(&format!("running deployment into {name:?}"))),
            several => {
                let ids: Vec<_> = several.iter().map(|one| one.id.to_string()).collect();
                let message =
                    format!("several deployments into {name:?} run; name one of {}", ids.join(", "));
                Err(Failure::usage("ID", message))
            }
        }
    }
}
