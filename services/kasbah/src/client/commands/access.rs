//! `kasbah access …`.

use events::attributes::{Attributes, ResourceTarget, Target};
use events::pass::AccessAs;
use events::requests::authz::{CanUse, UseDecision};
use events::requests::environments::{CanDeploy, DeployDecision};
use reqwest::Method;

use super::deployment::Place;
use crate::client::failure::Failure;
use crate::client::print::{Fields, Style};
use crate::client::session::Session;

/// What to do with the use of clusters' APIs.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check whether the agent's configuration permits a request to its cluster's API, and show the entry that permits it. The
    /// cluster's own authorization applies in addition
    CanI {
        /// Kubernetes verb: get, list, watch, create, update, patch, delete or deletecollection
        verb: String,
        /// Resource such as pods, pods/log or deployments.apps, or a path such as /metrics
        resource: String,
        /// Agent: name, group/project:name, or id
        #[arg(long)]
        agent: String,
        /// Namespace; by default all namespaces, or none for cluster-scoped resources
        #[arg(long, short)]
        namespace: Option<String>,
        /// Check for another user, as user:<login name or id>; needs the right to see users
        #[arg(long = "as", value_parser = parse_user)]
        user: Option<String>,
    },
    /// Check whether you may record deployments into an environment, and show what permits it, also for the agent and namespace
    CanDeploy(Place),
}

fn parse_user(text: &str) -> Result<String, String> {
    match text.strip_prefix("user:") {
        Some(user) if !user.is_empty() => Ok(user.to_owned()),
        _ => Err("must be user:<login name or id>".to_owned()),
    }
}

/// Runs it.
///
/// # Errors
/// When it is not let through, or the server refuses or cannot be asked.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::CanI { verb, resource, agent, namespace, user } => {
            can_i(session, (verb, resource), agent, namespace, user).await
        }
        Command::CanDeploy(place) => can_deploy(session, place).await,
    }
}

async fn can_deploy(session: &Session, place: Place) -> Result<(), Failure> {
    let Place { environment, project, deployer, agent, namespace } = place;
    let body = CanDeploy { environment, project, deployer, agent, namespace };
    let decision: DeployDecision = session.api.send(Method::POST, &["deployment-reviews"], &body).await?;
    if decision.allowed || !session.is_for_people() {
        session.printer.show(&decision, |decision, style| {
            let kept = decision.associates.map(|kept| if kept { "yes" } else { "no" });
            Fields::new()
                .with("Allowed", if decision.allowed { "yes" } else { "no" })
                .with("Because of", decision.reason.as_str())
                .with_some("Agent and namespace", kept)
                .with_some("Because of", decision.association_reason.as_deref())
                .render(style)
        })?;
    }
    outcome(decision.allowed, &decision.reason)
}

async fn can_i(
    session: &Session,
    (verb, resource): (String, String),
    agent: String,
    namespace: Option<String>,
    user: Option<String>,
) -> Result<(), Failure> {
    let target = target(&resource, namespace.unwrap_or_default());
    let body = CanUse { agent, user, attributes: Attributes { verb, target } };
    let path = ["agents", &body.agent, "access-reviews"];
    let decision: UseDecision = session.api.send(Method::POST, &path, &body).await?;
    if decision.allowed || !session.is_for_people() {
        session.printer.show(&decision, text)?;
    }
    outcome(decision.allowed, &decision.reason)
}

fn outcome(allowed: bool, reason: &str) -> Result<(), Failure> {
    if allowed { Ok(()) } else { Err(Failure::Unsuccessful(format!("no: {reason}"))) }
}

fn target(text: &str, namespace: String) -> Target {
    if text.starts_with('/') {
        return Target::Path(text.to_owned());
    }
    let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    Target::Resource(ResourceTarget {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace,
        ..ResourceTarget::default()
    })
}

fn text(decision: &UseDecision, style: Style) -> String {
    let fields = Fields::new().with("Allowed", if decision.allowed { "yes" } else { "no" });
    let fields = match &decision.access_as {
        Some(AccessAs::Agent) => fields.with("As", "the agent's own service account"),
        Some(AccessAs::Impersonated(user)) => {
            fields.with("As", user.username.as_str()).with("Groups", user.groups.join(", "))
        }
        None => fields,
    };
    fields.with("Because of", decision.reason.as_str()).render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_written_as_in_grants() {
        let rows = [
            ("pods", "pods"),
            ("pods/log", "pods/log"),
            ("deployments.apps", "deployments.apps"),
            ("deployments.apps/scale", "deployments.apps/scale"),
            ("clusterroles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io"),
        ];
        for (given, expected) in rows {
            let Target::Resource(target) = target(given, String::new()) else { panic!("{given}") };
            assert_eq!(target.to_string(), expected);
        }
        assert_eq!(target("/metrics", String::new()), Target::Path("/metrics".to_owned()));
        assert_eq!(parse_user("user:ann").as_deref(), Ok("ann"));
        assert!(parse_user("ann").is_err() && parse_user("user:").is_err());
    }
}
