//! Lists of the API, page by page.

use std::marker::PhantomData;
use std::num::NonZeroUsize;

use events::requests::page::{Page, PageLimit};
use serde::de::DeserializeOwned;

use super::api::{Api, Query};
use super::failure::Failure;

/// How much of a list is printed.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct LimitArgs {
    /// Prints so many at most; all if not given
    #[arg(long, value_name = "COUNT")]
    limit: Option<NonZeroUsize>,
}

impl LimitArgs {
    /// So many items are wanted.
    #[must_use]
    pub fn most(self) -> usize {
        self.limit.map_or(usize::MAX, NonZeroUsize::get)
    }
}

/// A list whose pages are asked for one after the other.
pub struct Listing<'a, T> {
    api: &'a Api,
    path: &'a [&'a str],
    query: Vec<(&'a str, String)>,
    next: Next,
    /// How many items are wanted still.
    wanted: usize,
    items: PhantomData<fn() -> T>,
}

/// The page to ask for.
enum Next {
    First,
    At(String),
    /// There is none.
    Nothing,
}

impl<'a, T: DeserializeOwned> Listing<'a, T> {
    /// A list under a path.
    #[must_use]
    pub fn of(api: &'a Api, path: &'a [&'a str], query: &Query<'a>, limit: LimitArgs) -> Self {
        let wanted = limit.most();
        Self { api, path, query: query.to_vec(), next: Next::First, wanted, items: PhantomData }
    }

    /// The next items; `None` at the end.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, Failure> {
        let cursor = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => return Ok(None),
            Next::First => None,
            Next::At(cursor) => Some(cursor),
        };
        let limit = self.wanted.min(PageLimit::MAXIMUM.items());
        let mut query = self.query.clone();
        query.push(("limit", limit.to_string()));
        query.extend(cursor.as_ref().map(|cursor| ("cursor", cursor.clone())));
        let Page { mut items, next } = self.api.get::<Page<T>>(self.path, &query).await?;
        items.truncate(self.wanted);
        self.wanted = self.wanted.saturating_sub(items.len());
        let next =
            next.map(|next| next.to_string()).filter(|next| self.wanted > 0 && cursor.as_ref() != Some(next));
        self.next = next.map_or(Next::Nothing, Next::At);
        Ok(Some(items))
    }
}

impl Api {
    /// All items of a list.
    ///
    /// # Errors
    /// When the server cannot be asked, or refuses.
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query<'_>,
    ) -> Result<Vec<T>, Failure> {
        let mut listing = Listing::of(self, path, query, LimitArgs::default());
        let mut all = Vec::new();
        while let Some(items) = listing.next().await? {
            all.extend(items);
        }
        Ok(all)
    }
}
