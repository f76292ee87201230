//! `kasbah diff`: what changed of an object between two moments.

use serde::Serialize;
use similar::TextDiff;

use super::selection::Named;
use super::show::Answer;
use super::text::named;
use crate::client::failure::Failure;
use crate::client::moment::Past;
use crate::client::print::{Paint, Style};
use crate::client::session::Session;
use crate::exit;
use events::Timestamp;
use events::request::RefusalKind;

/// Lines around each change.
const CONTEXT: usize = 3;

const EXAMPLES: &str = "  kasbah diff deploy/web --from 1h             what changed in the last hour
  kasbah diff deploy/web --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z
";

/// Which object, and when.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("Examples:\n{EXAMPLES}\n{}", exit::OBJECT_DIFF_HELP))]
pub struct Diff {
    #[command(flatten)]
    named: Named,
    /// The earlier moment: a duration ago, such as 15m, a time such as 2026-01-31T12:00:00Z, or the position of an answer
    #[arg(long, value_name = "MOMENT", value_parser = Past::parse, allow_hyphen_values = true)]
    from: Past,
    /// The later moment; now if not given
    #[arg(long, value_name = "MOMENT", value_parser = Past::parse, allow_hyphen_values = true)]
    to: Option<Past>,
    /// Judge both moments by the rules that are declared today, and not by those of then
    #[arg(long)]
    todays_rules: bool,
}

/// What differs.
#[derive(Debug, Serialize)]
struct Compared {
    differs: bool,
    /// As it was then; absent where it was not there.
    from: Option<Answer>,
    to: Option<Answer>,
    /// As a unified diff of YAML.
    diff: String,
}

/// Runs it.
///
/// # Errors
/// When there is a difference, and when there is no comparison, which has a code of its own.
pub async fn run(wanted: Diff, opened: Result<Session, Failure>) -> Result<(), Failure> {
    let differs = match opened {
        Ok(session) => compare(wanted, &session).await,
        Err(failure) => Err(failure),
    };
    match differs.map_err(|failure| Failure::NotCompared(Box::new(failure)))? {
        true => Err(Failure::Differs),
        false => Ok(()),
    }
}

async fn compare(wanted: Diff, session: &Session) -> Result<bool, Failure> {
    let now = Timestamp(session.world.clock.now_millis());
    let mut asked = wanted.named.one()?;
    asked.extend(wanted.todays_rules.then(|| ("todays_rules", "true".to_owned())));
    let from = at(session, &asked, Some(wanted.from.to_query(now))).await?;
    let to = at(session, &asked, wanted.to.as_ref().map(|to| to.to_query(now))).await?;
    let compared = compared(from, to).ok_or_else(|| Failure::not_found(&wanted.named.called()))?;
    if let Some(unknown) = [&compared.from, &compared.to].into_iter().flatten().find(|one| one.body.is_none())
    {
        let what = named(&unknown.object.identity, None);
        return Err(Failure::Unsuccessful(format!("the body of {what} is not known for both moments")));
    }
    session.printer.show(&compared, text)?;
    Ok(compared.differs)
}

/// The object at a moment; `None` where it was not there.
async fn at(
    session: &Session,
    asked: &[(&str, String)],
    at: Option<String>,
) -> Result<Option<Answer>, Failure> {
    let mut query = asked.to_vec();
    query.extend(at.map(|at| ("at", at)));
    match session.api.get::<Answer>(&["objects", "detail"], &query).await {
        Ok(answer) if answer.object.gone_at.is_some() => Ok(None),
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Refused { refusal, .. }) if refusal.kind == RefusalKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Compares; `None` where the object was there at neither moment.
fn compared(from: Option<Answer>, to: Option<Answer>) -> Option<Compared> {
    if from.is_none() && to.is_none() {
        return None;
    }
    let body = |of: &Option<Answer>| of.as_ref().map(Answer::as_yaml).unwrap_or_default();
    let called = |of: &Option<Answer>| match of {
        Some(answer) => format!("{} of {}", named(&answer.object.identity, None), answer.object.changed_at),
        None => "not there".to_owned(),
    };
    let (before, after) = (body(&from), body(&to));
    let lines = TextDiff::from_lines(&before, &after);
    let diff = lines.unified_diff().context_radius(CONTEXT).header(&called(&from), &called(&to)).to_string();
    Some(Compared { differs: before != after, from, to, diff })
}

fn text(compared: &Compared, style: Style) -> String {
    if !compared.differs {
        return Paint::Dim.on("no difference", style.colour);
    }
    let mut text = String::new();
    for line in compared.diff.lines() {
        let paint = match line.bytes().next() {
            Some(b'+') => Paint::Good,
            Some(b'-') => Paint::Bad,
            _ => Paint::Plain,
        };
        text.push_str(&paint.on(line, style.colour));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::text::tests::STYLE;
    use super::*;

    fn answer(replicas: u32) -> Answer {
        let body = json!({"kind": "Deployment", "spec": {"replicas": replicas}}).to_string();
        let object = json!({
            "agent": "00000000-0000-0000-0000-000000000001", "agent_name": "shop/deploy:edge",
            "identity": {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "uid": "u", "health": {"state": "healthy", "rule": "built-in"}, "changed_at": "1970-01-01T00:00:00Z",
        });
        let as_of = json!({"position": "p_a", "judged_at": "1970-01-01T00:00:00Z", "rules": 1});
        serde_json::from_value(json!({"object": object, "body": body, "related": [], "as_of": as_of}))
            .unwrap()
    }

    #[test]
    fn a_difference_is_shown_line_by_line() {
        let differs = compared(Some(answer(1)), Some(answer(3))).unwrap();
        let shown = text(&differs, STYLE);
        assert!(differs.differs && shown.contains("-  replicas: 1\n+  replicas: 3\n"), "{shown}");
        let same = compared(Some(answer(1)), Some(answer(1))).unwrap();
        assert!(!same.differs && text(&same, STYLE) == "no difference");
        let made = compared(None, Some(answer(1))).unwrap();
        assert!(made.differs && text(&made, STYLE).starts_with("--- not there\n+++ Deployment shop/web of "));
        assert!(compared(None, None).is_none());
    }
}
