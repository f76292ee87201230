//! How large the pages of a list are: by bytes, so that neither many small objects cost many requests nor a few large ones much memory.

/// Objects of the first page, where nothing is known of their size: as large as they may be, they fit an answer.
pub(super) const FIRST_PAGE: usize = 25;
/// Bytes that a page should have.
const PAGE_BYTES: usize = 2 << 20;
const LEAST: usize = 10;
const MOST: usize = 500;

/// Where a list is, and how it goes on.
#[derive(Debug)]
pub(super) struct Pages {
    limit: usize,
    next: String,
}

impl Pages {
    /// A list whose first page has so many objects.
    pub(super) const fn of(first: usize) -> Self {
        Self { limit: first, next: String::new() }
    }

    pub(super) const fn is_first(&self) -> bool {
        self.next.is_empty()
    }

    /// The query of the next page. `at`: the list is to be as it was in that version.
    pub(super) fn query(&self, at: Option<&str>) -> String {
        use crate::kubernetes::path::escape;
        let limit = self.limit;
        match at {
            _ if !self.next.is_empty() => format!("?limit={limit}&continue={}", escape(&self.next)),
            Some(version) => {
                format!("?limit={limit}&resourceVersion={}&resourceVersionMatch=Exact", escape(version))
            }
            None => format!("?limit={limit}"),
        }
    }

    /// A page was read; gives how many objects the next one has.
    pub(super) fn turn(&mut self, bytes: usize, objects: usize, next: String) -> usize {
        let fitting = (PAGE_BYTES * objects).checked_div(bytes).unwrap_or(MOST);
        (self.limit, self.next) = (fitting.clamp(LEAST, MOST), next);
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_and_shrink_with_what_objects_take() {
        let mut pages = Pages::of(FIRST_PAGE);
        assert_eq!(pages.query(None), "?limit=25");
        assert_eq!(pages.query(Some("7")), "?limit=25&resourceVersion=7&resourceVersionMatch=Exact");
        for (bytes, objects, limit) in
            [(25_000, 25, 500), (2 << 20, 25, 25), (40 << 20, 25, 10), (4 << 20, 200, 100), (0, 0, 500)]
        {
            assert_eq!(pages.turn(bytes, objects, "c=".to_owned()), limit);
            assert_eq!(pages.query(Some("7")), format!("?limit={limit}&continue=c%3D"), "{bytes}");
        }
    }
}
