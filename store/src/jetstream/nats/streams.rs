//! Streams are created, or given more replicas, and never changed otherwise.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::link::Link;
use super::{ApiError, check, refused};
use crate::jetstream::server::ServerError;

const NO_STREAM: u64 = 10059;
/// What a stream of ours never has: each of these could lose, change or hide what was stored.
const NEVER: [&str; 9] = [
    "no_ack",
    "sealed",
    "mirror",
    "sources",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_msg_counter",
    "persist_mode",
    "subject_transform",
];

/// A stream as it is to be: its settings, as the JetStream API names them.
#[derive(Debug, Clone)]
pub(in crate::jetstream) struct Wanted {
    pub(in crate::jetstream) name: String,
    pub(in crate::jetstream) settings: Map<String, Value>,
}

/// A stream that is there is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub stream: String,
    /// A line for each setting: its name, what is wanted, what it is.
    pub settings: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stream, self.settings.join("; "))
    }
}

#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
    config: Option<Map<String, Value>>,
}

/// What somebody else makes is not there yet.
pub(in crate::jetstream) fn not_made(stream: &str) -> ServerError {
    ServerError(format!("{stream} does not exist yet: authz creates it at its start"))
}

/// Somebody else has yet to have it kept as often as the servers promise.
fn too_few(stream: &str, has: u64, replicas: usize) -> ServerError {
    ServerError(format!(
        "{stream} has {has} replicas instead of {replicas}: authz adds replicas at its start"
    ))
}

/// Looks whether the stream that is there is the one that is wanted. Whoever makes streams makes one that is not there, and
/// gives it more replicas where it has fewer; whoever does not waits for that.
pub(in crate::jetstream) async fn ensure(
    link: &Link,
    wanted: &Wanted,
    replicas: usize,
    makes: bool,
) -> Result<Option<Difference>, ServerError> {
    let name = &wanted.name;
    let mut settings = wanted.settings.clone();
    settings.insert("name".to_owned(), json!(name));
    settings.insert("num_replicas".to_owned(), json!(replicas));
    let there: Answer = link.api(&format!("STREAM.INFO.{name}"), &json!({})).await?;
    let mut config = match there.error {
        Some(error) if error.err_code == NO_STREAM && !makes => return Err(not_made(name)),
        Some(error) if error.err_code == NO_STREAM => made(link, "CREATE", name, &settings).await?,
        Some(error) => return Err(refused(name, &error)),
        None => there.config.unwrap_or_default(),
    };
    let has = config.get("num_replicas").and_then(Value::as_u64).unwrap_or(0);
    if has < replicas as u64 {
        if !makes {
            return Err(too_few(name, has, replicas));
        }
        tracing::info!(stream = name, from = has, to = replicas, "stream gets more replicas");
        let mut widened = config.clone();
        widened.insert("num_replicas".to_owned(), json!(replicas));
        config = made(link, "UPDATE", name, &widened).await?;
    }
    settings.remove("num_replicas");
    let settings = differences(&settings, &config);
    Ok((!settings.is_empty()).then(|| Difference { stream: name.clone(), settings }))
}

#[cfg(test)]
impl Link {
    /// What somebody who is not us could do to a stream.
    pub(in crate::jetstream) async fn change_stream(
        &self,
        name: &str,
        settings: &Value,
    ) -> Result<(), ServerError> {
        let settings = settings.as_object().cloned().unwrap_or_default();
        let mut changed: Answer = self.api(&format!("STREAM.INFO.{name}"), &json!({})).await?;
        let mut config = changed.config.take().unwrap_or_default();
        config.extend(settings);
        made(self, "UPDATE", name, &config).await.map(|_| ())
    }

    /// The same to all that is in it.
    pub(in crate::jetstream) async fn delete_stream(&self, name: &str) -> Result<(), ServerError> {
        let answer: Answer = self.api(&format!("STREAM.DELETE.{name}"), &json!({})).await?;
        check(answer.error, name)
    }
}

async fn made(
    link: &Link,
    how: &str,
    name: &str,
    settings: &Map<String, Value>,
) -> Result<Map<String, Value>, ServerError> {
    let answer: Answer = link.api(&format!("STREAM.{how}.{name}"), settings).await?;
    check(answer.error, name)?;
    Ok(answer.config.unwrap_or_default())
}

fn differences(wanted: &Map<String, Value>, config: &Map<String, Value>) -> Vec<String> {
    let unset = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || *value == json!("") || *value == json!("default")
    };
    let other = wanted.iter().filter_map(|(name, value)| {
        let has = config.get(name).unwrap_or(&Value::Null);
        let same = value == has || (unset(value) && unset(has));
        (!same).then(|| format!("{name} is {has}, not {value}"))
    });
    let never = NEVER.iter().filter_map(|name| {
        let has = config.get(*name).filter(|has| !unset(has))?;
        Some(format!("{name} is {has}, and must not be set"))
    });
    other.chain(never).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn each_difference_is_named_with_both_values() {
        let wanted = settings(json!({ "deny_delete": true, "max_age": 0, "allow_direct": true }));
        let same =
            settings(json!({ "deny_delete": true, "max_age": 0, "allow_direct": true, "placement": {} }));
        assert_eq!(differences(&wanted, &same), Vec::<String>::new());
        let other = settings(json!({ "max_age": 60, "allow_direct": true, "sealed": true, "mirror": null }));
        let found = differences(&wanted, &other);
        assert_eq!(
            found,
            ["deny_delete is null, not true", "max_age is 60, not 0", "sealed is true, and must not be set"]
        );
    }
}
