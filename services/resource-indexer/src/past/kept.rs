//! Moments that were judged, for the next question about the same: a page asks for one moment several times, and so do several people.
//!
//! A moment counts again only for exactly what it was made of: the same objects, none of which changed since, the same declarations and the
//! same environments. So nothing has to be told that a moment does not count any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use events::requests::index::Moment;
use parking_lot::Mutex;

use super::{Judged, Scope};

/// Moments that are kept.
const MOMENTS: usize = 16;
/// Objects of all of them together: each takes about a kilobyte.
const OBJECTS: usize = 60_000;
/// How long one is kept that nobody asks for.
const UNUSED: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub(crate) struct Moments(Mutex<VecDeque<Kept>>);

struct Kept {
    moment: Moment,
    scope: Scope,
    judged: Arc<Judged>,
    used: Duration,
}

impl Moments {
    /// What was judged of a scope at a moment, where it is kept.
    pub(super) fn get(&self, scope: &Scope, moment: &Moment, now: Duration) -> Option<Arc<Judged>> {
        let mut kept = self.0.lock();
        let place = kept.iter().position(|kept| kept.moment == *moment && kept.scope.is(scope))?;
        let mut found = kept.remove(place)?;
        found.used = now;
        let judged = Arc::clone(&found.judged);
        kept.push_front(found);
        Some(judged)
    }

    /// Keeps what was judged. Those that were used longest ago leave where there is no room for all.
    pub(super) fn keep(&self, scope: Scope, moment: &Moment, judged: &Arc<Judged>, now: Duration) {
        if scope.records.len() > OBJECTS {
            return;
        }
        let one = Kept { moment: moment.clone(), scope, judged: Arc::clone(judged), used: now };
        let mut kept = self.0.lock();
        kept.push_front(one);
        let mut left = OBJECTS;
        let fits = |kept: &&Kept| match left.checked_sub(kept.scope.records.len()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        let room = kept.iter().take(MOMENTS).take_while(fits).count();
        let leaving = kept.split_off(room);
        drop(kept);
        // Many objects take their time to leave: nobody waits for that.
        drop(leaving);
    }

    /// Lets go of those for which nobody asked lately.
    pub(crate) fn sweep(&self, now: Duration) {
        let mut kept = self.0.lock();
        let is_used = |kept: &&Kept| now.saturating_sub(kept.used) < UNUSED;
        let used = kept.iter().take_while(is_used).count();
        let leaving = kept.split_off(used);
        drop(kept);
        drop(leaving);
    }
}

#[cfg(test)]
mod tests {
    use events::Timestamp;

    use super::*;
    use crate::model::{Declarations, Declaring, Groups, Index, Record, given};

    const NOW: Duration = Duration::from_secs(1_000);

    fn records(count: usize) -> Vec<Arc<Record>> {
        let mut given = given::Given::agents();
        let body = |number: usize| given::config(&format!("shop/c{number}"), serde_json::json!({}));
        given.says((0..count).map(|number| given::seen(&body(number))).collect());
        given.fold.index.slots().filter_map(|slot| given.fold.index.shared(slot)).collect()
    }

    fn scope(records: &[Arc<Record>], groups: &Arc<Groups>) -> Scope {
        let (records, groups) = (records.to_vec(), Arc::clone(groups));
        Scope { records, declaring: Declaring::default(), todays_rules: false, groups }
    }

    fn at(time: i64) -> Moment {
        Moment::Time(Timestamp(time))
    }

    fn judged() -> Arc<Judged> {
        Arc::new(Judged { index: Index::of_a_moment(Declarations::new()), at: Timestamp(0) })
    }

    #[test]
    fn a_moment_counts_for_exactly_what_it_was_made_of() {
        let (moments, groups, all) = (Moments::default(), Arc::new(Groups::default()), records(5));
        let kept = judged();
        moments.keep(scope(&all, &groups), &at(1), &kept, NOW);
        let get = |scope: Scope, moment: Moment| moments.get(&scope, &moment, NOW);
        assert!(get(scope(&all, &groups), at(1)).is_some_and(|found| Arc::ptr_eq(&found, &kept)));
        assert!(get(scope(&all, &groups), at(2)).is_none());
        assert!(get(scope(&all[1..], &groups), at(1)).is_none());
        assert!(get(scope(&all, &Arc::new(Groups::default())), at(1)).is_none());
        assert!(get(Scope { todays_rules: true, ..scope(&all, &groups) }, at(1)).is_none());
        let today = Declarations::from([(given::AGENT, Arc::default())]);
        let declaring = Declaring { today, ..Declaring::default() };
        assert!(get(Scope { declaring, ..scope(&all, &groups) }, at(1)).is_none());
        let mut changed = all.clone();
        changed[2] = Arc::new(Record::clone(&changed[2]));
        assert!(get(scope(&changed, &groups), at(1)).is_none(), "it may be another object by now");
    }

    #[test]
    fn what_was_used_longest_ago_leaves_where_there_is_no_room() {
        let (moments, groups, all) = (Moments::default(), Arc::new(Groups::default()), records(2));
        let known = |time: i64| moments.get(&scope(&all, &groups), &at(time), NOW).is_some();
        for time in 0..MOMENTS as i64 {
            moments.keep(scope(&all, &groups), &at(time), &judged(), NOW);
        }
        assert!(known(0), "it is used");
        moments.keep(scope(&all, &groups), &at(100), &judged(), NOW);
        assert!(known(0) && known(100) && !known(1));
        let many = vec![Arc::clone(&all[0]); OBJECTS - 3];
        moments.keep(scope(&many, &groups), &at(200), &judged(), NOW);
        assert!(known(100) && !known(0), "there is room for one of them");
        let too_many = vec![Arc::clone(&all[0]); OBJECTS + 1];
        moments.keep(scope(&too_many, &groups), &at(300), &judged(), NOW);
        assert!(moments.get(&scope(&too_many, &groups), &at(300), NOW).is_none());
    }

    #[test]
    fn what_nobody_asks_for_leaves_after_a_while() {
        let (moments, groups, all) = (Moments::default(), Arc::new(Groups::default()), records(2));
        for time in [1, 2] {
            moments.keep(scope(&all, &groups), &at(time), &judged(), NOW);
        }
        let later = NOW + UNUSED / 2;
        assert!(moments.get(&scope(&all, &groups), &at(1), later).is_some());
        moments.sweep(NOW + UNUSED);
        assert_eq!(moments.0.lock().len(), 1);
        moments.sweep(later + UNUSED);
        assert!(moments.0.lock().is_empty());
    }
}
