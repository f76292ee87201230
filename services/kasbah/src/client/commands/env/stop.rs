//! `kasbah env stop`: the state alone, or with the objects that its sources own.

use std::io::IsTerminal as _;

use events::requests::environments::{EnvironmentView, StopEnvironment, StopPreview, WithdrawnSource};
use reqwest::Method;

use super::{EnvironmentArg, names, print, resolve};
use crate::client::failure::Failure;
use crate::client::names::Names;
use crate::client::session::Session;

/// Objects of a source that are named before the question.
const NAMED: usize = 20;

/// What is stopped, and what goes with it.
#[derive(Debug, clap::Args)]
pub struct Stop {
    #[command(flatten)]
    environment: EnvironmentArg,
    /// Reason, shown to other users
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Also delete the objects of the sources that deploy into it, after showing them and asking. The sources apply nothing until `kasbah source
    /// unpin`
    #[arg(long)]
    delete_objects: bool,
    /// Delete without asking, for scripts
    #[arg(long, short, requires = "delete_objects")]
    yes: bool,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked, or the person says no.
pub(super) async fn run(wanted: Stop, session: &Session) -> Result<(), Failure> {
    let id = resolve(session, &wanted.environment).await?;
    let path = ["environments", &id.to_string(), "stop"];
    if wanted.delete_objects {
        let preview: StopPreview = session.api.get(&path, &[]).await?;
        let names = names(session).await?;
        // The answer alone is for standard output.
        eprint!("{}", text(&preview, &names));
        if !wanted.yes {
            agreed(&preview)?;
        }
    }
    let delete_objects = wanted.delete_objects;
    let body = StopEnvironment { environment: id, reason: wanted.reason, delete_objects };
    let view: EnvironmentView = session.api.send(Method::POST, &path, &body).await?;
    print(session, &view).await
}

/// Asks before anything is deleted. Without a terminal nobody could answer.
fn agreed(preview: &StopPreview) -> Result<(), Failure> {
    if preview.sources.iter().all(|source| source.deletes == 0) {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--yes",
            "is required where nobody can be asked; the objects are named above",
        ));
    }
    eprint!("Delete them? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|detail| Failure::Io { doing: "read from the terminal".to_owned(), detail })?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Unsuccessful("nothing was stopped or deleted".to_owned())),
    }
}

fn text(preview: &StopPreview, names: &Names) -> String {
    let mut text = String::new();
    for source in &preview.sources {
        of_source(&mut text, source, names);
    }
    if preview.hidden > 0 {
        text.push_str(&format!("{} more sources, which you may not see\n", preview.hidden));
    }
    if text.is_empty() {
        text.push_str("no source deploys into this environment: no object is deleted\n");
    }
    text
}

fn of_source(text: &mut String, source: &WithdrawnSource, names: &Names) {
    let name = format!("{}/{}", names.agent(source.agent), source.name);
    let objects = if source.deletes == 1 { "object" } else { "objects" };
    text.push_str(&format!("source {name}: {} {objects} to delete\n", source.deletes));
    for object in source.objects.iter().take(NAMED) {
        text.push_str(&format!("  - {object}\n"));
    }
    let more = beyond(source.deletes, source.objects.len());
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    for kept in source.kept.iter().take(NAMED) {
        text.push_str(&format!("  stays: {}: {}\n", kept.identity, kept.reason));
    }
    let more = beyond(source.stay, source.kept.len());
    if more > 0 {
        text.push_str(&format!("  {more} more stay\n"));
    }
    for (word, why) in [("waits", &source.waits), ("refused", &source.refused)] {
        text.push_str(&why.as_ref().map(|why| format!("  {word}: {why}\n")).unwrap_or_default());
    }
}

/// How many of all objects are not named.
fn beyond(all: u32, listed: usize) -> usize {
    usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(listed.min(NAMED))
}

#[cfg(test)]
mod tests {
    use events::requests::delivery::KeptObject;
    use events::{AgentId, ObjectIdentity, SourceId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_goes_what_stays_and_why_it_may_not_is_shown() {
        let object = |name: usize| ObjectIdentity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("c{name}"),
        };
        let source = WithdrawnSource {
            source: SourceId(Uuid::nil()),
            name: "shop".to_owned(),
            agent: AgentId(Uuid::nil()),
            deletes: 120,
            objects: (0..100).map(object).collect(),
            stay: 1,
            kept: vec![KeptObject { identity: object(200), reason: "it was adopted".to_owned() }],
            waits: Some("suspended; resume it to continue".to_owned()),
            refused: Some("needs role maintainer".to_owned()),
        };
        let shown = text(&StopPreview { sources: vec![source], hidden: 2 }, &Names::default());
        for part in [
            "/shop: 120 objects to delete",
            "ConfigMap shop/c0",
            "and 100 more",
            "stays: v1 ConfigMap shop/c200: it was adopted",
            "waits: suspended",
            "refused: needs role maintainer",
            "2 more sources",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("c20\n"), "{shown}");
        assert!(text(&StopPreview::default(), &Names::default()).contains("no source"));
    }
}
