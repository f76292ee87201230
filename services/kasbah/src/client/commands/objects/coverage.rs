//! `kasbah coverage`, and what other commands say of it: which clusters are out of date, and which kinds nobody sees.

use events::Timestamp;
use events::requests::index::{AgentCoverage, BlindKind};
use serde::{Deserialize, Serialize};

use super::AsOf;
use super::selection::{Place, short_agent};
use crate::client::failure::Failure;
use crate::client::print::{Cell, Paint, Style, Table, age, at, one_line};
use crate::client::session::Session;

/// When a cluster was heard of that never was.
const NEVER: Timestamp = Timestamp(0);
/// Clusters that a warning names at most.
const WARNED: usize = 5;

const EXAMPLES: &str = "  kasbah coverage                              all clusters that you may use
  kasbah coverage --agent production           the kinds that this agent cannot see, and why
  kasbah coverage --fresh                      after your rights in a cluster changed: ask it again
";

/// Of which clusters.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::help(EXAMPLES))]
pub struct Coverage {
    /// Only of this agent's cluster: name, group/project:name, or id
    #[arg(long)]
    agent: Option<String>,
    /// Ask clusters again what you may see, where their own RBAC decides; their answers count for 60 seconds otherwise
    #[arg(long)]
    fresh: bool,
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Only counts.
    Brief,
    /// Kinds, too.
    Whole,
    /// The same, and clusters are asked anew what the asker may see.
    Fresh,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    agents: Vec<AgentCoverage>,
    #[serde(default)]
    left_out: u64,
    pub(super) as_of: AsOf,
}

/// Runs it.
///
/// # Errors
/// When the server refuses or cannot be asked, or there is no such agent.
pub async fn run(wanted: Coverage, session: &Session) -> Result<(), Failure> {
    let place = Place { agent: wanted.agent, ..Place::default() };
    let depth = if wanted.fresh { Depth::Fresh } else { Depth::Whole };
    let answer = ask(session, &place, depth).await?;
    session.printer.show(&answer, text)
}

/// Says on standard error, in a line for each cluster, what an answer may lack; gives what it knows. The answer itself stands: where the
/// coverage cannot be told, that is said.
pub(super) async fn warn(session: &Session, place: &Place) -> Option<Answer> {
    match ask(session, place, Depth::Brief).await {
        Ok(answer) => {
            for line in warnings(&answer) {
                eprintln!("{line}");
            }
            Some(answer)
        }
        Err(failure) => {
            eprintln!("warning: what the answer may lack is not known: {}", one_line(&failure.to_string()));
            None
        }
    }
}

async fn ask(session: &Session, place: &Place, depth: Depth) -> Result<Answer, Failure> {
    let mut query = Vec::new();
    query.extend(place.agent.clone().map(|agent| ("agent", agent)));
    query.extend((depth == Depth::Brief).then(|| ("brief", "true".to_owned())));
    query.extend((depth == Depth::Fresh).then(|| ("fresh", "true".to_owned())));
    session.api.get(&["objects", "coverage"], &query).await
}

fn warnings(answer: &Answer) -> Vec<String> {
    let agents = &answer.agents;
    if agents.is_empty() {
        return vec!["warning: no objects of any cluster that you may use are known".to_owned()];
    }
    let mut lines: Vec<String> = agents.iter().filter_map(warning).collect();
    let more = lines.len().saturating_sub(WARNED);
    if more > 0 {
        lines.truncate(WARNED);
        lines.push(format!("warning: and {more} more clusters: kasbah coverage"));
    }
    if answer.left_out > 0 {
        lines.push(format!(
            "warning: of {} more clusters nothing is said here: name one with --agent",
            answer.left_out
        ));
    }
    lines
}

/// `production: not connected since …; 3 kinds cannot be seen: kasbah coverage`.
fn warning(of: &AgentCoverage) -> Option<String> {
    let blind = match of.blind_count {
        0 => None,
        1 => Some("1 kind cannot be seen".to_owned()),
        count => Some(format!("{count} kinds cannot be seen")),
    };
    let unknown = of.rights_unknown.as_deref().map(|reason| format!("rights unknown: {}", one_line(reason)));
    let stale = of.stale.as_deref().map(one_line);
    let parts: Vec<String> = unknown.into_iter().chain(stale).chain(blind).collect();
    let agent = one_line(short_agent(&of.agent_name));
    (!parts.is_empty()).then(|| format!("warning: {agent}: {}: kasbah coverage", parts.join("; ")))
}

fn text(answer: &Answer, style: Style) -> String {
    let mut table = Table::new(&["AGENT", "OBJECTS", "KINDS", "HEARD", "STATE", "CANNOT SEE"]);
    for one in &answer.agents {
        let state = match (&one.rights_unknown, &one.stale) {
            (Some(_), _) => Cell::painted("rights unknown", Paint::Bad),
            (None, Some(stale)) => Cell::painted(stale, Paint::Bad),
            (None, None) => Cell::painted("fresh", Paint::Good),
        };
        let blind = match one.blind_count {
            0 => Cell::or_dash(None),
            count => Cell::painted(&format!("{count} kinds"), Paint::Odd),
        };
        table.row([
            one.agent_name.as_str().into(),
            one.objects.to_string().into(),
            one.kinds.to_string().into(),
            match one.heard_at {
                NEVER => Cell::or_dash(None),
                heard => format!("{} ago", age(heard, style.now)).into(),
            },
            state,
            blind,
        ]);
    }
    let mut text = table.render(style, "no objects of any cluster that you may use are known");
    for one in &answer.agents {
        let Some(reason) = &one.rights_unknown else { continue };
        let agent = one_line(short_agent(&one.agent_name));
        let head = format!("what you may see in {agent} is not known");
        text.push_str(&format!("\n{}\n{}\n", Paint::Strong.on(&head, style.colour), one_line(reason)));
    }
    for one in answer.agents.iter().filter(|one| !one.blind.is_empty()) {
        let head = format!("{} cannot see", one_line(short_agent(&one.agent_name)));
        text.push_str(&format!("\n{}\n", Paint::Strong.on(&head, style.colour)));
        text.push_str(&blind(one, style));
    }
    if answer.left_out > 0 {
        text.push_str(&format!("\nand {} more clusters: name one with --agent\n", answer.left_out));
    }
    if let Some(horizon) = answer.as_of.horizon {
        text.push_str(&format!("\nNothing is known of before {}.\n", at(horizon, style.now)));
    }
    text
}

fn blind(of: &AgentCoverage, style: Style) -> String {
    let mut table = Table::new(&["RESOURCE", "NAMESPACE", "SINCE", "REASON"]);
    for one in &of.blind {
        table.row([
            one.resource.as_str().into(),
            if one.namespace.is_empty() { "all".into() } else { one.namespace.as_str().into() },
            format!("{} ago", age(one.since, style.now)).into(),
            why(one).into(),
        ]);
    }
    let mut text = table.render(style, "");
    let shown = u32::try_from(of.blind.len()).unwrap_or(u32::MAX);
    let more = of.blind_count.saturating_sub(shown);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// The missing right, or else what the API server said.
fn why(kind: &BlindKind) -> String {
    kind.missing.as_ref().map_or_else(|| kind.reason.clone(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use events::AgentId;
    use events::observation::MissingRight;

    use super::super::text::tests::STYLE;
    use super::*;

    fn agent(name: &str, stale: Option<&str>, blind: &[&str]) -> AgentCoverage {
        let kind = |resource: &&str| BlindKind {
            resource: (*resource).to_owned(),
            namespace: String::new(),
            reason: "forbidden".into(),
            missing: Some(MissingRight {
                user: "system:serviceaccount:kasbah:agent".into(),
                verb: "list".into(),
                group: String::new(),
                resource: (*resource).to_owned(),
                namespace: String::new(),
            }),
            since: Timestamp(540_000),
        };
        AgentCoverage {
            agent: AgentId(uuid::Uuid::from_u128(1)),
            agent_name: format!("shop/deploy:{name}"),
            objects: 41,
            kinds: 12,
            heard_at: Timestamp(590_000),
            stale: stale.map(str::to_owned),
            rights_unknown: None,
            blind: blind.iter().map(kind).collect(),
            blind_count: u32::try_from(blind.len()).unwrap(),
        }
    }

    fn as_of() -> AsOf {
        AsOf { position: "p_a".into(), judged_at: Timestamp(0), rules: 1, horizon: None }
    }

    #[test]
    fn what_an_answer_may_lack_is_said_in_a_line_for_each_cluster() {
        let stale = agent("edge", Some("not connected for 5 min"), &["secrets", "nodes"]);
        let answer = |agents: Vec<AgentCoverage>, left_out| Answer { agents, left_out, as_of: as_of() };
        let hidden = AgentCoverage {
            rights_unknown: Some("its agent is not connected".to_owned()),
            ..agent("hidden", None, &[])
        };
        let all = vec![
            agent("fresh", None, &[]),
            stale.clone(),
            agent("blind", None, &["secrets"]),
            hidden.clone(),
        ];
        assert_eq!(
            warnings(&answer(all, 0)),
            [
                "warning: edge: not connected for 5 min; 2 kinds cannot be seen: kasbah coverage",
                "warning: blind: 1 kind cannot be seen: kasbah coverage",
                "warning: hidden: rights unknown: its agent is not connected: kasbah coverage",
            ]
        );
        let shown = text(&answer(vec![hidden], 0), STYLE);
        assert!(shown.contains("  rights unknown  "), "{shown}");
        let last = shown.lines().last().unwrap();
        assert!(last == "its agent is not connected" && shown.contains("may see in hidden"), "{shown}");
        assert_eq!(
            warnings(&answer(Vec::new(), 0)),
            ["warning: no objects of any cluster that you may use are known"]
        );
        let many = warnings(&answer(vec![stale; 9], 3));
        assert_eq!((many.len(), many[5].as_str()), (7, "warning: and 4 more clusters: kasbah coverage"));
        assert!(many[6].contains("3 more clusters"), "{many:?}");
    }

    #[test]
    fn blind_kinds_are_listed_with_the_missing_right() {
        let agents = vec![agent("edge", Some("not connected"), &["secrets"])];
        let shown = text(&Answer { agents, left_out: 0, as_of: as_of() }, STYLE);
        assert!(
            shown.contains("shop/deploy:edge  41       12     10s ago  not connected  1 kinds"),
            "{shown}"
        );
        let last = shown.lines().last().unwrap();
        assert!(
            last.starts_with("secrets   all        1m ago") && last.contains("may not list secrets"),
            "{shown}"
        );
    }
}
