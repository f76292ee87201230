//! `kasbah agent show …`.

use events::configuration::{AgentConfiguration, KindPattern, Mode};
use events::requests::authz::AgentView;
use events::requests::configuration::{ConfigurationView, RejectedConfiguration};
use events::requests::gateway::TunnelView;
use events::requests::status::AgentStatus;
use serde::Serialize;

use super::super::source::conditions;
use super::super::{finding, warnings};
use crate::client::failure::Failure;
use crate::client::names::Names;
use crate::client::print::{Cell, Fields, Paint, Style, Table, age, at, short_commit};
use crate::client::session::Session;

#[derive(Serialize)]
struct Shown {
    agent: AgentView,
    configuration: ConfigurationView,
    tunnels: Vec<TunnelView>,
    status: Option<AgentStatus>,
}

pub(super) async fn run(session: &Session, agent: &str) -> Result<(), Failure> {
    let agent = session.agent(agent).await?;
    let id = agent.id.to_string();
    let configuration = session.api.get(&["agents", &id, "configuration"], &[]).await?;
    let tunnels = session.api.list(&["agents", &id, "tunnels"], &[]).await?;
    let statuses: Vec<AgentStatus> = session.api.list(&["agent-statuses"], &[("agent", id)]).await?;
    let shown = Shown { agent, configuration, tunnels, status: statuses.into_iter().next() };
    let names = match session.is_for_people() {
        true => Names::default().with_projects(session).await?,
        false => Names::default(),
    };
    session.printer.show(&shown, |shown, style| text(shown, &names, style))
}

fn text(shown: &Shown, names: &Names, style: Style) -> String {
    let agent = &shown.agent;
    let mut text = Fields::new()
        .with("Agent", agent.name.as_str())
        .with("Id", agent.id.to_string())
        .with_some("Group", agent.group.as_ref().map(|group| group.name.as_str()))
        .with("Project", agent.project_path.as_str())
        .with("Registered", at(agent.registered_at, style.now))
        .render(style);
    if let Some(status) = &shown.status {
        text.push_str(&standing(status, style));
    }
    text.push('\n');
    text.push_str(&configuration(&shown.configuration, names, style));
    text.push_str(&format!("\n{}\n", Paint::Strong.on("Tunnels", style.colour)));
    text.push_str(&tunnels(&shown.tunnels, style));
    text
}

/// How it stands: all that is so, the rights that it lacks, its sources by state.
fn standing(status: &AgentStatus, style: Style) -> String {
    let [connected, version, applies, reached] = super::standing(Some(status), style);
    let sources: Vec<String> =
        status.sources.iter().map(|(state, count)| format!("{count} {}", state.words())).collect();
    let mut text = Fields::new()
        .with("Connected", connected)
        .with("Version", version)
        .with("Applies", applies)
        .with("API server", reached)
        .with("Sources", if sources.is_empty() { "none".to_owned() } else { sources.join(", ") })
        .render(style);
    text.push_str(&format!("\n{}\n", Paint::Strong.on("Conditions", style.colour)));
    text.push_str(&conditions(&status.conditions, style));
    if !status.missing_rights.is_empty() {
        text.push_str(&format!("\n{}\n", Paint::Strong.on("Missing rights", style.colour)));
        for right in &status.missing_rights {
            text.push_str(&format!("  {}\n", crate::client::print::one_line(&right.to_string())));
        }
    }
    text
}

fn configuration(view: &ConfigurationView, names: &Names, style: Style) -> String {
    let mut fields = Fields::new().with("Configuration", view.file.as_str());
    fields = match (&view.configuration, &view.commit) {
        (Some(_), Some(commit)) => fields.with("In force", in_force(commit, view, style)),
        _ => fields.with("In force", Cell::painted("none yet", Paint::Odd)),
    };
    if let Some(configuration) = &view.configuration {
        fields = settings(fields, configuration);
    }
    let mut text = fields.render(style);
    if let Some(rejected) = &view.rejected {
        text.push_str(&rejection(rejected, style));
    }
    text.push_str(&warnings(&view.warnings, style));
    if let Some(configuration) = &view.configuration {
        text.push_str(&format!("\n{}\n", Paint::Strong.on("Sources", style.colour)));
        text.push_str(&sources(configuration, names, style));
    }
    text
}

fn in_force(commit: &str, view: &ConfigurationView, style: Style) -> String {
    let since = view.since.map(|since| format!(", since {}", at(since, style.now))).unwrap_or_default();
    format!("commit {}{since}", short_commit(commit))
}

fn settings(fields: Fields, configuration: &AgentConfiguration) -> Fields {
    let mode = match configuration.mode {
        Mode::Namespaced => "namespaced",
        Mode::Cluster => "cluster",
    };
    let kinds = |patterns: &[KindPattern]| {
        let texts: Vec<String> = patterns.iter().map(kind).collect();
        Some(texts.join(", ")).filter(|text| !text.is_empty())
    };
    fields
        .with("Mode", if configuration.lockdown { format!("{mode}, lockdown") } else { mode.to_owned() })
        .with_some("Includes", kinds(&configuration.resources.include))
        .with_some("Excludes", kinds(&configuration.resources.exclude))
}

fn kind(pattern: &KindPattern) -> String {
    if pattern.group.is_empty() {
        pattern.kind.clone()
    } else {
        format!("{}/{}", pattern.group, pattern.kind)
    }
}

fn rejection(rejected: &RejectedConfiguration, style: Style) -> String {
    let commit = rejected
        .commit
        .as_deref()
        .map(|commit| format!("commit {}, ", short_commit(commit)))
        .unwrap_or_default();
    let head = format!("{commit}{}; what was in force before stays", at(rejected.at, style.now));
    let mut text = Fields::new().with("Rejected", Cell::painted(&head, Paint::Bad)).render(style);
    for found in &rejected.findings {
        text.push_str(&format!("  {}\n", crate::client::print::one_line(&finding(found))));
    }
    text.push_str(&warnings(&rejected.warnings, style));
    text
}

fn sources(configuration: &AgentConfiguration, names: &Names, style: Style) -> String {
    let mut table = Table::new(&["NAME", "PROJECT", "REF", "PATHS", "EVERY"]);
    for source in &configuration.sources {
        table.row([
            source.name.as_str().into(),
            names.project(source.project).into(),
            source.reference.to_string().into(),
            source.include.join(", ").into(),
            format!("{}s", source.interval_seconds).into(),
        ]);
    }
    table.render(style, "none\n")
}

fn tunnels(tunnels: &[TunnelView], style: Style) -> String {
    let mut table = Table::new(&["INSTANCE", "ROLE", "VERSION", "AGE"]);
    for tunnel in tunnels {
        let role = match tunnel.applier {
            true => Cell::painted("applies", Paint::Good),
            false => "standby".into(),
        };
        table.row([
            tunnel.instance.to_string().into(),
            role,
            tunnel.version.as_str().into(),
            age(tunnel.since, style.now).into(),
        ]);
    }
    table.render(style, "none: no instance of this agent is connected\n")
}

#[cfg(test)]
mod tests {
    use events::configuration::FileFinding;
    use events::{AgentId, InstanceId, ProjectId, Timestamp};
    use uuid::Uuid;

    use super::*;

    const STYLE: Style = Style { colour: false, now: Timestamp(120_000) };

    fn found(line: u32, field: &str, message: &str) -> FileFinding {
        let (file, field) = (".kasbah/agents/edge/config.yaml".to_owned(), field.to_owned());
        FileFinding { file, line, column: 3, field, message: message.to_owned() }
    }

    fn shown() -> Shown {
        Shown {
            agent: AgentView {
                id: AgentId(Uuid::from_u128(1)),
                name: "edge".into(),
                project: ProjectId(Uuid::from_u128(2)),
                project_path: "shop/config".into(),
                group: None,
                registered_at: Timestamp(0),
            },
            configuration: ConfigurationView {
                file: ".kasbah/agents/edge/config.yaml".into(),
                ..ConfigurationView::default()
            },
            tunnels: Vec::new(),
            status: None,
        }
    }

    #[test]
    fn an_agent_that_nothing_is_known_of() {
        assert_eq!(
            text(&shown(), &Names::default(), STYLE),
            "Agent       edge\n\
             Id          00000000-0000-0000-0000-000000000001\n\
             Project     shop/config\n\
             Registered  1970-01-01T00:00:00.000Z (2m ago)\n\
             \n\
             Configuration  .kasbah/agents/edge/config.yaml\n\
             In force       none yet\n\
             \n\
             Tunnels\n\
             none: no instance of this agent is connected\n"
        );
    }

    #[test]
    fn a_rejection_says_where_what_and_what_stays() {
        let mut shown = shown();
        shown.configuration.rejected = Some(RejectedConfiguration {
            commit: Some("4f1a5b10c0ffee00".into()),
            at: Timestamp(60_000),
            findings: vec![found(7, "sources[0].interval", "expected a duration such as 30s")],
            warnings: vec![found(3, "sorces", "unknown key; did you mean sources?")],
        });
        shown.configuration.warnings = vec![found(2, "moed", "unknown key; did you mean mode?")];
        let text = text(&shown, &Names::default(), STYLE);
        assert!(
            text.contains(
                "Rejected  commit 4f1a5b10c0, 1970-01-01T00:01:00.000Z (1m ago); what was in force before stays\n  \
                 .kasbah/agents/edge/config.yaml:7:3 sources[0].interval: expected a duration such as 30s\n"
            ),
            "{text}"
        );
        let warning = "Warning  .kasbah/agents/edge/config.yaml:2:3 moed: unknown key; did you mean mode?\n";
        assert!(text.contains(warning), "{text}");
        let warning =
            "30s\nWarning  .kasbah/agents/edge/config.yaml:3:3 sorces: unknown key; did you mean sources?\n";
        assert!(text.contains(warning), "{text}");
    }

    #[test]
    fn the_instance_that_applies_is_told_apart() {
        let tunnel = |id, applier| TunnelView {
            agent: AgentId(Uuid::from_u128(1)),
            instance: InstanceId(Uuid::from_u128(id)),
            since: Timestamp(60_000),
            version: "0.1.0".into(),
            applier,
        };
        let text = tunnels(&[tunnel(8, true), tunnel(9, false)], STYLE);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines[0], "00000000-0000-0000-0000-000000000008  applies  0.1.0    1m");
        assert_eq!(lines[1], "00000000-0000-0000-0000-000000000009  standby  0.1.0    1m");
    }
}
