//! Whose write a change of an object was.

use std::sync::Arc;

use events::Sha256;
use events::observation::FieldWriter;
use serde::{Deserialize, Serialize};

use super::optional::Optional;
use super::record::Shared;
use super::text::Text;

/// Who wrote an object last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Writer {
    by: Arc<By>,
    at: Optional,
}

/// A writer of many objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct By {
    manager: Text,
    operation: Text,
    subresource: Text,
}

/// A writer as it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    manager: Text,
    operation: Text,
    subresource: Text,
    at: Optional,
}

impl From<Stored> for Writer {
    fn from(Stored { manager, operation, subresource, at }: Stored) -> Self {
        Self { by: Arc::new(By { manager, operation, subresource }), at }
    }
}

impl From<Writer> for Stored {
    fn from(Writer { by, at }: Writer) -> Self {
        let By { manager, operation, subresource } = Arc::unwrap_or_clone(by);
        Self { manager, operation, subresource, at }
    }
}

impl Writer {
    /// The writer of an object's fields.
    #[must_use]
    pub fn of(writer: &FieldWriter) -> Self {
        let FieldWriter { manager, operation, subresource, at } = writer;
        let [manager, operation, subresource] =
            [manager, operation, subresource].map(|text| Text::from(text.as_str()));
        Self { by: Arc::new(By { manager, operation, subresource }), at: (*at).into() }
    }

    /// As it is answered.
    #[must_use]
    pub fn answer(&self) -> FieldWriter {
        let By { manager, operation, subresource } = &*self.by;
        let [manager, operation, subresource] = [manager, operation, subresource].map(Text::to_string);
        FieldWriter { manager, operation, subresource, at: self.at.time() }
    }

    /// What is shared of it.
    #[cfg(test)]
    pub(crate) fn by(&self) -> &By {
        &self.by
    }

    pub(crate) fn share(&mut self, shared: &mut Shared) {
        let Shared { writers, strings, .. } = shared;
        writers.share(&mut self.by, |by| {
            for text in [&mut by.manager, &mut by.operation, &mut by.subresource] {
                strings.share(text);
            }
        });
    }
}

/// Everybody who has written to an object, each at its last time; as hashes, so that they are small.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Box<[u64]>", into = "Box<[u64]>")]
pub enum Written {
    /// One takes no memory of its own.
    One(u64),
    /// None, or several.
    All(Box<[u64]>),
}

impl Default for Written {
    fn default() -> Self {
        Self::All(Box::default())
    }
}

impl From<Box<[u64]>> for Written {
    fn from(marks: Box<[u64]>) -> Self {
        if let [mark] = *marks { Self::One(mark) } else { Self::All(marks) }
    }
}

impl From<Written> for Box<[u64]> {
    fn from(written: Written) -> Self {
        match written {
            Written::One(mark) => Self::from([mark]),
            Written::All(marks) => marks,
        }
    }
}

impl Written {
    pub(crate) fn by(writers: &[FieldWriter]) -> Self {
        writers.iter().map(mark_of).collect::<Box<[u64]>>().into()
    }

    fn has(&self, mark: u64) -> bool {
        match self {
            Self::One(known) => *known == mark,
            Self::All(marks) => marks.contains(&mark),
        }
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
        let is_new = |writer: &&FieldWriter| !self.has(mark_of(writer));
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
    fn they_are_written_as_a_list_and_the_writer_as_it_was() {
        assert_eq!(size_of::<Written>(), size_of::<Box<[u64]>>());
        for marks in [vec![], vec![7], vec![7, u64::MAX]] {
            let written = Written::from(Box::from(marks.as_slice()));
            let bytes = rmp_serde::to_vec(&written).unwrap();
            assert_eq!(bytes, rmp_serde::to_vec(&marks).unwrap());
            assert_eq!(rmp_serde::from_slice::<Written>(&bytes).unwrap(), written);
        }
        let writer = Writer::of(&writer("kasbah", "", 7));
        let bytes = rmp_serde::to_vec(&writer).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec(&("kasbah", "Update", "", Some(7))).unwrap());
        assert_eq!(rmp_serde::from_slice::<Writer>(&bytes).unwrap(), writer);
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
