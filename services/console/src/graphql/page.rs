//! Relay connections over the pages of the bus.

use async_graphql::connection::{Connection, CursorType, Edge, EmptyFields};
use async_graphql::{ObjectType, OutputType, Result};
use events::requests::page::{Page, PageCursor, PageLimit, Paged};

use super::failure;
use super::limits::FIRST;

/// A page of items, each with the place behind it.
pub(super) type Items<T, Extra = EmptyFields> = Connection<Opaque, T, Extra>;

/// A place in a list.
pub(super) struct Opaque(pub(super) String);

impl CursorType for Opaque {
    type Error = std::convert::Infallible;

    fn decode_cursor(text: &str) -> Result<Self, Self::Error> {
        Ok(Self(text.to_owned()))
    }

    fn encode_cursor(&self) -> String {
        self.0.clone()
    }
}

/// The argument `first`.
///
/// # Errors
/// When it is out of range.
pub(super) fn limit(first: Option<u16>) -> Result<PageLimit> {
    let items = first.map_or(FIRST, usize::from);
    let maximum = PageLimit::MAXIMUM.items();
    PageLimit::new(items)
        .ok_or_else(|| failure::invalid("first", format!("must be a number from 1 to {maximum}")))
}

/// A connection over one page. `key` gives each item's place in the list.
///
/// # Errors
/// When a key cannot be expressed.
pub(super) fn of<R, T, Extra>(
    page: Page<R::Item>,
    extra: Extra,
    key: impl Fn(&R::Item) -> R::Key,
    node: impl Fn(R::Item) -> T,
) -> Result<Items<T, Extra>>
where
    R: Paged,
    T: OutputType,
    Extra: ObjectType,
{
    of_some::<R, T, Extra>(page, extra, key, |item| Some(node(item)))
}

/// The same with those items only that have a node.
///
/// # Errors
/// When a key cannot be expressed.
pub(super) fn of_some<R, T, Extra>(
    page: Page<R::Item>,
    extra: Extra,
    key: impl Fn(&R::Item) -> R::Key,
    node: impl Fn(R::Item) -> Option<T>,
) -> Result<Items<T, Extra>>
where
    R: Paged,
    T: OutputType,
    Extra: ObjectType,
{
    let mut connection = Connection::with_additional_fields(false, page.next.is_some(), extra);
    for item in page.items {
        let cursor = PageCursor::behind::<R>(&key(&item)).map_err(|error| failure::unencodable(&error))?;
        if let Some(node) = node(item) {
            connection.edges.push(Edge::new(Opaque(cursor.to_string()), node));
        }
    }
    Ok(connection)
}

/// The cursor of the bus is `after` here.
pub(super) fn cursor_is_after(mut error: async_graphql::Error) -> async_graphql::Error {
    if let Some(extensions) = &mut error.extensions {
        let field = |name: &str| Some(async_graphql::Value::from(name));
        if extensions.get("field").cloned() == field("cursor") {
            extensions.set("field", "after");
        }
    }
    error
}
