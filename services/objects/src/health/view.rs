//! Reading a loosely typed object without asking at each step whether it is there.

use serde_json::Value;

/// A place in an object, which may be nothing, and the generation of the object that it is in: a condition of another generation never
/// counts, wherever it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    value: &'a Value,
    generation: Option<i64>,
}

static NOTHING: Value = Value::Null;

impl<'a> View<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        let generation = object.get("metadata").and_then(|metadata| metadata.get("generation")?.as_i64());
        Self { value: object, generation }
    }

    pub(super) const fn value(self) -> &'a Value {
        self.value
    }

    /// The generation of the whole object.
    pub(super) const fn generation(self) -> Option<i64> {
        self.generation
    }

    /// The place under a path of keys separated by dots.
    pub(super) fn at(self, path: &str) -> Self {
        let value = path.split('.').try_fold(self.value, |value, key| value.get(key)).unwrap_or(&NOTHING);
        Self { value, ..self }
    }

    pub(super) fn is_null(self) -> bool {
        self.value.is_null()
    }

    pub(super) fn text(self, path: &str) -> Option<&'a str> {
        self.at(path).value.as_str()
    }

    pub(super) fn int(self, path: &str) -> Option<i64> {
        self.at(path).value.as_i64()
    }

    /// A count, 0 when it is not there.
    pub(super) fn count(self, path: &str) -> i64 {
        self.int(path).unwrap_or_default()
    }

    pub(super) fn is_true(self, path: &str) -> bool {
        self.at(path).value.as_bool() == Some(true)
    }

    pub(super) fn list(self, path: &str) -> Vec<Self> {
        let items = self.at(path).value.as_array();
        items.map(|items| items.iter().map(|value| Self { value, ..self }).collect()).unwrap_or_default()
    }

    pub(super) fn condition(self, kind: &str) -> Option<Condition<'a>> {
        self.condition_in("status.conditions", kind)
    }

    /// The condition of a type in a list; of several, the last.
    pub(super) fn condition_in(self, path: &str, kind: &str) -> Option<Condition<'a>> {
        self.list(path)
            .into_iter()
            .rev()
            .find(|condition| condition.text("type") == Some(kind))
            .map(Condition)
    }
}

/// One entry of a list of conditions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition<'a>(View<'a>);

impl<'a> Condition<'a> {
    pub(super) fn is_true(self) -> bool {
        !self.is_stale() && self.0.text("status") == Some("True")
    }

    pub(super) fn is_false(self) -> bool {
        !self.is_stale() && self.0.text("status") == Some("False")
    }

    pub(super) fn reason(self) -> &'a str {
        self.0.text("reason").unwrap_or_default()
    }

    /// Written for an older generation than the object's, where the condition tells one: it says nothing of the object as it is now.
    pub(super) fn is_stale(self) -> bool {
        self.stale_generations().is_some()
    }

    fn stale_generations(self) -> Option<(i64, i64)> {
        self.0.int("observedGeneration").zip(self.0.generation()).filter(|(seen, latest)| seen < latest)
    }

    /// When the status last changed; milliseconds since 1970.
    pub(super) fn since(self) -> Option<i64> {
        time(self.0.text("lastTransitionTime")?)
    }

    /// Reason and message, for people; never empty.
    pub(super) fn explain(self) -> String {
        if let Some((seen, latest)) = self.stale_generations() {
            let kind = self.0.text("type").unwrap_or("unknown");
            return format!("the condition {kind} is of generation {seen}, the latest is {latest}");
        }
        let message = self.0.text("message").unwrap_or_default();
        match (self.reason(), message) {
            ("", "") => {
                let text = |key: &str| self.0.text(key).unwrap_or("unknown");
                format!("the condition {} is {}", text("type"), text("status"))
            }
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

/// An RFC 3339 time in milliseconds since 1970.
pub(super) fn time(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond())
}
