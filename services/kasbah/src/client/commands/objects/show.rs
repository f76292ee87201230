//! `kasbah show`: everything that is known of one object.

use events::observation::FieldWriter;
use events::requests::index::{
    IndexedObject, MeshSecurity, ObjectDeployment, ObjectEnvironment, ObjectHealth, RelatedObject,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::selection::{AtArg, Named};
use super::text::{health, named, owner};
use super::{AsOf, coverage, history};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Fields, Paint, Style, Table, at, short_commit, yaml};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah show deploy/web                       its state, who wrote it last, its relations, and the object as YAML
  kasbah show deploy/web -n shop --at 2h       as it was two hours ago
";

/// Which object.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct Show {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    at: AtArg,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) object: IndexedObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<FieldWriter>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environments: Vec<ObjectEnvironment>,
    related: Vec<RelatedObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mesh: Option<MeshSecurity>,
    as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When there is no such object or more than one, or the server refuses or cannot be asked.
pub async fn run(wanted: Show, session: &Session) -> Result<(), Failure> {
    let mut query = wanted.named.one()?;
    wanted.at.add_to(&mut query, session);
    let answer: Answer = session.api.get(&["objects", "detail"], &query).await?;
    session.printer.show(&answer, text)?;
    coverage::warn(session, &wanted.named.place).await;
    Ok(())
}

impl Answer {
    /// The object as YAML; empty where it is not known.
    pub(super) fn as_yaml(&self) -> String {
        let body = self.body.as_deref().map(serde_json::from_str::<Value>);
        match body {
            Some(Ok(body)) => yaml(&body).unwrap_or_default(),
            Some(Err(_)) | None => String::new(),
        }
    }
}

fn text(answer: &Answer, style: Style) -> String {
    let object = &answer.object;
    let moment = |moment| at(moment, style.now);
    let message = object.health.message.as_str();
    let mut text = Fields::new()
        .with("Object", named(&object.identity, None))
        .with("API version", object.identity.api_version())
        .with("Agent", object.agent_name.as_str())
        .with("UID", object.uid.as_str())
        .with("Owned by", owned(object))
        .with_some("Environment", environments(&answer.environments))
        .with_some("Set by", object.deployment.as_ref().map(set_by))
        .with("Health", health(object))
        .with_some("Reason", Some(message).filter(|message| !message.is_empty()))
        .with("Judged by", judged_by(&object.health))
        .with_some("Mesh", answer.mesh.as_ref().map(mesh))
        .with_some("Created", object.created_at.map(moment))
        .with("Changed", moment(object.changed_at))
        .with_some("Gone", object.gone_at.map(|gone| Cell::painted(&moment(gone), Paint::Odd)))
        .with_some("Written by", answer.writer.as_ref().map(|writer| written(writer, style)))
        .with_some("Out of date", object.stale.as_deref().map(|why| Cell::painted(why, Paint::Bad)))
        .render(style);
    if !answer.related.is_empty() {
        text.push_str(&format!("\n{}\n", Paint::Strong.on("Relations", style.colour)));
        text.push_str(&related(&answer.related).render(style, ""));
    }
    let body = answer.as_yaml();
    match body.is_empty() {
        true => text.push_str("\nThe object itself is not known here, or too large.\n"),
        false => text.push_str(&format!("\n{}\n{body}", Paint::Strong.on("Body", style.colour))),
    }
    text
}

/// Such as `istio, mTLS strict (PeerAuthentication shop/default), port 9090: off`.
fn mesh(security: &MeshSecurity) -> Cell {
    let MeshSecurity { mesh, mtls, reason, ports } = security;
    let ports: String = ports.iter().map(|one| format!(", port {}: {}", one.port, one.mtls)).collect();
    let paint = match mtls.as_str() {
        "strict" => Paint::Good,
        "off" => Paint::Bad,
        _ => Paint::Odd,
    };
    let mesh = if mesh == "none" { "in no mesh" } else { mesh };
    Cell::painted(&format!("{mesh}, mTLS {mtls} ({reason}){ports}"), paint)
}

fn owned(object: &IndexedObject) -> Cell {
    let owners: Vec<String> = object.owners.iter().map(owner).collect();
    match owners.len() {
        0 => Cell::painted("nobody that is known", Paint::Odd),
        1 => owners.join("").into(),
        _ => Cell::painted(&owners.join(", "), Paint::Odd),
    }
}

/// `deployment 0190…, commit 4f1a5b10c0 (inferred from its writer and the time)`.
fn set_by(deployment: &ObjectDeployment) -> String {
    let commit = short_commit(&deployment.commit);
    let commit = if commit.is_empty() { String::new() } else { format!(", commit {commit}") };
    let inferred = if deployment.inferred { " (inferred from its writer and the time)" } else { "" };
    format!("deployment {}{commit}{inferred}", deployment.id)
}

fn environments(all: &[ObjectEnvironment]) -> Option<Cell> {
    let names: Vec<String> = all.iter().map(|of| format!("{}:{}", of.project_path, of.name)).collect();
    let paint = if names.len() > 1 { Paint::Odd } else { Paint::Plain };
    (!names.is_empty()).then(|| Cell::painted(&names.join(", "), paint))
}

/// Which rule, and of which version where it was declared.
fn judged_by(health: &ObjectHealth) -> String {
    let version = health.rule_set.as_ref().map(|version| format!(", rules {version}"));
    format!("{}{}", health.rule, version.unwrap_or_default())
}

fn written(writer: &FieldWriter, style: Style) -> String {
    let by = format!("{}, {}", history::writer(writer), writer.operation.to_lowercase());
    writer.at.map_or_else(|| by.clone(), |moment| format!("{by}, {}", at(moment, style.now)))
}

fn related(all: &[RelatedObject]) -> Table {
    let mut table = Table::new(&["RELATION", "OBJECT", ""]);
    for one in all {
        let relation = if one.inwards { format!("← {}", one.relation) } else { one.relation.clone() };
        let missing = match (&one.uid, one.missing) {
            (Some(_), _) => Cell::default(),
            (None, true) => Cell::painted("not there", Paint::Odd),
            (None, false) => Cell::painted("not seen", Paint::Dim),
        };
        table.row([relation.into(), one.key.to_string().into(), missing]);
    }
    table
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use events::requests::index::{HealthState, PortSecurity};

    use super::super::text::tests::{STYLE, object};
    use super::*;

    #[test]
    fn an_object_is_shown_with_its_writer_its_relations_and_its_body() {
        let web = object("Deployment", "web", HealthState::Degraded, "0 of 1 pods available");
        let key = object("Pod", "web-1", HealthState::Healthy, "").identity.key();
        let mounts = |missing| RelatedObject {
            relation: "mounts".into(),
            inwards: true,
            key: key.clone(),
            uid: None,
            missing,
        };
        let related = vec![mounts(true), mounts(false)];
        let writer = FieldWriter {
            manager: "kubectl-edit".into(),
            operation: "Update".into(),
            subresource: String::new(),
            at: Some(Timestamp(540_000)),
        };
        let body = Some(r#"{"kind":"Deployment","spec":{"replicas":1}}"#.to_owned());
        let as_of = AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None };
        let ports = vec![PortSecurity { port: 9090, mtls: "off".into() }];
        let (strict, reason) = ("strict".into(), "PeerAuthentication shop/default".into());
        let mesh = Some(MeshSecurity { mesh: "istio".into(), mtls: strict, reason, ports });
        let environments = Vec::new();
        let answer = Answer { object: web, body, writer: Some(writer), environments, related, mesh, as_of };
        let shown = text(&answer, STYLE);
        for line in [
            "Object       Deployment shop/web",
            "Health       degraded",
            "Reason       0 of 1 pods available",
            "Mesh         istio, mTLS strict (PeerAuthentication shop/default), port 9090: off",
            "Written by   kubectl-edit, update, 1970-01-01T00:09:00.000Z (1m ago)",
            "← mounts  Pod shop/web-1  not there",
            "← mounts  Pod shop/web-1  not seen",
            "kind: Deployment",
            "  replicas: 1",
        ] {
            assert!(shown.lines().any(|shown| shown.trim_end() == line), "{line}: {shown}");
        }
        let none = text(&Answer { body: None, related: Vec::new(), ..answer }, STYLE);
        assert!(none.contains("not known here") && !none.contains("Relations"), "{none}");
    }
}
