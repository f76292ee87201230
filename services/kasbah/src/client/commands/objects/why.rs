//! `kasbah why`: from an object down to the one that is to blame.

use events::requests::index::{HealthState, IndexedObject};
use serde::{Deserialize, Serialize};

use super::selection::{AtArg, Likeness, Named, agent_of};
use super::text::{age_of, health, named, reason};
use super::{AsOf, coverage};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Style, Table};
use crate::client::session::Session;

const EXAMPLES: &str = "  kasbah why deploy/web                        from the Deployment to the pod that fails, with its reason
  kasbah why deploy -n shop --health degraded  each Deployment that is not well
  kasbah why deploy/web --at 30m               why it was so half an hour ago
";

/// Which objects.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct Why {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    likeness: Likeness,
    #[command(flatten)]
    at: AtArg,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    chains: Vec<Vec<IndexedObject>>,
    as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When there is no such object, or the server refuses or cannot be asked.
pub async fn run(wanted: Why, session: &Session) -> Result<(), Failure> {
    let mut query = wanted.named.fields()?;
    wanted.likeness.add_to(&mut query);
    wanted.at.add_to(&mut query, session);
    let why: Answer = session.api.get(&["objects", "health"], &query).await?;
    if !why.chains.is_empty() {
        session.printer.show(&why, text)?;
    }
    coverage::warn(session, &wanted.named.place).await;
    if why.chains.is_empty() { Err(Failure::not_found(&wanted.named.called())) } else { Ok(()) }
}

fn text(why: &Answer, style: Style) -> String {
    let mut table = Table::new(&["OBJECT", "HEALTH", "AGE", "REASON"]);
    for chain in &why.chains {
        add(&mut table, chain, style);
    }
    table.render(style, "")
}

/// Each object of a chain one step further in than the one before; the last one is to blame.
fn add(table: &mut Table, chain: &[IndexedObject], style: Style) {
    let mut before: Option<&IndexedObject> = None;
    for (step, object) in chain.iter().enumerate() {
        let name = named(&object.identity, before.map(|before| before.identity.namespace.as_str()));
        let called: Cell = match before {
            None => format!("{name} ({})", agent_of(object)).into(),
            Some(_) => Cell::from(name).behind(&format!("{}└── ", "    ".repeat(step.saturating_sub(1)))),
        };
        // Where something follows that is to blame, nothing is wrong with the object itself alone.
        let is_well = chain.len() == 1 && object.health.state == HealthState::Healthy;
        let why = if is_well && object.health.message.is_empty() {
            "nothing is wrong".into()
        } else {
            reason(object)
        };
        table.row([called, health(object), age_of(object, style), why]);
        before = Some(object);
    }
}

#[cfg(test)]
mod tests {
    use events::Timestamp;

    use super::super::text::tests::{STYLE, object};
    use super::*;

    #[test]
    fn a_chain_leads_to_the_guilty_one() {
        let degraded = HealthState::Degraded;
        let chains = vec![
            vec![
                object("Deployment", "web", degraded, "0 of 1 pods available"),
                object("ReplicaSet", "web-1", degraded, "0 of 1 pods ready"),
                object("Pod", "web-1-a", degraded, "container web: ErrImagePull"),
            ],
            vec![object("Deployment", "api", HealthState::Healthy, "")],
            vec![
                object("Service", "front", HealthState::Healthy, ""),
                object("Pod", "front-1", degraded, "fails"),
            ],
        ];
        let as_of = AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None };
        assert_eq!(
            text(&Answer { chains, as_of }, STYLE),
            "OBJECT                            HEALTH    AGE  REASON\n\
             Deployment shop/web (production)  degraded  5m   0 of 1 pods available\n\
             └── ReplicaSet web-1              degraded  5m   0 of 1 pods ready\n    \
                 └── Pod web-1-a               degraded  5m   container web: ErrImagePull\n\
             Deployment shop/api (production)  healthy   5m   nothing is wrong\n\
             Service shop/front (production)   healthy   5m   -\n\
             └── Pod front-1                   degraded  5m   fails\n"
        );
    }
}
