//! Lists, page by page.
//!
//! A list has one order, by a key that never changes while the item is there. A cursor names the key of the last item of a page, and the
//! next page begins behind that key: what came or went meanwhile moves nothing else, and any replica can go on.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::EncodeError;
use crate::request::{Refusal, Request};

/// How many items a page holds at most. A page holds fewer where more would not fit into a message.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PageLimit(#[cfg_attr(feature = "schema", schemars(range(min = 1, max = 500)))] u16);

impl PageLimit {
    /// The limit of a request that names none.
    pub const DEFAULT: Self = Self(100);
    /// The largest limit.
    pub const MAXIMUM: Self = Self(500);

    /// A limit of so many items; `None` when it is out of range.
    #[must_use]
    pub fn new(items: usize) -> Option<Self> {
        let items = u16::try_from(items).ok()?;
        (1..=Self::MAXIMUM.0).contains(&items).then_some(Self(items))
    }

    /// The number of items.
    #[must_use]
    pub fn items(self) -> usize {
        usize::from(self.0)
    }
}

impl<'de> Deserialize<'de> for PageLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = PageLimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 1 to {}", PageLimit::MAXIMUM.0)
            }
            fn visit_u64<E: serde::de::Error>(self, items: u64) -> Result<PageLimit, E> {
                let limit = usize::try_from(items).ok().and_then(PageLimit::new);
                limit.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(items), &self))
            }
            fn visit_i64<E: serde::de::Error>(self, items: i64) -> Result<PageLimit, E> {
                let limit = usize::try_from(items).ok().and_then(PageLimit::new);
                limit.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(items), &self))
            }
            /// As it stands in a query.
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PageLimit, E> {
                let limit = text.parse().ok().and_then(PageLimit::new);
                limit.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The place behind one item of a list. Opaque to clients.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageCursor(String);

impl PageCursor {
    /// What a cursor begins with, so that it never looks like an option of a command line.
    const MARK: &'static str = "c";

    /// The place behind the item with this key.
    ///
    /// # Errors
    /// See [`crate::encode`].
    pub fn behind<R: Paged>(key: &R::Key) -> Result<Self, EncodeError> {
        let bytes = crate::encode(&(R::NAME, key))?;
        Ok(Self(format!("{}{}", Self::MARK, hex::encode(bytes))))
    }

    /// The key that it names.
    ///
    /// # Errors
    /// When it is no cursor of this list.
    fn key<R: Paged>(&self) -> Result<R::Key, Refusal> {
        let open = || {
            let bytes = hex::decode(self.0.strip_prefix(Self::MARK)?).ok()?;
            let (list, key): (String, R::Key) = crate::decode(&bytes).ok()?;
            let is_whole = crate::encode(&(R::NAME, &key)).ok()? == bytes;
            (list == R::NAME && is_whole).then_some(key)
        };
        let wrong = "is no cursor of this list: take `next` of the page before";
        open().ok_or_else(|| Refusal::invalid("cursor", wrong))
    }
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for PageCursor {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Some items of a list, in its order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PageOf{T}"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<PageCursor>,
}

/// A request for a page of a list.
pub trait Paged: Request<Reply = Page<Self::Item>> {
    /// One item.
    type Item: Serialize + DeserializeOwned + Send + 'static;
    /// The list's order.
    type Key: Serialize + DeserializeOwned + Send + 'static;

    /// How many items are wanted at most.
    fn limit(&self) -> PageLimit;

    /// Where the page begins, as the request has it.
    fn cursor(&self) -> Option<&PageCursor>;

    /// The same request for the page at this cursor.
    #[must_use]
    fn at(self, cursor: PageCursor) -> Self;

    /// The key that the page begins behind; `None` for the first page.
    ///
    /// # Errors
    /// When the cursor is none of this list.
    fn after(&self) -> Result<Option<Self::Key>, Refusal> {
        self.cursor().map(PageCursor::key::<Self>).transpose()
    }
}

/// Declares a request for a page of items in the order of their keys. It has the fields `limit` and `cursor`.
macro_rules! paged {
    ($request:ty => $item:ty, by $key:ty, $name:literal) => {
        $crate::request::request!($request => $crate::requests::page::Page<$item>, $name);
        impl $crate::requests::page::Paged for $request {
            type Item = $item;
            type Key = $key;
            fn limit(&self) -> $crate::requests::page::PageLimit {
                self.limit.unwrap_or($crate::requests::page::PageLimit::DEFAULT)
            }
            fn cursor(&self) -> Option<&$crate::requests::page::PageCursor> {
                self.cursor.as_ref()
            }
            fn at(mut self, cursor: $crate::requests::page::PageCursor) -> Self {
                self.cursor = Some(cursor);
                self
            }
        }
    };
}
pub(crate) use paged;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, GroupId};
    use crate::requests::authz::{ListAgents, ListGroups};

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let id = uuid::Uuid::from_u128(7);
        let cursor = PageCursor::behind::<ListAgents>(&AgentId(id)).unwrap();
        let agents = ListAgents::default().at(cursor.clone());
        assert_eq!(agents.after(), Ok(Some(AgentId(id))));
        let bytes = crate::encode(&agents).unwrap();
        assert_eq!(crate::decode::<ListAgents>(&bytes).unwrap(), agents, "it crosses the bus");
        let of_groups = PageCursor::behind::<ListGroups>(&GroupId(id)).unwrap();
        for wrong in [String::new(), "c".to_owned(), "czz".to_owned(), format!("{cursor}00"), of_groups.0] {
            let refusal = ListAgents::default().at(PageCursor(wrong.clone())).after().unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("cursor"), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_a_number_in_its_range_also_in_a_query() {
        let read = |text: &str| serde_json::from_str::<PageLimit>(text).map(PageLimit::items).ok();
        assert_eq!((read("1"), read("500"), read("\"20\"")), (Some(1), Some(500), Some(20)));
        for wrong in ["0", "501", "-1", "1.5", "\"\"", "\"many\"", "\"-3\"", "99999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let bytes = crate::encode(&PageLimit::MAXIMUM).unwrap();
        assert_eq!(crate::decode::<PageLimit>(&bytes).unwrap(), PageLimit::MAXIMUM);
    }
}
