//! `kasbah act`: what can be done with an object, and doing it, straight at its cluster.

use events::requests::index::{IndexedObject, OfferedAction};
use serde::{Deserialize, Serialize};

use super::selection::{Place, fields};
use super::text::named;
use crate::client::api::Api;
use crate::client::commands::credential::kubectl;
use crate::client::commands::kubeconfig::{clusters_url, url_of};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Style, Table};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah act cronjob/nightly                     what can be done with it, and the equal kubectl commands
  kasbah act cronjob/nightly suspend -n shop     do it
  kasbah act cronjob/nightly suspend --dry-run   have the cluster check it, and change nothing
";
/// Who changed the fields, as the cluster keeps it.
const FIELD_MANAGER: &str = "kasbah-act";

/// Which object, and what to do with it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct Act {
    /// KIND/NAME such as cronjob/nightly
    #[arg(value_name = "OBJECT")]
    object: String,
    /// What to do, such as suspend; without it, what can be done is listed
    #[arg(value_name = "ACTION")]
    action: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Have the cluster check it, and change nothing
    #[arg(long, requires = "action")]
    dry_run: bool,
    /// URL of clusters' APIs; by default the server's setting, or the API's host with port 8443
    #[arg(long, env = "KASBAH_CLUSTERS", value_name = "URL")]
    clusters: Option<String>,
}

/// The part of an answer that is used here.
#[derive(Debug, Deserialize)]
struct Answer {
    object: IndexedObject,
    #[serde(default)]
    actions: Vec<OfferedAction>,
}

/// What can be done.
#[derive(Debug, Serialize)]
struct Offered {
    object: IndexedObject,
    actions: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    action: OfferedAction,
    kubectl: String,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    object: IndexedObject,
    #[serde(flatten)]
    listed: Listed,
    dry_run: bool,
    /// The object's version afterwards.
    resource_version: String,
}

/// Runs it.
///
/// # Errors
/// When there is no such object or action, the cluster refuses, or the server or the cluster cannot be asked.
pub async fn run(wanted: Act, session: &Session) -> Result<(), Failure> {
    let query = fields(Some(&wanted.object), None, &wanted.place)?;
    if !query.iter().any(|(field, _)| *field == "name") {
        let message = format!("{:?} names only a kind: expected KIND/NAME such as deploy/web", wanted.object);
        return Err(Failure::usage("OBJECT", message));
    }
    let Answer { object, actions } = session.api.get(&["objects", "detail"], &query).await?;
    let listed = |action| Listed { kubectl: kubectl_of(&object, &action), action };
    let mut actions: Vec<Listed> = actions.into_iter().map(listed).collect();
    let Some(name) = wanted.action else {
        return session.printer.show(&Offered { object, actions }, offered_text);
    };
    let Some(place) = actions.iter().position(|listed| listed.action.name == name) else {
        return Err(Failure::usage("ACTION", not_offered(&name, &actions)));
    };
    let listed = actions.swap_remove(place);
    let resource_version =
        patch(session, (&object, &listed.action), wanted.clusters.as_deref(), wanted.dry_run).await?;
    session.printer.show(&Done { object, listed, dry_run: wanted.dry_run, resource_version }, done_text)
}

fn not_offered(name: &str, actions: &[Listed]) -> String {
    let names: Vec<&str> = actions.iter().map(|listed| listed.action.name.as_str()).collect();
    match names.is_empty() {
        true => format!("{name:?} is not offered for this object, and nothing else is, as it is now"),
        false => format!("{name:?} is not offered for this object as it is now: {} are", names.join(", ")),
    }
}

async fn patch(
    session: &Session,
    (object, action): (&IndexedObject, &OfferedAction),
    clusters: Option<&str>,
    dry_run: bool,
) -> Result<String, Failure> {
    let token = kubectl::token(session).await?;
    let url = url_of(&clusters_url(session, clusters), object.agent);
    let cluster = Api::of_cluster(&url, &token, &session.settings, &session.world)?;
    let identity = &object.identity;
    let mut path: Vec<&str> = match identity.group.as_str() {
        "" => vec!["api"],
        group => vec!["apis", group],
    };
    path.push(&identity.version);
    if !identity.namespace.is_empty() {
        path.extend(["namespaces", identity.namespace.as_str()]);
    }
    path.extend([action.resource.as_str(), identity.name.as_str()]);
    path.extend(action.subresource.as_deref());
    let mut query = vec![("fieldManager", FIELD_MANAGER.to_owned())];
    if dry_run {
        query.push(("dryRun", "All".to_owned()));
    }
    let patch = action.patch.document();
    let changed = cluster.patch(&path, &query, (action.patch.media_type(), &patch)).await?;
    let version = changed.pointer("/metadata/resourceVersion").and_then(serde_json::Value::as_str);
    Ok(version.unwrap_or_default().to_owned())
}

/// The command of kubectl that does the same.
fn kubectl_of(object: &IndexedObject, action: &OfferedAction) -> String {
    let identity = &object.identity;
    let namespace = match identity.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let group = if identity.group.is_empty() { String::new() } else { format!(".{}", identity.group) };
    let subresource = action.subresource.as_ref().map(|name| format!(" --subresource {name}"));
    let kind = if action.patch.media_type().contains("merge") { "merge" } else { "json" };
    // A quote within quotes of a shell.
    let patch = action.patch.document().to_string().replace('\'', r"'\''");
    format!(
        "kubectl{namespace} patch {}{group} {}{} --type {kind} -p '{patch}'",
        action.resource,
        identity.name,
        subresource.unwrap_or_default(),
    )
}

fn offered_text(offered: &Offered, style: Style) -> String {
    let mut table = Table::new(&["ACTION", "WHAT IT DOES", "FROM", "THE SAME WITH KUBECTL"]);
    for Listed { action, kubectl } in &offered.actions {
        let from = if action.declared { "agent's configuration" } else { "built in" };
        table.row([
            Cell::from(action.name.as_str()),
            action.text.as_str().into(),
            from.into(),
            kubectl.as_str().into(),
        ]);
    }
    table.render(style, "nothing can be done with it by name, as it is now")
}

fn done_text(done: &Done, _: Style) -> String {
    let Done { object, listed: Listed { action, kubectl }, dry_run, .. } = done;
    let object = named(&object.identity, None);
    let what = match dry_run {
        true => format!("{} of {object}: the cluster would take it. Nothing was changed.", action.name),
        false => format!("{} of {object}: the cluster took it. {}", action.name, action.text),
    };
    format!("{what}\nThe same with kubectl: {kubectl}")
}

#[cfg(test)]
mod tests {
    use events::configuration::ObjectPatch;
    use events::requests::index::{HealthState, ObjectHealth};
    use events::{AgentId, ObjectIdentity, Timestamp};
    use serde_json::json;

    use super::*;

    fn object(group: &str, namespace: &str) -> IndexedObject {
        let [group, version, kind, namespace, name] =
            [group, "v1", "CronJob", namespace, "nightly"].map(str::to_owned);
        let health = ObjectHealth {
            state: HealthState::Healthy,
            message: String::new(),
            terminating: false,
            optional: false,
            rule: "built-in".to_owned(),
            rule_set: None,
        };
        IndexedObject {
            agent: AgentId(uuid::Uuid::from_u128(1)),
            agent_name: "shop/config:edge".to_owned(),
            identity: ObjectIdentity { group, version, kind, namespace, name },
            uid: "1".to_owned(),
            health,
            created_at: None,
            changed_at: Timestamp(0),
            gone_at: None,
            stale: None,
            environment: None,
            owners: Vec::new(),
            deployment: None,
        }
    }

    fn action(patch: ObjectPatch, subresource: Option<&str>) -> OfferedAction {
        OfferedAction {
            name: "suspend".to_owned(),
            text: "Starts no jobs.".to_owned(),
            resource: "cronjobs".to_owned(),
            subresource: subresource.map(str::to_owned),
            patch,
            declared: false,
        }
    }

    #[test]
    fn the_equal_command_is_one_that_a_shell_takes() {
        let merge = action(ObjectPatch::Merge(json!({"spec": {"note": "it's"}})), Some("status"));
        assert_eq!(
            kubectl_of(&object("batch", "shop"), &merge),
            r#"kubectl -n shop patch cronjobs.batch nightly --subresource status --type merge -p '{"spec":{"note":"it'\''s"}}'"#
        );
        let json = action(ObjectPatch::Json(vec![json!({"op": "remove", "path": "/spec/a"})]), None);
        assert_eq!(
            kubectl_of(&object("", ""), &json),
            r#"kubectl patch cronjobs nightly --type json -p '[{"op":"remove","path":"/spec/a"}]'"#
        );
    }

    #[test]
    fn what_is_not_offered_is_refused_with_what_is() {
        let object = object("batch", "shop");
        let listed = |action: OfferedAction| Listed { kubectl: kubectl_of(&object, &action), action };
        let one = listed(action(ObjectPatch::Merge(json!({})), None));
        assert!(not_offered("pause", &[one]).ends_with("suspend are"));
        assert!(not_offered("pause", &[]).contains("nothing else is"));
    }
}
