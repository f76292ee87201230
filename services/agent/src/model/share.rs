//! How the capacity for manifests is shared between the sources of one agent.

/// The largest size that a source may have. All of them fit where that is possible; otherwise the capacity is divided evenly, and what small
/// sources leave goes to the others.
#[must_use]
pub fn share(sizes: &[usize], capacity: usize) -> usize {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut capacity, mut left) = (capacity, sizes.len());
    for size in sizes {
        let share = capacity.checked_div(left).unwrap_or(capacity);
        if size > share {
            return share;
        }
        capacity -= size;
        left -= 1;
    }
    usize::MAX
}

/// Why a source over its share is not applied.
#[must_use]
pub fn over_share(size: usize, share: usize, capacity: usize) -> String {
    format!(
        "the source is too large for this agent: its objects take {} KiB or more, and its share of {} KiB for all sources is {} KiB; \
         split it over several agents, or remove large objects",
        size >> 10,
        capacity >> 10,
        share >> 10
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_far_too_large_leaves_the_others_alone() {
        let mut sizes = vec![1_000; 19];
        sizes.push(1_000_000);
        assert_eq!(share(&sizes, 50_000), 31_000);
        assert_eq!(share(&sizes, 2_000_000), usize::MAX, "all fit");
        assert_eq!(share(&[], 10), usize::MAX);
        assert_eq!(share(&[30, 80, 90], 100), 35, "two of three share what the smallest leaves");
        assert_eq!(share(&[101], 100), 100);
    }
}
