//! Places for what stays open: so many for each user, and so many for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_graphql::ServerError;
use events::Actor;
use parking_lot::Mutex;

use super::failure;

/// A limit: its name, and how many there may be.
type Limit = (&'static str, usize);

/// What is open, by user.
#[derive(Clone)]
pub(crate) struct Slots {
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    of_one: Limit,
    of_all: Limit,
}

/// A place. Dropping it makes room.
pub(crate) struct Slot {
    slots: Slots,
    holder: String,
}

impl Slots {
    /// None is taken.
    pub(crate) fn new(of_one: Limit, of_all: Limit) -> Self {
        Self { open: Arc::default(), of_one, of_all }
    }

    /// Takes a place for a user.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn take(&self, actor: &Actor) -> Result<Slot, ServerError> {
        let holder = actor.to_string();
        let mut open = self.open.lock();
        let (own, all) = (open.get(&holder).copied().unwrap_or(0), open.values().sum::<usize>());
        if all >= self.of_all.1 {
            return Err(failure::limit(self.of_all.0, self.of_all.1, None, "try again later"));
        }
        if own >= self.of_one.1 {
            return Err(failure::limit(self.of_one.0, self.of_one.1, None, "end one of them first"));
        }
        open.insert(holder.clone(), own.saturating_add(1));
        Ok(Slot { slots: self.clone(), holder })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock();
        let own = open.remove(&self.holder).unwrap_or(0);
        if own > 1 {
            open.insert(std::mem::take(&mut self.holder), own.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use events::UserId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_user_has_so_many_and_an_end_makes_room() {
        let user = |number| Actor::User(UserId(Uuid::from_u128(number)));
        let slots = Slots::new(("own", 2), ("all", 3));
        let refused = |number| slots.take(&user(number)).err().map(|error| error.message);
        let mut held: Vec<_> = (0..2).filter_map(|_| slots.take(&user(1)).ok()).collect();
        assert!(refused(1).unwrap().contains("`own`"));
        held.extend(slots.take(&user(2)).ok());
        assert!(refused(3).unwrap().contains("`all`"));
        held.remove(0);
        assert_eq!(refused(1), None, "its place is given back at once");
        drop(held);
        assert!(slots.open.lock().is_empty());
    }
}
