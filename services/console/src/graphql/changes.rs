//! Changes of objects, page by page, between two times.
//!
//! The bus gives one cursor for a page, at its end. An item within it is named by the cursor of its page and its place there.

use async_graphql::Result;
use async_graphql::connection::{Connection, Edge};
use events::requests::index::{ListChanges, ObjectFilter};
use events::requests::page::{PageCursor, PageLimit};
use events::{AgentId, Position, Refusal, RefusalKind, Timestamp};
use uuid::Uuid;

use super::asker::Asker;
use super::failure;
use super::page::{Items, Opaque};
use super::types::resource::{Change, ListExtra};

/// Pages of the bus that one answer goes through.
const PAGES: usize = 20;

/// Which changes.
pub(super) struct Wanted {
    pub(super) filter: ObjectFilter,
    pub(super) at_least: Option<Position>,
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
    pub(super) todays_rules: bool,
    pub(super) limit: PageLimit,
    pub(super) after: Option<String>,
}

/// A page of them, the newest first.
///
/// # Errors
/// What the index refuses.
pub(super) async fn page(
    asker: &Asker,
    wanted: Wanted,
    extra: ListExtra,
) -> Result<Items<Change, ListExtra>> {
    let mut connection = Connection::with_additional_fields(false, false, extra);
    let (mut start, mut skipped) = begin(&wanted)?;
    for _ in 0..PAGES {
        let missing = wanted.limit.items().saturating_sub(connection.edges.len());
        let limit = PageLimit::new(missing.saturating_add(skipped)).unwrap_or(PageLimit::MAXIMUM);
        let request = ListChanges {
            filter: wanted.filter.clone(),
            todays_rules: wanted.todays_rules,
            since: wanted.from,
            at_least: wanted.at_least.clone(),
            limit: Some(limit),
            cursor: start.clone().map(PageCursor::from),
        };
        let page = asker.ask(&request).await?;
        let base = match (&start, page.items.first()) {
            (Some(start), _) => start.clone(),
            (None, Some(first)) => behind(first.recorded_at)?,
            (None, None) => String::new(),
        };
        let count = page.items.len();
        for (number, change) in page.items.into_iter().enumerate().skip(skipped) {
            if connection.edges.len() >= wanted.limit.items() {
                connection.has_next_page = true;
                return Ok(connection);
            }
            let place = number.saturating_add(1);
            let cursor = match &page.next {
                Some(next) if place == count => next.to_string(),
                _ => format!("{base}.{place}"),
            };
            connection.edges.push(Edge::new(Opaque(cursor), change.into()));
        }
        let Some(next) = page.next else { return Ok(connection) };
        connection.has_next_page = true;
        if connection.edges.len() >= wanted.limit.items() {
            return Ok(connection);
        }
        (start, skipped) = (Some(next.to_string()), 0);
    }
    if connection.edges.is_empty() {
        let message = "too many other changes were looked through; name an agent, a kind or a namespace";
        return Err(failure::error(&Refusal::new(RefusalKind::Unavailable, message)));
    }
    Ok(connection)
}

/// The cursor of the first page, and how many of its items come before the wanted ones.
fn begin(wanted: &Wanted) -> Result<(Option<String>, usize)> {
    let Some(after) = &wanted.after else {
        return Ok((wanted.to.map(behind).transpose()?, 0));
    };
    let Some((start, place)) = after.split_once('.') else { return Ok((Some(after.clone()), 0)) };
    let place = place.parse().ok().filter(|place| *place < PageLimit::MAXIMUM.items());
    let place = place.ok_or_else(|| failure::invalid("after", "is no cursor of this list"))?;
    Ok((Some(start.to_owned()), place))
}

/// The place before everything that was recorded at a time or earlier: the newest come first.
fn behind(time: Timestamp) -> Result<String> {
    let key = (time, AgentId(Uuid::nil()), String::new(), u64::MAX);
    let cursor = PageCursor::behind::<ListChanges>(&key).map_err(|error| failure::unencodable(&error))?;
    Ok(cursor.to_string())
}
