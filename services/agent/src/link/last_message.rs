//! Saying once what goes on and on.

/// What was said last.
#[derive(Default)]
pub(super) struct LastMessage(String);

impl LastMessage {
    /// These words, unless they were the last ones.
    pub(super) fn if_changed(&mut self, words: String) -> Option<&str> {
        let is_new = words != self.0;
        self.0 = words;
        is_new.then_some(self.0.as_str())
    }

    /// What comes next is new.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
