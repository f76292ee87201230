//! Health rules of Argo CD that an agent's configuration imports: which one is for which kind.

use std::sync::Arc;

use events::configuration::ImportedRule;
use objects::health::{MAXIMUM_RULES, rule_for, version_of};

use super::record::Kind;

/// The imported rules of one configuration.
#[derive(Debug, Default)]
pub struct ImportedRules {
    rules: Vec<Rule>,
    version: String,
}

#[derive(Debug)]
struct Rule {
    group: String,
    kind: String,
    script: Arc<str>,
}

impl ImportedRules {
    /// The rules as they were imported.
    #[must_use]
    pub fn new(imported: &[ImportedRule]) -> Self {
        if imported.is_empty() {
            return Self::default();
        }
        let rules = imported.iter().take(MAXIMUM_RULES).map(|rule| Rule {
            group: rule.group.clone(),
            kind: rule.kind.clone(),
            script: Arc::from(rule.lua.as_str()),
        });
        // Serialization of plain texts does not fail.
        let version = version_of(&serde_json::to_vec(imported).unwrap_or_default());
        Self { rules: rules.collect(), version }
    }

    /// Twelve digits that name these rules; empty where there are none.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The script that judges a kind: that of the rule that names it; else of the first whose pattern matches it.
    #[must_use]
    pub fn script_for(&self, Kind { group, kind }: &Kind) -> Option<&Arc<str>> {
        let found = rule_for(&self.rules, (group, kind), |rule| (rule.group.as_str(), rule.kind.as_str()));
        found.map(|rule| &rule.script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_that_names_a_kind_comes_before_patterns_and_of_these_the_first() {
        let rule = |group: &str, kind: &str, lua: &str| ImportedRule {
            group: group.to_owned(),
            kind: kind.to_owned(),
            lua: lua.to_owned(),
        };
        let rules = ImportedRules::new(&[
            rule("*.example", "*", "any"),
            rule("*", "Dock", "docks"),
            rule("sea.example", "Pier", "pier"),
            rule("*", "*", "rest"),
        ]);
        for (group, kind, script) in [
            ("sea.example", "Pier", Some("pier")),
            ("sea.example", "Dock", Some("any")),
            ("sea", "Dock", Some("docks")),
            ("", "Pod", Some("rest")),
            ("", "Secret", None),
        ] {
            assert_eq!(
                rules.script_for(&Kind::new(group, kind)).map(|found| &**found),
                script,
                "{group} {kind}"
            );
        }
        assert_eq!(rules.version().len(), 12);
        assert_eq!(ImportedRules::default().version(), "");
    }
}
