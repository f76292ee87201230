//! Rules of a configuration: expressions that judge kinds instead of the built-in rules.

use events::Sha256;
use events::configuration::HealthRule;

use super::view::View;
use super::{Health, HealthStatus, RuleSource, generic, is_known_by_metadata};
use crate::expression::{BUDGET, Expression, ExpressionError};
use crate::kinds::glob;

/// Most rules of one configuration.
pub const MAXIMUM_RULES: usize = 200;
/// Digits of a rule set's version.
const VERSION: usize = 12;

/// The rules of one configuration, ready to judge.
#[derive(Debug, Default)]
pub struct RuleSet {
    declared: Vec<HealthRule>,
    rules: Vec<Rule>,
    version: String,
}

/// Two rule sets of the same definitions are the same.
impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_of(&other.declared)
    }
}

impl Eq for RuleSet {}

#[derive(Debug)]
struct Rule {
    group: String,
    kind: String,
    /// Or why it cannot be used: an agent may know less of the language than the server that accepted the rule.
    expressions: Result<Expressions, String>,
}

#[derive(Debug)]
struct Expressions {
    /// In the order in which they are asked.
    states: Vec<(HealthStatus, Expression)>,
    message: Option<Expression>,
}

/// The expressions of a rule by the names of their fields, in the order in which they are asked; the message last.
#[must_use]
pub fn expressions_of(rule: &HealthRule) -> Vec<(&'static str, &str)> {
    let optional = [
        ("progressing", rule.progressing.as_deref()),
        ("degraded", rule.degraded.as_deref()),
        ("suspended", rule.suspended.as_deref()),
        ("healthy", Some(rule.healthy.as_str())),
        ("message", rule.message.as_deref()),
    ];
    optional.into_iter().filter_map(|(field, text)| Some((field, text?))).collect()
}

impl Expressions {
    fn compile(rule: &HealthRule) -> Result<Self, (&'static str, ExpressionError)> {
        let (mut states, mut message) = (Vec::new(), None);
        for (field, text) in expressions_of(rule) {
            let expression = Expression::compile(text).map_err(|error| (field, error))?;
            match field {
                "progressing" => states.push((HealthStatus::Progressing, expression)),
                "degraded" => states.push((HealthStatus::Degraded, expression)),
                "suspended" => states.push((HealthStatus::Suspended, expression)),
                "healthy" => states.push((HealthStatus::Healthy, expression)),
                _ => message = Some(expression),
            }
        }
        Ok(Self { states, message })
    }

    fn judge(&self, view: View<'_>) -> Health {
        if let Some(health) = generic::stale(view) {
            return health;
        }
        let mut budget = BUDGET;
        for (status, expression) in &self.states {
            match expression.holds(view.value(), &mut budget) {
                Ok(true) => return Health::new(*status, self.message(view, *status, &mut budget)),
                Ok(false) => {}
                Err(error) => {
                    let field = field_of(*status);
                    let message = format!("the rule's expression '{field}' cannot be evaluated: {error}");
                    return Health::new(HealthStatus::Unknown, message);
                }
            }
        }
        let message = self.message_of_rule(view, &mut budget);
        Health::progressing(message.unwrap_or_else(|| "no expression of the rule holds".to_owned()))
    }

    fn message(&self, view: View<'_>, status: HealthStatus, budget: &mut u64) -> String {
        if let Some(message) = self.message_of_rule(view, budget) {
            return message;
        }
        let ready = view.condition("Ready").filter(|ready| !ready.is_true());
        match status {
            HealthStatus::Healthy => String::new(),
            _ => ready.map_or_else(
                || format!("the rule's expression '{}' holds", field_of(status)),
                |ready| ready.explain(),
            ),
        }
    }

    fn message_of_rule(&self, view: View<'_>, budget: &mut u64) -> Option<String> {
        let message = self.message.as_ref()?.text(view.value(), budget);
        Some(message.unwrap_or_else(|error| format!("the rule's message cannot be evaluated: {error}")))
    }
}

fn field_of(status: HealthStatus) -> String {
    status.as_str().to_lowercase()
}

/// Twelve digits that name definitions of rules, by their text.
#[must_use]
pub fn version_of(definitions: &[u8]) -> String {
    Sha256::of(definitions).to_string().chars().take(VERSION).collect()
}

/// The rule for a kind: the one that names it; else the first whose pattern matches it. `pattern_of` gives a rule's group and kind.
#[must_use]
pub fn rule_for<'r, R>(
    rules: &'r [R],
    (group, kind): (&str, &str),
    pattern_of: impl Fn(&R) -> (&str, &str),
) -> Option<&'r R> {
    if rules.is_empty() || is_known_by_metadata(group, kind) {
        return None;
    }
    let named = rules.iter().find(|rule| pattern_of(rule) == (group, kind));
    let matches = |rule: &&R| {
        let (of_group, of_kind) = pattern_of(rule);
        glob(of_group, group) && glob(of_kind, kind)
    };
    named.or_else(|| rules.iter().find(matches))
}

impl RuleSet {
    /// The rules as they were declared. One that cannot be read judges its objects unknown, and says why.
    #[must_use]
    pub fn new(declared: &[HealthRule]) -> Self {
        if declared.is_empty() {
            return Self::default();
        }
        let rules = declared.iter().take(MAXIMUM_RULES).map(|rule| Rule {
            group: rule.group.clone(),
            kind: rule.kind.clone(),
            expressions: Expressions::compile(rule).map_err(|(field, error)| {
                format!("the rule's expression '{field}' cannot be used here: {error}")
            }),
        });
        // Serialization of plain texts does not fail.
        let version = version_of(&serde_json::to_vec(declared).unwrap_or_default());
        Self { declared: declared.to_vec(), rules: rules.collect(), version }
    }

    /// Whether these are its definitions.
    #[must_use]
    pub fn is_of(&self, declared: &[HealthRule]) -> bool {
        self.declared == declared
    }

    /// Twelve digits that name these definitions; empty where there are none.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether there is a rule for a kind.
    #[must_use]
    pub fn covers(&self, group: &str, kind: &str) -> bool {
        self.rule_of(group, kind).is_some()
    }

    fn rule_of(&self, group: &str, kind: &str) -> Option<&Rule> {
        rule_for(&self.rules, (group, kind), |rule| (rule.group.as_str(), rule.kind.as_str()))
    }

    pub(super) fn judge(&self, group: &str, kind: &str, view: View<'_>) -> Option<Health> {
        let health = match &self.rule_of(group, kind)?.expressions {
            Ok(expressions) => expressions.judge(view),
            Err(why) => Health::new(HealthStatus::Unknown, why.as_str()),
        };
        Some(Health { source: RuleSource::Declared, ..health })
    }
}
