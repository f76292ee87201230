//! `kasbah graphql`: a query or a subscription of the caller's own.

use std::io::Read as _;

use events::request::{Refusal, RefusalKind};
use serde_json::{Map, Value, json};

use crate::client::failure::Failure;
use crate::client::print::Format;
use crate::client::session::Session;
use crate::exit;

const EXAMPLES: &str = "  kasbah graphql '{ agents { nodes { name status { state } } } }'
  kasbah graphql @degraded.graphql --variable namespace=shop --variable first=20
  kasbah graphql 'subscription { resourceChanges { change { kind name what } } }'
";

/// What to ask.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("Examples:\n{EXAMPLES}\n{}", exit::HELP))]
pub struct Graphql {
    /// The query or subscription, @FILE to read it from a file, or - to read it from standard input
    #[arg(value_name = "QUERY")]
    query: String,
    /// A variable; a value that is JSON, such as 20, true or {"kind": "deploy"}, is sent as such, and every other as text
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, Value)>,
    /// Which operation to run, if the query has several
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
}

fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// Runs it.
///
/// # Errors
/// When the query cannot be read, the server cannot be asked, or the answer has errors.
pub async fn run(wanted: Graphql, session: &Session) -> Result<(), Failure> {
    let query = read(&wanted.query)?;
    let is_subscription = query.lines().any(|line| line.trim_start().starts_with("subscription"));
    let variables: Map<String, Value> = wanted.variables.into_iter().collect();
    let body = json!({ "query": query, "variables": variables, "operationName": wanted.operation });
    if is_subscription {
        return follow(session, &body).await;
    }
    let answer = session.api.graphql(&body).await?;
    let printed = session.printer.format == Format::Yaml;
    match answer.get("data").filter(|data| !data.is_null()) {
        Some(data) if printed => session.printer.show(data, |_, _| String::new())?,
        Some(data) => session.printer.text(&pretty(data))?,
        None => {}
    }
    failed(&answer)
}

fn read(query: &str) -> Result<String, Failure> {
    let unreadable = |detail| Failure::Io { doing: format!("read the query from {query}"), detail };
    match (query, query.strip_prefix('@')) {
        ("-", _) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
            Ok(text)
        }
        (_, Some(file)) => std::fs::read_to_string(file).map_err(unreadable),
        (text, None) => Ok(text.to_owned()),
    }
}

/// Prints the data of each event in a line of its own.
async fn follow(session: &Session, body: &Value) -> Result<(), Failure> {
    let mut lines = match session.api.graphql_events(body).await? {
        Ok(lines) => lines,
        Err(answer) => return failed(&answer),
    };
    while let Some(line) = lines.next().await? {
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let Ok(answer) = serde_json::from_str::<Value>(data) else { continue };
        if let Some(data) = answer.get("data").filter(|data| !data.is_null()) {
            session.printer.show_line(data, |data, _| data.to_string())?;
        }
        failed(&answer)?;
    }
    Ok(())
}

fn pretty(data: &Value) -> String {
    serde_json::to_string_pretty(data).unwrap_or_default()
}

/// The first error of an answer; the others go to standard error.
fn failed(answer: &Value) -> Result<(), Failure> {
    let refusal = refusal(answer);
    let errors = answer.get("errors").and_then(Value::as_array);
    for other in errors.into_iter().flatten().skip(1) {
        eprintln!("error: {}", message(other));
    }
    refusal.map_or(Ok(()), |refusal| Err(Failure::Refused { refusal, retry_after: None }))
}

fn message(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("no reason is given");
    let path: Vec<String> =
        error.get("path").and_then(Value::as_array).into_iter().flatten().map(step).collect();
    if path.is_empty() { text.to_owned() } else { format!("{}: {text}", path.join(".")) }
}

fn step(step: &Value) -> String {
    step.as_str().map_or_else(|| step.to_string(), str::to_owned)
}

fn refusal(answer: &Value) -> Option<Refusal> {
    // What is refused before a query is read has the form of every refusal.
    if let Ok(refusal) = serde_json::from_value::<Refusal>(answer.clone()) {
        return Some(refusal);
    }
    let error = answer.pointer("/errors/0")?;
    let kind = error.pointer("/extensions/kind").cloned();
    let kind = kind.and_then(|kind| serde_json::from_value(kind).ok()).unwrap_or(RefusalKind::Invalid);
    Some(Refusal::new(kind, message(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_json_or_text() {
        assert_eq!(variable("first=20"), Ok(("first".to_owned(), json!(20))));
        assert_eq!(variable("name=web"), Ok(("name".to_owned(), json!("web"))));
        assert_eq!(variable("labels=app=web"), Ok(("labels".to_owned(), json!("app=web"))));
        assert_eq!(variable(r#"sha="20""#), Ok(("sha".to_owned(), json!("20"))));
        assert!(variable("name").is_err());
    }

    #[test]
    fn the_first_error_is_the_failure() {
        let error =
            json!({ "message": "not found", "path": ["a", 1], "extensions": { "kind": "not-found" } });
        let refused = refusal(&json!({ "data": null, "errors": [error] })).unwrap();
        assert_eq!((refused.kind, refused.message.as_str()), (RefusalKind::NotFound, "a.1: not found"));
        assert_eq!(refusal(&json!({ "kind": "invalid", "message": "m" })).unwrap().message, "m");
        assert!(refusal(&json!({ "data": {} })).is_none());
    }
}
