//! The fields of `Subscription`.

use std::sync::Arc;

use async_graphql::{Context, Result, Subscription as SubscriptionOf};
use futures::stream::{self, Stream};

use super::asker::Asker;
use super::feed::Feed;
use super::types::filter::ResourceFilter;
use super::types::resource::ChangeEvent;
use super::types::scalar::Position;

/// What can be followed.
pub struct Subscription;

/// What can be followed, over WebSocket (`graphql-transport-ws`) or server-sent events.
#[SubscriptionOf]
impl Subscription {
    /// Each change of the objects that match, as it comes, the oldest first. By `after` or `Last-Event-ID` a subscription goes on right behind
    /// an event: nothing comes twice, and nothing is left out.
    async fn resource_changes<'a>(
        &self,
        context: &Context<'a>,
        filter: Option<ResourceFilter>,
        #[graphql(desc = "Begins behind this position; now if not given.")] after: Option<Position>,
    ) -> Result<impl Stream<Item = Result<ChangeEvent>> + use<'a>> {
        let asker = Arc::clone(Asker::of(context)?);
        let after = after.map(|after| after.0).or_else(|| asker.resume.clone());
        let feed = Feed::begin(asker, filter.unwrap_or_default().into(), after).await?;
        Ok(stream::unfold(Some(feed), |feed| async {
            let mut feed = feed?;
            match feed.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(feed))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}
