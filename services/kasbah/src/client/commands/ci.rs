//! `kasbah ci …`.

mod job;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{ValueEnum, ValueHint};
use events::directory::JobEnvironment;
use events::requests::authz::{IssueJobToken, JobAgent, SecretToken};
use events::requests::environments::{DeploymentView, EnvironmentView, StartDeployment};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use world::World;
use zeroize::Zeroizing;

use job::{JobArgs, Runner};

use super::deployment::warn_of_association;
use super::kubeconfig::{clusters_url, read, url_of, write};
use super::token::{issued_text, parse_lifetime};
use crate::client::failure::Failure;
use crate::client::kubeconfig::{Context, Credential};
use crate::client::print::yaml;
use crate::client::session::Session;
use crate::client::settings::{Common, ProcessEnvironment};

/// What to do for jobs.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write a kubeconfig with a context for each agent that this job may use, and print the variables that select it
    Kubeconfig(Kubeconfig),
    /// Issue a token for jobs of a project; prints it, once. Pass it to the job as KASBAH_TOKEN
    Token {
        /// Project of the job: group/name, or id
        #[arg(long)]
        project: String,
        /// Name of the job
        #[arg(long)]
        name: String,
        /// Environment that the job deploys to
        #[arg(long)]
        environment: Option<String>,
        /// Tier of that environment, such as production or staging
        #[arg(long, requires = "environment")]
        tier: Option<String>,
        /// The job runs for a protected branch or tag
        #[arg(long)]
        protected: bool,
        /// Lifetime of the token, such as 30m or 90d; by default an hour
        #[arg(long, value_name = "DURATION", value_parser = parse_lifetime)]
        expires: Option<Duration>,
        /// Print only the token
        #[arg(long)]
        token_only: bool,
    },
}

/// Which kubeconfig.
#[derive(Debug, clap::Args)]
pub struct Kubeconfig {
    /// Agent for the current context: name, or group/project:name. By default the agent whose entry names the job's environment, or
    /// else the only agent
    #[arg(long)]
    agent: Option<String>,
    /// Environment that the job deploys to, such as production or review/login: starts a deployment, whose id is printed as
    /// KASBAH_DEPLOYMENT; `kasbah deployment finish` or `fail` ends it
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,
    /// File for the contexts; it contains the job's token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "kasbah.kubeconfig")]
    file: PathBuf,
    /// Output format of the variables
    #[arg(long, value_enum, default_value_t = Form::Shell)]
    format: Form,
    /// URL of clusters' APIs; by default the server's setting, or the API's host with port 8443
    #[arg(long, env = "KASBAH_CLUSTERS", value_name = "URL")]
    clusters: Option<String>,
    /// Who the job is.
    #[command(flatten)]
    job: JobArgs,
}

/// How variables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `export NAME='value'`, for `eval "$(…)"`
    Shell,
    /// `NAME=value`, for `>> "$GITHUB_ENV"` and dotenv files
    Dotenv,
}

/// Names the kubeconfig, and what in it is meant.
#[derive(Debug, Serialize)]
struct Variables {
    #[serde(rename = "KUBECONFIG")]
    kubeconfig: String,
    #[serde(rename = "KUBE_CONTEXT", skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    #[serde(rename = "KUBE_NAMESPACE", skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(rename = "KASBAH_DEPLOYMENT", skip_serializing_if = "Option::is_none")]
    deployment: Option<String>,
    /// Of a job that was signed in: an ID token is good for once, and so what follows asks with this.
    #[serde(rename = "KASBAH_TOKEN_FILE", skip_serializing_if = "Option::is_none")]
    token_file: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked, or no agent lets the job in.
pub async fn run(command: Command, common: &Common, world: &World) -> Result<(), Failure> {
    let surroundings = ProcessEnvironment::of_process();
    match command {
        Command::Kubeconfig(wanted) => {
            let runner = Runner::of_process();
            let (session, token) = job::open(&wanted.job, &runner, common, &surroundings, world).await?;
            kubeconfig(wanted, &session, token).await
        }
        Command::Token { project, name, environment, tier, protected, expires, token_only } => {
            let session = &Session::open(common, &surroundings, world)?;
            let environment = environment.map(|name| JobEnvironment { name, tier: tier.unwrap_or_default() });
            let lifetime_seconds = expires.map(|lifetime| lifetime.as_secs());
            let path = ["projects", &project, "job-tokens"];
            let body =
                IssueJobToken { project: project.clone(), name, environment, protected, lifetime_seconds };
            let issued: SecretToken = session.api.send(Method::POST, &path, &body).await?;
            if token_only {
                return session.printer.text(&issued.secret);
            }
            let holder = format!("jobs of {project}");
            session.printer.show(&issued, |issued, style| issued_text(issued, &holder, style))
        }
    }
}

async fn kubeconfig(
    wanted: Kubeconfig,
    session: &Session,
    signed_in: Option<Zeroizing<String>>,
) -> Result<(), Failure> {
    let agents: Vec<JobAgent> = session.api.list(&["job", "agents"], &[]).await?;
    if agents.is_empty() {
        let message =
            "no agent permits this job: name its project or group, and its environment, in ci_access of one";
        return Err(Failure::Unsuccessful(message.to_owned()));
    }
    let current = current(&agents, wanted.agent.as_deref())?;
    let target = match &wanted.environment {
        Some(environment) => environment_namespace(session, environment).await?,
        None => None,
    };
    let namespace = target.or_else(|| current.map(|agent| agent.default_namespace.clone()));
    let clusters = clusters_url(session, wanted.clusters.as_deref());
    let authority = session.authority()?.map(|pem| STANDARD.encode(pem));
    let wrong = |error: crate::client::kubeconfig::NoKubeconfig| Failure::usage("--file", error.to_string());
    let mut file: Value = read(session, &wanted.file)?;
    for agent in &agents {
        let is_current = current.is_some_and(|current| current.id == agent.id);
        let own = namespace.clone().filter(|_| is_current);
        let context = Context {
            name: context_name(agent),
            server: url_of(&clusters, agent.id),
            certificate_authority: authority.clone(),
            namespace: own.or_else(|| Some(agent.default_namespace.clone())),
            credential: Credential::Token(session.settings.token.to_string()),
        };
        file = if is_current { context.merge_into(file, true) } else { context.put_into(file) }
            .map_err(wrong)?;
    }
    write(session, &wanted.file, &yaml(&file)?)?;
    let absolute = std::path::absolute(&wanted.file).unwrap_or(wanted.file);
    let token_file = match signed_in {
        Some(token) => Some(keep_token(&token, &absolute, session)?),
        None => None,
    };
    let deployment = match wanted.environment {
        Some(environment) => Some(start(session, environment, current, namespace.as_deref()).await?),
        None => None,
    };
    let variables = Variables {
        kubeconfig: absolute.display().to_string(),
        context: current.map(context_name),
        namespace,
        deployment: deployment.map(|view| view.id.to_string()),
        token_file: token_file.map(|file| file.display().to_string()),
    };
    session.printer.show(&variables, |variables, _| variables.lines(wanted.format))
}

/// The namespace of the job's environment, if it has one.
async fn environment_namespace(session: &Session, name: &str) -> Result<Option<String>, Failure> {
    let query = [("name", name.to_owned())];
    let found: Vec<EnvironmentView> = session.api.list(&["environments"], &query).await?;
    let mut named = found.into_iter().filter(|view| view.name == name);
    let first = named.next();
    Ok(first.filter(|_| named.next().is_none()).and_then(|view| view.namespace))
}

/// Starts the job's deployment, into the place that its kubeconfig names.
async fn start(
    session: &Session,
    environment: String,
    current: Option<&JobAgent>,
    namespace: Option<&str>,
) -> Result<DeploymentView, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let first = |names: [&str; 2]| names.into_iter().find_map(variable);
    let body = StartDeployment {
        environment,
        agent: current.map(|agent| agent.id.to_string()),
        namespace: namespace.filter(|_| current.is_some()).map(str::to_owned),
        reference: first(["CI_COMMIT_REF_NAME", "GITHUB_REF_NAME"]).unwrap_or_default(),
        commit: first(["CI_COMMIT_SHA", "GITHUB_SHA"]).unwrap_or_default(),
        job_url: variable("CI_JOB_URL"),
        ..StartDeployment::default()
    };
    let view: DeploymentView = session.api.send(Method::POST, &["deployments"], &body).await?;
    warn_of_association(&view);
    Ok(view)
}

/// Beside the kubeconfig, readable by its user alone.
fn keep_token(token: &str, kubeconfig: &Path, session: &Session) -> Result<PathBuf, Failure> {
    let mut file = kubeconfig.to_owned().into_os_string();
    file.push(".token");
    let file = PathBuf::from(file);
    write(session, &file, token)?;
    Ok(file)
}

/// `<project path>:<agent name>`, as GitLab calls them.
fn context_name(agent: &JobAgent) -> String {
    format!("{}:{}", agent.project_path, agent.name)
}

/// The agent that is meant, if that can be said.
fn current<'a>(agents: &'a [JobAgent], wanted: Option<&str>) -> Result<Option<&'a JobAgent>, Failure> {
    let Some(wanted) = wanted else {
        let for_environment = only(agents.iter().filter(|agent| agent.is_for_environment));
        return Ok(for_environment.or_else(|| only(agents.iter())));
    };
    let is_meant = |agent: &&JobAgent| agent.name == wanted || context_name(agent) == wanted;
    only(agents.iter().filter(is_meant)).map(Some).ok_or_else(|| {
        let known: Vec<String> = agents.iter().map(context_name).collect();
        Failure::usage(
            "--agent",
            format!("must name one of the agents that permit this job: {}", known.join(", ")),
        )
    })
}

fn only<'a>(mut agents: impl Iterator<Item = &'a JobAgent>) -> Option<&'a JobAgent> {
    let first = agents.next();
    first.filter(|_| agents.next().is_none())
}

impl Variables {
    fn lines(&self, form: Form) -> String {
        let named = [
            ("KUBECONFIG", Some(&self.kubeconfig)),
            ("KUBE_CONTEXT", self.context.as_ref()),
            ("KUBE_NAMESPACE", self.namespace.as_ref()),
            ("KASBAH_DEPLOYMENT", self.deployment.as_ref()),
            ("KASBAH_TOKEN_FILE", self.token_file.as_ref()),
        ];
        let line = |(name, value): (&str, Option<&String>)| {
            let value = value?;
            Some(match form {
                Form::Shell => format!("export {name}='{}'\n", value.replace('\'', "'\\''")),
                Form::Dotenv => format!("{name}={value}\n"),
            })
        };
        named.into_iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use events::AgentId;
    use events::grants::CiAccessAs;
    use uuid::Uuid;

    use super::*;

    fn agent(number: u128, name: &str, is_for_environment: bool) -> JobAgent {
        JobAgent {
            id: AgentId(Uuid::from_u128(number)),
            name: name.to_owned(),
            project_path: "shop/deploy".to_owned(),
            default_namespace: "shop".to_owned(),
            access_as: CiAccessAs::CiJob,
            is_for_environment,
            place: String::new(),
        }
    }

    #[test]
    fn the_current_context_is_the_one_of_the_environment_or_the_only_one() {
        let (one, other) = (agent(1, "one", false), agent(2, "other", true));
        let name =
            |agents: &[JobAgent], wanted| current(agents, wanted).unwrap().map(|agent| agent.name.clone());
        assert_eq!(name(std::slice::from_ref(&one), None).as_deref(), Some("one"));
        assert_eq!(name(&[one.clone(), other.clone()], None).as_deref(), Some("other"));
        assert_eq!(name(&[one.clone(), agent(3, "third", false)], None), None);
        assert_eq!(name(&[one.clone(), other.clone()], Some("shop/deploy:one")).as_deref(), Some("one"));
        let said = current(&[one, other], Some("gone")).unwrap_err().to_string();
        assert!(said.contains("--agent") && said.contains("shop/deploy:one, shop/deploy:other"), "{said}");
    }

    #[test]
    fn variables_survive_the_shell() {
        let variables = Variables {
            kubeconfig: "/builds/it's here/file".to_owned(),
            context: Some("shop/deploy:one".to_owned()),
            namespace: None,
            deployment: None,
            token_file: None,
        };
        assert_eq!(
            variables.lines(Form::Shell),
            "export KUBECONFIG='/builds/it'\\''s here/file'\nexport KUBE_CONTEXT='shop/deploy:one'\n"
        );
        assert!(variables.lines(Form::Dotenv).starts_with("KUBECONFIG=/builds/it's here/file\n"));
    }
}
