//! Many at once, but not all.

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

/// Runs all, at most `limit` at once; gives what they gave, in the order in which they were given.
pub(super) async fn concurrently<F: Future>(all: Vec<F>, limit: usize) -> Vec<F::Output> {
    let mut results = Vec::with_capacity(all.len());
    let mut waiting = all.into_iter().enumerate().map(|(place, one)| one.map(move |result| (place, result)));
    let mut running: FuturesUnordered<_> = waiting.by_ref().take(limit.max(1)).collect();
    while let Some(result) = running.next().await {
        results.push(result);
        if let Some(next) = waiting.next() {
            running.push(next);
        }
    }
    results.sort_unstable_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn never_more_than_the_limit_and_in_order() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |number: usize| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The first ones take longest.
                for _ in number..100 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                number
            }
        };
        let results = concurrently((0..100).map(one).collect(), 7).await;
        assert_eq!(results, (0..100).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), 7);
    }
}
