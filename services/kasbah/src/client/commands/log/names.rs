//! Names beside the ids in events.

use std::collections::BTreeMap;

use events::configuration::GitReference;
use events::request::RefusalKind;
use events::{AggregateKind, AggregateRef, ProjectId};
use repo_poller::model::ref_aggregate;
use serde_json::Value;

use crate::client::failure::Failure;
use crate::client::session::Session;

/// Lists of things with names, and the field of the name.
const LISTS: [(&str, &str); 6] = [
    ("projects", "path"),
    ("agents", "name"),
    ("groups", "name"),
    ("users", "name"),
    ("credentials", "name"),
    ("sources", "name"),
];
/// Fields of an event's data that say what it is about, the most telling first.
const MENTIONS: [&str; 8] = ["source", "agent", "project", "user", "group", "credential", "holder", "scope"];

/// Names by id. An id is that of one thing only, whatever its kind.
#[derive(Debug, Default)]
pub struct EventNames(BTreeMap<String, String>);

impl EventNames {
    /// All names that the asker may list.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn ask(session: &Session) -> Result<Self, Failure> {
        let mut names = Self::default();
        for (list, name) in LISTS {
            let listed = session.api.list::<Value>(&[list], &[]).await;
            let listed = match listed {
                Err(Failure::Refused { refusal, .. })
                    if matches!(refusal.kind, RefusalKind::Denied | RefusalKind::NotFound) =>
                {
                    continue;
                }
                listed => listed?,
            };
            for one in &listed {
                match list {
                    "sources" => {
                        names.add_source(text(one, "agent"), one.get("configuration").unwrap_or(one))
                    }
                    _ => names.add(text(one, "id"), text(one, name)),
                }
            }
        }
        Ok(names)
    }

    /// Learns names of things that an event brings, which may be gone by now or have come just now.
    pub fn learn(&mut self, event: &Value) {
        let Some(data) = event.get("data") else { return };
        let named = |field: &str| (text(data, field), text(data, "name"));
        match text(event, "type") {
            "kasbah.agent.registered" => self.add(named("agent").0, named("agent").1),
            "kasbah.group.created" => self.add(named("group").0, named("group").1),
            "kasbah.credential.created" => self.add(named("credential").0, named("credential").1),
            "kasbah.project.created" => {
                let (id, name) = named("project");
                let group = self.0.get(text(data, "group")).cloned();
                let path = group.map_or_else(|| name.to_owned(), |group| format!("{group}/{name}"));
                self.add(id, &path);
            }
            "kasbah.configuration.changed" => {
                let sources = data.get("configuration").and_then(|known| known.get("sources"));
                for source in sources.and_then(Value::as_array).into_iter().flatten() {
                    self.add_source(text(data, "agent"), source);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, id: &str, name: &str) {
        if !id.is_empty() && !name.is_empty() {
            self.0.entry(id.to_owned()).or_insert_with(|| name.to_owned());
        }
    }

    /// A source of a configuration, and its ref.
    fn add_source(&mut self, agent: &str, source: &Value) {
        let agent = self.0.get(agent).cloned().unwrap_or_else(|| agent.to_owned());
        self.add(text(source, "id"), &format!("{agent}/{}", text(source, "name")));
        let project = text(source, "project").parse::<ProjectId>();
        let reference = source.get("reference").cloned().map(serde_json::from_value::<GitReference>);
        if let (Ok(project), Some(Ok(reference))) = (project, reference) {
            let path = self.0.get(text(source, "project")).cloned().unwrap_or_else(|| project.to_string());
            self.add(&ref_aggregate(project, &reference).id, &format!("{path} {reference}"));
        }
    }

    /// The name of the thing with this id.
    #[must_use]
    pub fn of(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// The name of an aggregate, or of the writer of observations, such as `agent/<id>`.
    #[must_use]
    pub fn subject(&self, subject: &str) -> Option<&str> {
        self.of(subject.split('/').nth(1)?)
    }

    /// Who caused an event, if a name says more than the kind of service.
    #[must_use]
    pub fn actor(&self, event: &Value) -> Option<String> {
        let (kind, id) = text(event, "actor").split_once(':')?;
        match (kind, self.of(id)) {
            ("service", _) => None,
            ("user", Some(name)) => Some(format!("by {name}")),
            (kind, Some(name)) => Some(format!("by {kind} {name}")),
            (kind, None) => Some(format!("by {kind} {id}")),
        }
    }

    /// The same event with names as fields of their own, for programs: `subjectname`, `aboutname` of what it is about beside its
    /// subject, and `actorname`. A name that is not known is left out.
    #[must_use]
    pub fn beside(&self, mut event: Value) -> Value {
        let actor = text(&event, "actor").split_once(':').and_then(|(_, id)| self.of(id));
        let named = [
            ("subjectname", self.subject(text(&event, "subject"))),
            ("aboutname", self.mentioned(&event)),
            ("actorname", actor),
        ];
        let named = named.map(|(field, name)| (field, name.map(str::to_owned)));
        if let Some(fields) = event.as_object_mut() {
            for (field, name) in named {
                fields.extend(name.map(|name| (field.to_owned(), Value::String(name))));
            }
        }
        event
    }

    /// The same for each event of a history or a chain.
    pub fn put_beside(&self, history: &mut Value) {
        let events = history.get_mut("events").and_then(Value::as_array_mut);
        for event in events.into_iter().flatten() {
            *event = self.beside(event.take());
        }
    }

    /// What an event is about, beside its subject.
    #[must_use]
    pub fn mentioned(&self, event: &Value) -> Option<&str> {
        let data = event.get("data")?;
        let subject = self.subject(text(event, "subject"));
        let ids = MENTIONS.iter().flat_map(|field| match data.get(*field) {
            Some(Value::String(id)) => vec![id.as_str()],
            // A holder or scope names its kind and id.
            Some(Value::Object(of)) => of.values().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        });
        let mut named = ids.filter_map(|id| self.of(id));
        // A source's name holds its agent's.
        named.find(|name| subject.is_none_or(|subject| !is_part(name, subject)))
    }
}

fn is_part(name: &str, of: &str) -> bool {
    of == name || of.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The aggregate that people name: `kind/id`, `kind/name`, a source as `agent/source`, or an agent.
///
/// # Errors
/// When there is no such thing, or the server cannot be asked.
pub async fn aggregate(session: &Session, wanted: &str) -> Result<AggregateRef, Failure> {
    let kind =
        wanted.split_once('/').and_then(|(kind, name)| Some((kind.parse::<AggregateKind>().ok()?, name)));
    let Some((kind, name)) = kind else {
        return Ok(if wanted.contains('/') {
            AggregateRef::new(AggregateKind::Source, session.source(wanted).await?)
        } else {
            AggregateRef::new(AggregateKind::Agent, session.agent(wanted).await?.id)
        });
    };
    let is_id = name.parse::<uuid::Uuid>().is_ok();
    Ok(match kind {
        AggregateKind::Source if !is_id => AggregateRef::new(kind, session.source(name).await?),
        AggregateKind::Agent | AggregateKind::Configuration | AggregateKind::Applier if !is_id => {
            AggregateRef::new(kind, session.agent(name).await?.id)
        }
        AggregateKind::Project if !is_id => {
            let project: Value = session.api.get(&["projects", name], &[]).await?;
            AggregateRef::new(kind, text(&project, "id"))
        }
        AggregateKind::Group if !is_id => named(session, kind, "groups", name).await?,
        AggregateKind::User if !is_id => named(session, kind, "users", name).await?,
        AggregateKind::Credential if !is_id => named(session, kind, "credentials", name).await?,
        kind => {
            let wrong = |error: events::aggregate::ParseAggregateError| {
                Failure::usage("AGGREGATE", error.to_string())
            };
            format!("{kind}/{name}").parse().map_err(wrong)?
        }
    })
}

async fn named(
    session: &Session,
    kind: AggregateKind,
    list: &str,
    name: &str,
) -> Result<AggregateRef, Failure> {
    let listed: Vec<Value> = session.api.list(&[list], &[]).await?;
    let found = listed.iter().find(|one| text(one, "name") == name);
    let found = found.ok_or_else(|| Failure::not_found(&format!("{kind} {name}")))?;
    Ok(AggregateRef::new(kind, text(found, "id")))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub const AGENT: &str = "00000000-0000-0000-0000-00000000000a";
    pub const SOURCE: &str = "00000000-0000-0000-0000-00000000000b";
    const PROJECT: &str = "00000000-0000-0000-0000-00000000000c";
    const USER: &str = "00000000-0000-0000-0000-00000000000d";

    pub fn names() -> EventNames {
        let mut names = EventNames::default();
        names.add(USER, "alice");
        let group = json!({"type": "kasbah.group.created", "data": {"group": "g", "name": "shop"}});
        let project = json!({"type": "kasbah.project.created", "data": {"project": PROJECT, "group": "g", "name": "deploy"}});
        let agent = json!({"type": "kasbah.agent.registered", "data": {"agent": AGENT, "name": "demo", "project": PROJECT}});
        let source = json!({"id": SOURCE, "name": "staging", "project": PROJECT, "reference": "default"});
        let configuration = json!({"agent": AGENT, "configuration": {"sources": [source]}});
        let configured = json!({"type": "kasbah.configuration.changed", "data": configuration});
        [group, project, agent, configured].iter().for_each(|event| names.learn(event));
        names
    }

    #[test]
    fn what_events_say_is_known_by_name() {
        let names = names();
        assert_eq!(names.subject(&format!("source/{SOURCE}")), Some("demo/staging"));
        assert_eq!(names.subject(&format!("applier/{AGENT}")), Some("demo"));
        assert_eq!(names.subject("source/unknown"), None);
        let project: ProjectId = PROJECT.parse().unwrap();
        let of_ref = ref_aggregate(project, &GitReference::Default).to_string();
        assert!(names.subject(&of_ref).unwrap().starts_with("shop/deploy "), "{:?}", names.subject(&of_ref));
    }

    #[test]
    fn what_an_event_is_about_is_said_unless_its_subject_says_so() {
        let names = names();
        let about = |subject: &str, data: Value| {
            names.mentioned(&json!({"subject": subject, "data": data})).map(str::to_owned)
        };
        assert_eq!(
            about("ref/x", json!({"source": SOURCE, "agent": AGENT})).as_deref(),
            Some("demo/staging")
        );
        assert_eq!(about(&format!("source/{SOURCE}"), json!({"source": SOURCE, "agent": AGENT})), None);
        assert_eq!(
            about(&format!("agent/{AGENT}"), json!({"source": SOURCE})).as_deref(),
            Some("demo/staging")
        );
        assert_eq!(about("user/x", json!({"holder": {"user": USER}})).as_deref(), Some("alice"));
        assert_eq!(about("user/x", json!({"source": "unknown"})), None);
    }

    #[test]
    fn programs_get_names_beside_the_ids() {
        let event = json!({
            "subject": format!("agent/{AGENT}"), "actor": format!("user:{USER}"), "data": {"source": SOURCE},
        });
        let mut history = json!({ "aggregate": "x", "events": [event, {"subject": "source/unknown"}] });
        names().put_beside(&mut history);
        let named = &history["events"][0];
        assert_eq!(named["subject"], format!("agent/{AGENT}"), "the id stays");
        assert_eq!(
            [&named["subjectname"], &named["aboutname"], &named["actorname"]],
            ["demo", "demo/staging", "alice"]
        );
        assert_eq!(history["events"][1], json!({"subject": "source/unknown"}));
    }

    #[test]
    fn people_and_agents_are_named_as_causes_and_services_are_not() {
        let names = names();
        let by = |actor: String| names.actor(&json!({"actor": actor}));
        assert_eq!(by(format!("user:{USER}")).as_deref(), Some("by alice"));
        assert_eq!(by(format!("agent:{AGENT}")).as_deref(), Some("by agent demo"));
        assert_eq!(by("user:unknown".to_owned()).as_deref(), Some("by user unknown"));
        assert_eq!(by("service:delivery".to_owned()), None);
        assert_eq!(names.actor(&json!({})), None);
    }
}
