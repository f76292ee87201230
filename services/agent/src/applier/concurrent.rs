//! Many at once, but not all.

use futures::StreamExt;
use futures::stream::FuturesUnordered;

/// Runs all, at most `limit` at once; gives what they gave, in the order in which they ended.
pub(super) async fn concurrently<F: Future>(all: Vec<F>, limit: usize) -> Vec<F::Output> {
    let mut results = Vec::with_capacity(all.len());
    let mut waiting = all.into_iter();
    let mut running: FuturesUnordered<F> = waiting.by_ref().take(limit.max(1)).collect();
    while let Some(result) = running.next().await {
        results.push(result);
        if let Some(next) = waiting.next() {
            running.push(next);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn never_more_than_the_limit() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |number: usize| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                number
            }
        };
        let mut results = concurrently((0..100).map(one).collect(), 7).await;
        results.sort_unstable();
        assert_eq!(results, (0..100).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), 7);
    }
}
