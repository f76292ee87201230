//! `kasbah env diff`: what came, went and changed in an environment between two moments.

use events::Timestamp;
use events::requests::index::{ChangedField, ChangedObject, IndexedObject};
use serde::{Deserialize, Serialize};

use super::{EnvironmentArg, resolve};
use crate::client::commands::objects::AsOf;
use crate::client::commands::objects::text::named;
use crate::client::failure::Failure;
use crate::client::moment::Past;
use crate::client::print::{Paint, Style, one_line};
use crate::client::session::Session;

/// Which environment, and when.
#[derive(Debug, clap::Args)]
pub struct Diff {
    #[command(flatten)]
    environment: EnvironmentArg,
    /// The earlier moment: a duration ago, such as 15m, a time such as 2026-01-31T12:00:00Z, or the position of an answer
    #[arg(long, value_name = "MOMENT", value_parser = Past::parse, allow_hyphen_values = true)]
    from: Past,
    /// The later moment; now if not given
    #[arg(long, value_name = "MOMENT", value_parser = Past::parse, allow_hyphen_values = true)]
    to: Option<Past>,
    /// Compare the status of objects as well
    #[arg(long)]
    status: bool,
    /// Judge both moments by the rules that are declared today, and not by those of then
    #[arg(long)]
    todays_rules: bool,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    differs: bool,
    came: Vec<IndexedObject>,
    went: Vec<IndexedObject>,
    changed: Vec<ChangedObject>,
    left_out: u64,
    as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When there is a difference, and when there is no comparison.
pub(super) async fn run(wanted: Diff, session: &Session) -> Result<(), Failure> {
    let now = Timestamp(session.world.clock.now_millis());
    let id = resolve(session, &wanted.environment).await?.to_string();
    let mut query = vec![("from", wanted.from.to_query(now))];
    query.extend(wanted.to.as_ref().map(|to| ("to", to.to_query(now))));
    query.extend(wanted.status.then(|| ("status", "true".to_owned())));
    query.extend(wanted.todays_rules.then(|| ("todays_rules", "true".to_owned())));
    let diff: Answer = session.api.get(&["environments", &id, "diff"], &query).await?;
    Failure::compared(session.printer.show(&diff, text), diff.differs)
}

fn text(diff: &Answer, style: Style) -> String {
    if !diff.differs {
        return Paint::Dim.on("no difference", style.colour);
    }
    let mut text = String::new();
    let mut line = |sign: &str, paint: Paint, words: &str| {
        text.push_str(&paint.on(&format!("{sign} {}", one_line(words)), style.colour));
        text.push('\n');
    };
    for object in &diff.went {
        line("-", Paint::Bad, &named(&object.identity, None));
    }
    for object in &diff.came {
        line("+", Paint::Good, &named(&object.identity, None));
    }
    for ChangedObject { object, fields, field_count } in &diff.changed {
        line("~", Paint::Odd, &named(&object.identity, None));
        fields.iter().for_each(|field| line("   ", Paint::Plain, &changed(field)));
        let shown = u32::try_from(fields.len()).unwrap_or(u32::MAX);
        match field_count.saturating_sub(shown) {
            0 if fields.is_empty() => line("   ", Paint::Dim, "its body is not known for both moments"),
            0 => {}
            more => line("   ", Paint::Dim, &format!("and {more} more fields")),
        }
    }
    if diff.left_out > 0 {
        line(" ", Paint::Dim, &format!("and {} more objects that are too many to show", diff.left_out));
    }
    text
}

fn changed(field: &ChangedField) -> String {
    let ChangedField { path, before, after } = field;
    match (before, after) {
        (Some(before), Some(after)) => format!("{path}: {before} → {after}"),
        (None, Some(after)) => format!("{path}: + {after}"),
        (Some(before), None) => format!("{path}: - {before}"),
        (None, None) => path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use events::requests::index::HealthState;

    use super::*;
    use crate::client::commands::objects::text::tests::{STYLE, object};

    #[test]
    fn what_went_came_and_changed_is_shown_with_its_fields() {
        let of = |name: &str| object("Deployment", name, HealthState::Healthy, "");
        let field = |path: &str, before: Option<&str>, after: Option<&str>| ChangedField {
            path: path.into(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let fields =
            vec![field("spec.replicas", Some("1"), Some("3")), field("spec.paused", None, Some("true"))];
        let as_of = AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None };
        let diff = Answer {
            differs: true,
            came: vec![of("new")],
            went: vec![of("old")],
            changed: vec![ChangedObject { object: of("web"), fields, field_count: 5 }],
            left_out: 2,
            as_of,
        };
        assert_eq!(
            text(&diff, STYLE),
            "- Deployment shop/old\n+ Deployment shop/new\n~ Deployment shop/web\n    spec.replicas: 1 → 3\n    \
             spec.paused: + true\n    and 3 more fields\n  and 2 more objects that are too many to show\n"
        );
    }
}
