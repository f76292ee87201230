//! What is made of looks at the kinds that the API server serves: one may be incomplete, so that no kind is believed to be gone after one alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kubernetes::discovery::Kinds;

/// The looks of one epoch.
#[derive(Debug, Default)]
pub(super) struct Looks {
    count: u64,
    last: Option<Arc<Kinds>>,
    is_same: bool,
    /// Kinds that are not served, and the look after which that was found.
    absent: BTreeMap<(String, String), u64>,
}

impl Looks {
    /// The API server answered so.
    pub(super) fn looked(&mut self, kinds: Arc<Kinds>) {
        self.count += 1;
        self.is_same = self.last.as_ref().is_some_and(|last| *last == kinds);
        self.absent.retain(|(group, kind), _| !kinds.serves(group, kind));
        self.last = Some(kinds);
    }

    /// Whether the last two said the same, and nothing else.
    pub(super) const fn is_same(&self) -> bool {
        self.is_same
    }

    /// A kind is not served now: whether it was not at an earlier look either.
    pub(super) fn is_gone(&mut self, group: &str, kind: &str) -> bool {
        let first = *self.absent.entry((group.to_owned(), kind.to_owned())).or_insert(self.count);
        self.count > first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(plural: &str) -> Arc<Kinds> {
        let text = format!(
            r#"{{"items":[{{"metadata":{{}},"versions":[{{"version":"v1","resources":[
                {{"resource":"{plural}","responseKind":{{"kind":"{plural}"}},"scope":"Namespaced","verbs":["list","watch"]}}]}}]}}]}}"#
        );
        Arc::new(Kinds::read(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_kind_is_gone_after_two_looks() {
        let mut looks = Looks::default();
        looks.looked(kinds("pods"));
        assert!(!looks.is_same());
        looks.looked(kinds("pods"));
        assert!(looks.is_same());
        looks.looked(kinds("maps"));
        assert!(!looks.is_same() && !looks.is_gone("", "pods") && !looks.is_gone("", "pods"));
        looks.looked(kinds("maps"));
        assert!(looks.is_same() && looks.is_gone("", "pods"));
        looks.looked(kinds("pods"));
        looks.looked(kinds("maps"));
        assert!(!looks.is_gone("", "pods"), "it was there meanwhile");
    }
}
