//! Whose write a change of an object was.

use events::Sha256;
use events::observation::FieldWriter;
use serde::{Deserialize, Serialize};

use super::optional::Optional;
use super::text::{Strings, Text};

/// Who wrote an object last. Many objects share the texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    manager: Text,
    operation: Text,
    subresource: Text,
    at: Optional,
}

impl Writer {
    /// The writer of an object's fields.
    #[must_use]
    pub fn of(writer: &FieldWriter) -> Self {
        let FieldWriter { manager, operation, subresource, at } = writer;
        let [manager, operation, subresource] =
            [manager, operation, subresource].map(|text| Text::from(text.as_str()));
        Self { manager, operation, subresource, at: (*at).into() }
    }

    /// As it is answered.
    #[must_use]
    pub fn answer(&self) -> FieldWriter {
        let Self { manager, operation, subresource, at } = self;
        let [manager, operation, subresource] = [manager, operation, subresource].map(Text::to_string);
        FieldWriter { manager, operation, subresource, at: at.time() }
    }

    pub(crate) fn share(&mut self, strings: &mut Strings) {
        for text in [&mut self.manager, &mut self.operation, &mut self.subresource] {
            strings.share(text);
        }
    }
}

/// Everybody who has written to an object, each at its last time; as hashes, so that they are small.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Written(Box<[u64]>);

impl Written {
    pub(crate) fn by(writers: &[FieldWriter]) -> Self {
        Self(writers.iter().map(mark_of).collect())
    }

    /// Who made the change after which these had written, the newest first. The API server counts whole seconds: one that had not
    /// written then at that time is preferred to one that may have written twice in the newest second. With a new generation the
    /// specification is another one, which nobody changes by the subresource `status`; without, it is the same.
    pub(crate) fn writer_of_change(
        &self,
        writers: &[FieldWriter],
        has_new_generation: bool,
    ) -> Option<FieldWriter> {
        let newest = writers.first()?;
        let is_new = |writer: &&FieldWriter| !self.0.contains(&mark_of(writer));
        let fits = |writer: &&FieldWriter| (writer.subresource == "status") != has_new_generation;
        let new = || writers.iter().filter(is_new);
        let last = || writers.iter().take_while(|writer| writer.at == newest.at);
        let found = new().find(fits).or_else(|| last().find(fits)).or_else(|| new().next());
        Some(found.unwrap_or(newest).clone())
    }
}

fn mark_of(writer: &FieldWriter) -> u64 {
    let FieldWriter { manager, operation, subresource, at } = writer;
    let at = at.map(|at| at.0);
    let Sha256([a, b, c, d, e, f, g, h, ..]) =
        Sha256::of(format!("{manager}\0{operation}\0{subresource}\0{at:?}").as_bytes());
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use events::Timestamp;

    use super::*;

    fn writer(manager: &str, subresource: &str, at: i64) -> FieldWriter {
        FieldWriter {
            manager: manager.to_owned(),
            operation: "Update".to_owned(),
            subresource: subresource.to_owned(),
            at: Some(Timestamp(at)),
        }
    }

    #[test]
    fn of_several_in_the_same_second_the_one_that_had_not_written_yet_made_the_change() {
        let before = [writer("controller", "status", 7), writer("kasbah", "", 3)];
        let after = [writer("controller", "status", 7), writer("kasbah", "", 7)];
        let made = Written::by(&before).writer_of_change(&after, true).unwrap();
        assert_eq!(made.manager, "kasbah");
        let made = Written::by(&after).writer_of_change(&after, false).unwrap();
        assert_eq!(made.manager, "controller", "both may have written again");
        let made = Written::by(&after).writer_of_change(&after, true).unwrap();
        assert_eq!(made.manager, "kasbah");
        assert_eq!(Written::default().writer_of_change(&[], true), None);
    }

    #[test]
    fn of_several_changes_in_one_the_one_that_the_generation_tells_of_counts() {
        let before = Written::by(&[writer("kasbah", "", 3)]);
        let after = [writer("controller", "status", 8), writer("kasbah", "", 7)];
        let by = |has_new_generation| before.writer_of_change(&after, has_new_generation).unwrap().manager;
        assert_eq!((by(true).as_str(), by(false).as_str()), ("kasbah", "controller"));
    }
}
