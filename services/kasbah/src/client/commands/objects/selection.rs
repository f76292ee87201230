//! Which objects a command line means.

use clap::builder::PossibleValuesParser;
use events::environment::Tier;
use events::requests::index::IndexedObject;
use events::{DeploymentId, Timestamp};

use super::text::STATES;
use crate::client::failure::Failure;
use crate::client::moment::Past;
use crate::client::session::Session;

/// Fields of a query.
pub(super) type Fields = Vec<(&'static str, String)>;

/// Where objects are.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Place {
    /// Only in this agent's cluster: name, group/project:name, or id; by default in all clusters that you may use
    #[arg(long)]
    pub agent: Option<String>,
    /// Only in this namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// In all namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only of this environment: name, group/project:name, or id; * stands for any text, as in 'review/*'
    #[arg(long, value_name = "ENVIRONMENT")]
    pub env: Option<String>,
    /// Only of environments of this tier: production, staging, testing, development or other
    #[arg(long)]
    pub tier: Option<Tier>,
    /// Only of environments of this project: group/name, or id
    #[arg(long)]
    pub project: Option<String>,
    /// Only objects that this deployment set last: its id, as `kasbah env history` prints it
    #[arg(long, value_name = "ID")]
    pub deployment: Option<DeploymentId>,
}

/// Of what time.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AtArg {
    /// As of a moment of the past: a duration ago, such as 15m, a time such as 2026-01-31T12:00:00Z, or the position of an answer
    #[arg(long, value_name = "MOMENT", value_parser = Past::parse, allow_hyphen_values = true)]
    pub at: Option<Past>,
    /// Judge and relate objects of the past by the rules that are declared today, and not by those of then
    #[arg(long, requires = "at")]
    pub todays_rules: bool,
}

/// What objects are like.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Likeness {
    /// Only objects with these labels, such as 'app=web,tier in (a, b),!canary'
    #[arg(short = 'l', long = "selector", value_name = "LABELS")]
    pub labels: Option<String>,
    /// Only objects in these states of health, separated by commas
    #[arg(long, value_name = "STATE", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(STATES.iter().map(|(word, _)| *word)))]
    pub health: Vec<String>,
    /// Only objects with this text in their name, namespace, kind, labels or the reason of their health
    #[arg(long)]
    pub text: Option<String>,
}

/// One object, or those of a kind.
#[derive(Debug, Clone, clap::Args)]
pub struct Named {
    /// KIND/NAME such as deploy/web, or KIND alone, such as deploy or deployments.apps
    #[arg(value_name = "OBJECT")]
    pub object: String,
    /// The name, when OBJECT is only a kind
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where it is.
    #[command(flatten)]
    pub place: Place,
}

impl Place {
    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        fields.extend(self.agent.clone().map(|agent| ("agent", agent)));
        fields.extend(self.namespace.clone().map(|namespace| ("namespace", namespace)));
        fields.extend(self.env.clone().map(|env| ("env", env)));
        fields.extend(self.tier.map(|tier| ("tier", tier.to_string())));
        fields.extend(self.project.clone().map(|project| ("project", project)));
        fields.extend(self.deployment.map(|deployment| ("deployment", deployment.to_string())));
        fields
    }

    /// Whether environments are asked about.
    pub const fn names_environments(&self) -> bool {
        self.env.is_some() || self.tier.is_some() || self.project.is_some()
    }
}

impl AtArg {
    /// Adds it to a query.
    pub fn add_to(&self, fields: &mut Fields, session: &Session) {
        let now = Timestamp(session.world.clock.now_millis());
        fields.extend(self.at.as_ref().map(|at| ("at", at.to_query(now))));
        if self.todays_rules {
            fields.push(("todays_rules", "true".to_owned()));
        }
    }
}

impl Likeness {
    /// Adds it to a query.
    pub fn add_to(&self, fields: &mut Fields) {
        fields.extend(self.labels.clone().map(|labels| ("labels", labels)));
        if !self.health.is_empty() {
            fields.push(("health", self.health.join(",")));
        }
        fields.extend(self.text.clone().map(|text| ("text", text)));
    }
}

impl Named {
    /// As fields of a query.
    ///
    /// # Errors
    /// When the words make no sense.
    pub fn fields(&self) -> Result<Fields, Failure> {
        fields(Some(&self.object), self.name.as_deref(), &self.place)
    }

    /// As people call it.
    pub fn called(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.object),
            None => self.object.clone(),
        }
    }

    /// The same if it names one object.
    ///
    /// # Errors
    /// When it names only a kind, or makes no sense.
    pub fn one(&self) -> Result<Fields, Failure> {
        let fields = self.fields()?;
        if fields.iter().any(|(field, _)| *field == "name") {
            return Ok(fields);
        }
        let message = format!("{:?} names only a kind: expected KIND/NAME such as deploy/web", self.object);
        Err(Failure::usage("OBJECT", message))
    }
}

/// Kind, name and place as fields of a query.
///
/// # Errors
/// When the words make no sense.
pub(super) fn fields(object: Option<&str>, name: Option<&str>, place: &Place) -> Result<Fields, Failure> {
    let mut fields = place.fields();
    let Some(object) = object else { return Ok(fields) };
    let wrong = |what: &str| {
        Err(Failure::usage("OBJECT", format!("{object:?} {what}: expected KIND/NAME such as deploy/web")))
    };
    let (kind, name) = match (object.split_once('/'), name) {
        (Some(_), Some(_)) => return wrong("has a name already"),
        (Some((kind, name)), None) => (kind, Some(name)),
        (None, name) => (object, name),
    };
    if kind.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
        return wrong("names no object");
    }
    fields.push(("kind", kind.to_owned()));
    fields.extend(name.map(|name| ("name", name.to_owned())));
    Ok(fields)
}

/// The agent's name without its project.
pub(super) fn agent_of(object: &IndexedObject) -> &str {
    short_agent(&object.agent_name)
}

/// The same of any agent's name.
pub(super) fn short_agent(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_in_one_word_or_two() {
        let place = Place { namespace: Some("shop".into()), ..Place::default() };
        let place_field = ("namespace", "shop".to_owned());
        let web = vec![place_field.clone(), ("kind", "deploy".to_owned()), ("name", "web".to_owned())];
        assert_eq!(fields(Some("deploy/web"), None, &place).unwrap(), web);
        assert_eq!(fields(Some("deploy"), Some("web"), &place).unwrap(), web);
        assert_eq!(fields(None, None, &place).unwrap(), [place_field]);
        for (object, name) in
            [("deploy/web", Some("api")), ("/web", None), ("deploy/", None), ("deploy/a/b", None), ("", None)]
        {
            assert_eq!(fields(Some(object), name, &place).unwrap_err().code(), 2, "{object} {name:?}");
        }
        let kind = Named { object: "deploy".into(), name: None, place: Place::default() };
        assert!(kind.one().unwrap_err().to_string().contains("names only a kind"));
    }
}
