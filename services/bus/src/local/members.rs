//! Who serves which subject, in which queue group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use world::Random;

type Groups<H> = BTreeMap<String, Vec<Arc<Member<H>>>>;

/// The members of all subjects.
pub(super) struct Members<H> {
    subjects: Arc<Mutex<BTreeMap<String, Groups<H>>>>,
}

/// One member of one queue group.
pub(super) struct Member<H> {
    pub(super) handler: H,
    pub(super) permits: Arc<Semaphore>,
}

/// Ends a membership when dropped.
pub(super) struct Membership<H> {
    members: Members<H>,
    subject: String,
    group: String,
    member: Arc<Member<H>>,
}

impl<H> Default for Members<H> {
    fn default() -> Self {
        Self { subjects: Arc::default() }
    }
}

impl<H> Clone for Members<H> {
    fn clone(&self) -> Self {
        Self { subjects: Arc::clone(&self.subjects) }
    }
}

impl<H> Members<H> {
    pub(super) fn join(
        &self,
        subject: &str,
        group: &str,
        handler: H,
        permits: Arc<Semaphore>,
    ) -> Membership<H> {
        let member = Arc::new(Member { handler, permits });
        let mut subjects = self.subjects.lock();
        let groups = subjects.entry(subject.to_owned()).or_default();
        groups.entry(group.to_owned()).or_default().push(Arc::clone(&member));
        Membership { members: self.clone(), subject: subject.to_owned(), group: group.to_owned(), member }
    }

    /// One member of each group, at random.
    pub(super) fn choose(&self, subject: &str, random: &dyn Random) -> Vec<Arc<Member<H>>> {
        let subjects = self.subjects.lock();
        let groups = subjects.get(subject).into_iter().flat_map(BTreeMap::values);
        groups
            .filter_map(|members| {
                let index = if members.len() > 1 { random.below(members.len() as u64) } else { 0 };
                members.get(usize::try_from(index).unwrap_or(0)).map(Arc::clone)
            })
            .collect()
    }
}

impl<H> Drop for Membership<H> {
    fn drop(&mut self) {
        let mut subjects = self.members.subjects.lock();
        let Some(groups) = subjects.get_mut(&self.subject) else { return };
        if let Some(members) = groups.get_mut(&self.group) {
            members.retain(|member| !Arc::ptr_eq(member, &self.member));
        }
        groups.retain(|_, members| !members.is_empty());
        if groups.is_empty() {
            subjects.remove(&self.subject);
        }
    }
}
