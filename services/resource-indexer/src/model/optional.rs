//! Numbers and times that many objects do not have, in the room of those that they have.

use std::num::NonZeroI64;

use events::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number or nothing in eight bytes: the lowest number stands for nothing. Written as an `Option` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Optional(Option<NonZeroI64>);

impl Optional {
    /// Nothing.
    pub const NONE: Self = Self(None);

    /// Whether it is nothing.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0.is_none()
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> Option<i64> {
        self.0.map(|number| number.get() ^ i64::MIN)
    }

    /// The time of that many milliseconds since 1970.
    #[must_use]
    pub fn time(self) -> Option<Timestamp> {
        self.number().map(Timestamp)
    }
}

impl From<Option<i64>> for Optional {
    fn from(number: Option<i64>) -> Self {
        Self(number.and_then(|number| NonZeroI64::new(number ^ i64::MIN)))
    }
}

impl From<Option<Timestamp>> for Optional {
    fn from(time: Option<Timestamp>) -> Self {
        time.map(|time| time.0).into()
    }
}

impl Serialize for Optional {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.number().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Optional {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<i64>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_read_back_and_takes_no_more_room_than_one_that_is_always_there() {
        assert_eq!(size_of::<Optional>(), size_of::<Timestamp>());
        for time in [None, Some(Timestamp(0)), Some(Timestamp(-1)), Some(Timestamp(i64::MAX))] {
            let optional = Optional::from(time);
            assert_eq!(optional.time(), time);
            let bytes = rmp_serde::to_vec(&optional).unwrap();
            assert_eq!(bytes, rmp_serde::to_vec(&time).unwrap());
            assert_eq!(rmp_serde::from_slice::<Optional>(&bytes).unwrap(), optional);
        }
    }
}
