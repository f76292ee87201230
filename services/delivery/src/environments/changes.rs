//! Changes of an environment's settings and state, for its history.

use std::collections::BTreeSet;

use events::environment::{CHANGES_PER_ENVIRONMENT, EnvironmentSettings, Grouping};
use events::requests::environments::{EnvironmentChange, EnvironmentChangeKind, SettingChange};
use events::{AgentId, Commit, EnvironmentId};

use super::{Environment, Environments, Viewer};

/// The setting whose value not everybody may see.
const AGENT: &str = "agent";

impl Environment {
    /// Keeps a change, and forgets the oldest beyond the limit.
    pub(super) fn note(
        &mut self,
        commit: &Commit,
        change: EnvironmentChangeKind,
        settings: Vec<SettingChange>,
    ) {
        if change == EnvironmentChangeKind::Changed && settings.is_empty() {
            return;
        }
        let (at, by) = (commit.occurred_at, commit.actor.clone());
        self.changes.push_back(EnvironmentChange { at, by, change, settings });
        if self.changes.len() > CHANGES_PER_ENVIRONMENT {
            self.changes.pop_front();
        }
    }
}

impl Environments {
    /// Agents in the changes of an environment.
    #[must_use]
    pub fn agents_in_changes(&self, id: EnvironmentId) -> BTreeSet<AgentId> {
        let changes = self.environments.get(&id).into_iter().flat_map(|found| &found.changes);
        let agents = changes.flat_map(|change| &change.settings).filter(|one| one.setting == AGENT);
        let named = agents.flat_map(|one| [&one.before, &one.after]).flatten();
        named.filter_map(|agent| agent.parse().ok()).collect()
    }

    /// The last changes of an environment, the newest first.
    #[must_use]
    pub fn changes_of(&self, id: EnvironmentId, viewer: &Viewer<'_>) -> Vec<EnvironmentChange> {
        let shown = |agent: &String| agent.parse().is_ok_and(|agent| viewer.agents.contains(&agent));
        let changes = self.environments.get(&id).into_iter().flat_map(|found| found.changes.iter().rev());
        let mut changes: Vec<EnvironmentChange> = changes.cloned().collect();
        for one in changes.iter_mut().flat_map(|change| &mut change.settings) {
            if one.setting == AGENT {
                one.before = one.before.take().filter(shown);
                one.after = one.after.take().filter(shown);
            }
        }
        changes
    }
}

/// Settings that are different; all that are set where there were none.
pub(super) fn differences(
    before: Option<&EnvironmentSettings>,
    after: &EnvironmentSettings,
) -> Vec<SettingChange> {
    let before = before.map(texts).unwrap_or_default();
    let pairs = texts(after).into_iter().enumerate().map(|(place, (setting, after))| {
        let before = before.get(place).and_then(|(_, before)| before.clone());
        SettingChange { setting: setting.to_owned(), before, after }
    });
    pairs.filter(|change| change.before != change.after).collect()
}

/// Each setting by its name, always in the same order.
fn texts(settings: &EnvironmentSettings) -> Vec<(&'static str, Option<String>)> {
    let EnvironmentSettings { tier, url, agent, namespace, auto_stop_seconds, deployers, grouping } =
        settings;
    let deployers: Vec<String> = deployers.iter().map(ToString::to_string).collect();
    vec![
        ("tier", Some(tier.to_string())),
        ("url", url.clone()),
        (AGENT, agent.map(|agent| agent.to_string())),
        ("namespace", namespace.clone()),
        ("auto_stop_seconds", auto_stop_seconds.map(|seconds| seconds.to_string())),
        ("deployers", (!deployers.is_empty()).then(|| deployers.join(", "))),
        ("grouping", grouping.as_ref().map(in_words)),
    ]
}

fn in_words(grouping: &Grouping) -> String {
    match grouping {
        Grouping::Namespace => "namespace".to_owned(),
        Grouping::Inventory => "inventory".to_owned(),
        Grouping::Labels { project, environment } => format!("labels {project} and {environment}"),
    }
}
