//! Pages of lists, each small enough for a message.

use events::requests::page::{Page, PageCursor, PageLimit, Paged};
use events::{Refusal, RefusalKind};

use crate::contract::MAXIMUM_MESSAGE_BYTES;

/// Bytes of a page's items. An item that is larger stands alone on its page.
const MAXIMUM_PAGE_BYTES: usize = MAXIMUM_MESSAGE_BYTES / 2;

/// Fills a page with items in the order of their keys.
#[derive(Debug)]
pub struct PageBuilder<R: Paged> {
    limit: PageLimit,
    items: Vec<R::Item>,
    bytes: usize,
    last: Option<R::Key>,
    has_more: bool,
}

impl<R: Paged> PageBuilder<R> {
    /// An empty page for a request.
    #[must_use]
    pub fn of(request: &R) -> Self {
        Self { limit: request.limit(), items: Vec::new(), bytes: 0, last: None, has_more: false }
    }

    /// Adds the next item that the asker may see. Answers whether more are wanted: an item that finds the page full begins the next page.
    ///
    /// # Errors
    /// When the item cannot be encoded.
    pub fn push(&mut self, key: R::Key, item: R::Item) -> Result<bool, Refusal> {
        let bytes = events::encoded_length(&item).map_err(|error| internal(&error))?;
        let is_full = self.items.len() >= self.limit.items()
            || (!self.items.is_empty() && self.bytes.saturating_add(bytes) > MAXIMUM_PAGE_BYTES);
        if is_full {
            self.has_more = true;
            return Ok(false);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.push(item);
        self.last = Some(key);
        Ok(true)
    }

    /// The page.
    ///
    /// # Errors
    /// When the cursor cannot be encoded.
    pub fn finish(self) -> Result<Page<R::Item>, Refusal> {
        let last = self.last.filter(|_| self.has_more);
        let next = last.map(|key| PageCursor::behind::<R>(&key).map_err(|error| internal(&error)));
        Ok(Page { items: self.items, next: next.transpose()? })
    }
}

/// The page that a request wants, of the items behind its cursor that the asker may see, in the order of their keys.
///
/// # Errors
/// When an item cannot be encoded.
pub fn page<R: Paged>(
    request: &R,
    items: impl IntoIterator<Item = (R::Key, R::Item)>,
) -> Result<Page<R::Item>, Refusal> {
    let mut page = PageBuilder::of(request);
    for (key, item) in items {
        if !page.push(key, item)? {
            break;
        }
    }
    page.finish()
}

fn internal(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use events::AgentId;
    use events::requests::authz::{AgentView, ListAgents};
    use events::{ProjectId, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn agent(number: u128, name: &str) -> (AgentId, AgentView) {
        let id = AgentId(Uuid::from_u128(number));
        let (project, project_path) = (ProjectId(Uuid::nil()), "shop/deploy".to_owned());
        let name = name.to_owned();
        (id, AgentView { id, name, project, project_path, group: None, registered_at: Timestamp(0) })
    }

    #[test]
    fn a_page_ends_at_its_limit_and_the_last_one_has_no_next() {
        let all = || (1..=5).map(|number| agent(number, "a"));
        let request = ListAgents { limit: PageLimit::new(2), cursor: None };
        let first = page(&request, all()).unwrap();
        assert_eq!(first.items.len(), 2);
        let second = request.clone().at(first.next.unwrap());
        assert_eq!(second.after(), Ok(Some(AgentId(Uuid::from_u128(2)))));
        let whole = ListAgents { limit: PageLimit::new(5), cursor: None };
        assert_eq!(page(&whole, all()).unwrap().next, None, "nothing is behind it");
        assert_eq!(page(&request, std::iter::empty()).unwrap(), Page { items: Vec::new(), next: None });
    }

    #[test]
    fn a_page_fits_into_a_message_whatever_its_limit() {
        let name = "n".repeat(MAXIMUM_PAGE_BYTES / 3);
        let request = ListAgents { limit: Some(PageLimit::MAXIMUM), cursor: None };
        let found = page(&request, (1..=9).map(|number| agent(number, &name))).unwrap();
        assert_eq!(found.items.len(), 2);
        let bytes = events::encode(&found).unwrap().len();
        assert!(bytes < MAXIMUM_MESSAGE_BYTES);
        assert_eq!(events::encoded_length(&found), Ok(bytes));
        assert_eq!(request.at(found.next.unwrap()).after(), Ok(Some(AgentId(Uuid::from_u128(2)))));
    }
}
