//! Label selectors: those of objects (`matchLabels`, `matchExpressions`), and those that people type as with kubectl.

use events::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts::{Facts, labels_at};
use super::text::{Strings, Text};

/// Requirements of one selector that are kept; one with more selects nothing.
const REQUIREMENTS: usize = 100;

/// All requirements hold of what it selects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Selector(Box<[Requirement]>);

/// One requirement of a selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Requirement {
    /// The label has one of these values.
    In(Text, Box<[Text]>),
    /// The label is absent, or has none of these values.
    NotIn(Text, Box<[Text]>),
    /// The label is there.
    Exists(Text),
    /// The label is absent.
    Absent(Text),
}

impl Requirement {
    fn holds(&self, facts: &Facts) -> bool {
        let is_one = |key: &Text, values: &[Text]| {
            facts.label(key).is_some_and(|found| values.iter().any(|value| &**value == found))
        };
        match self {
            Self::In(key, values) => is_one(key, values),
            Self::NotIn(key, values) => !is_one(key, values),
            Self::Exists(key) => facts.label(key).is_some(),
            Self::Absent(key) => facts.label(key).is_none(),
        }
    }
}

impl Selector {
    /// Whether it selects an object with these labels.
    #[must_use]
    pub fn selects(&self, facts: &Facts) -> bool {
        self.0.iter().all(|requirement| requirement.holds(facts))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A label and a value that everything selected has, if there is one: what it is looked up by.
    #[must_use]
    pub fn exact(&self) -> Option<(&Text, &Text)> {
        self.0.iter().find_map(|requirement| match requirement {
            Requirement::In(key, values) => match &**values {
                [value] => Some((key, value)),
                _ => None,
            },
            _ => None,
        })
    }

    /// The selector of plain labels, as a Service has it; `None` where it is empty, which selects nothing.
    #[must_use]
    pub fn of_labels(body: &Value, pointer: &str) -> Option<Self> {
        let labels = labels_at(body, pointer);
        (!labels.is_empty()).then(|| Self(labels.into_iter().map(equals).collect()))
    }

    /// The selector of these labels; `None` where there are none, or too many.
    #[must_use]
    pub fn of_pairs(labels: Vec<(String, String)>) -> Option<Self> {
        let is_some = (1..=REQUIREMENTS).contains(&labels.len());
        let text = |text: String| Text::from(text.as_str());
        is_some
            .then(|| Self(labels.into_iter().map(|(key, value)| equals((text(key), text(value)))).collect()))
    }

    /// A `LabelSelector` of Kubernetes; `None` where there is none, or one that cannot be read. An empty one selects everything.
    #[must_use]
    pub fn of_object(body: &Value, pointer: &str) -> Option<Self> {
        let selector = body.pointer(pointer)?.as_object()?;
        let mut requirements: Vec<Requirement> =
            labels_at(body, &format!("{pointer}/matchLabels")).into_iter().map(equals).collect();
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(expression_of(expression)?);
        }
        (requirements.len() <= REQUIREMENTS).then(|| Self(requirements.into()))
    }

    /// A selector as kubectl takes it, such as `app=web,tier in (a, b),!canary`.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut requirements = Vec::new();
        for part in parts(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            requirements.push(requirement(part).ok_or_else(|| {
                let message = format!(
                    "cannot read {part:?}: use key=value, key!=value, key, !key, key in (a, b) or key notin (a, b)"
                );
                Refusal::invalid("labels", message)
            })?);
        }
        if requirements.len() > REQUIREMENTS {
            return Err(Refusal::invalid("labels", format!("more than {REQUIREMENTS} requirements")));
        }
        Ok(Self(requirements.into()))
    }

    pub(crate) fn share(&mut self, strings: &mut Strings) {
        for requirement in &mut *self.0 {
            match requirement {
                Requirement::In(key, values) | Requirement::NotIn(key, values) => {
                    strings.share(key);
                    values.iter_mut().for_each(|value| strings.share(value));
                }
                Requirement::Exists(key) | Requirement::Absent(key) => strings.share(key),
            }
        }
    }
}

fn equals((key, value): (Text, Text)) -> Requirement {
    Requirement::In(key, Box::new([value]))
}

fn expression_of(expression: &Value) -> Option<Requirement> {
    let key = Text::from(expression.get("key")?.as_str()?);
    let values = || {
        let values = expression.get("values").and_then(Value::as_array);
        values.into_iter().flatten().filter_map(Value::as_str).map(Text::from).collect()
    };
    match expression.get("operator")?.as_str()? {
        "In" => Some(Requirement::In(key, values())),
        "NotIn" => Some(Requirement::NotIn(key, values())),
        "Exists" => Some(Requirement::Exists(key)),
        "DoesNotExist" => Some(Requirement::Absent(key)),
        _ => None,
    }
}

/// Splits at commas that are not between parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut found, mut from, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.extend(text.get(from..at));
                from = at.saturating_add(1);
            }
            _ => {}
        }
    }
    found.extend(text.get(from..));
    found
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return key_of(key).map(Requirement::Absent);
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(key_of(key)?, Box::new([value_of(value)?])));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(equals((key_of(key)?, value_of(value)?)));
    }
    let mut words = part.split_whitespace();
    let key = key_of(words.next()?)?;
    let rest = part.trim_start().strip_prefix(&*key).map(str::trim_start)?;
    if rest.is_empty() {
        return Some(Requirement::Exists(key));
    }
    let (is_in, list) = match rest.strip_prefix("notin") {
        Some(list) => (false, list),
        None => (true, rest.strip_prefix("in")?),
    };
    let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values: Option<Box<[Text]>> = list.split(',').map(value_of).collect();
    Some(if is_in { Requirement::In(key, values?) } else { Requirement::NotIn(key, values?) })
}

/// A label's key; letters that no key has are a mistake.
fn key_of(text: &str) -> Option<Text> {
    let text = text.trim();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(is_key)).then(|| Text::from(text))
}

fn value_of(text: &str) -> Option<Text> {
    let text = text.trim();
    let is_value = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    text.chars().all(is_value).then(|| Text::from(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labelled(labels: Value) -> Facts {
        Facts::of(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let web = labelled(json!({"app": "web", "tier": "a", "example.com/x": ""}));
        let rows = [
            ("", true),
            ("app=web", true),
            ("app==web,tier=a", true),
            ("app=db", false),
            ("app!=db", true),
            ("gone!=x", true),
            ("app in (db, web),tier", true),
            ("app notin (db,web)", false),
            ("!canary", true),
            ("!app", false),
            ("example.com/x=", true),
        ];
        for (text, expected) in rows {
            assert_eq!(Selector::parse(text).unwrap().selects(&web), expected, "{text}");
        }
        for wrong in ["app=web tier", "in (a", "a b", "app in a", "!", "app=a b"] {
            let refusal = Selector::parse(wrong).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("labels"), "{wrong}");
        }
    }

    #[test]
    fn selectors_of_objects_have_expressions_and_an_empty_one_selects_all() {
        let web = labelled(json!({"app": "web"}));
        let body = json!({"all": {}, "one": {"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            "other": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
            "newer": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]}});
        let selects = |at: &str| Selector::of_object(&body, at).map(|found| found.selects(&web));
        assert_eq!(
            (selects("/all"), selects("/one"), selects("/other")),
            (Some(true), Some(true), Some(false))
        );
        assert_eq!((selects("/newer"), selects("/absent")), (None, None));
    }
}
