//! One Deployment as its controller has it: which pods there are, and what it says of them.

use std::time::Duration;

use serde_json::{Value, json};

/// What a manifest asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) uid: String,
    pub(super) generation: u64,
    /// What its pods are made of.
    pub(super) value: u64,
    pub(super) replicas: u64,
    /// So long a rollout may stand still.
    pub(super) deadline: Duration,
}

impl Spec {
    /// That of an object.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let number = |path: &str| object.pointer(path).and_then(Value::as_u64);
        Some(Self {
            uid: object.pointer("/metadata/uid")?.as_str()?.to_owned(),
            generation: number("/metadata/generation")?,
            value: super::value_of(object)?,
            replicas: number("/spec/replicas")?,
            deadline: Duration::from_secs(number("/spec/progressDeadlineSeconds")?),
        })
    }
}

/// A Deployment's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rollout {
    /// What the controller saw last.
    spec: Spec,
    /// Pods of that.
    updated: u64,
    /// Those of them that do what they are for.
    available: u64,
    /// Pods of what it was before, which do.
    old: u64,
    /// Pods that went away do not come back yet.
    lost: bool,
    /// Everything was there once.
    complete: bool,
    /// It stood still for too long.
    expired: bool,
    moved_at: Duration,
}

impl Rollout {
    /// Without pods.
    pub(super) const fn new(spec: Spec, now: Duration) -> Self {
        Self {
            spec,
            updated: 0,
            available: 0,
            old: 0,
            lost: false,
            complete: false,
            expired: false,
            moved_at: now,
        }
    }

    /// The controller sees what is wanted; whether that is something new.
    pub(super) fn see(&mut self, spec: &Spec, now: Duration) -> bool {
        if self.spec == *spec {
            return false;
        }
        if self.spec.value != spec.value {
            (self.old, self.updated, self.available) = (self.old + self.available, 0, 0);
        }
        if (self.spec.value, self.spec.replicas) != (spec.value, spec.replicas) {
            (self.complete, self.expired, self.moved_at) = (false, false, now);
        }
        self.spec = spec.clone();
        true
    }

    /// One pod comes, becomes available or goes; `false`: nothing can be done now.
    pub(super) fn step(&mut self, now: Duration, becomes_available: bool) -> bool {
        let wanted = self.spec.replicas;
        if self.updated < wanted && self.updated + self.old <= wanted {
            self.updated += 1;
        } else if self.available < self.updated && becomes_available && !self.lost {
            self.available += 1;
        } else if self.updated > wanted {
            self.updated -= 1;
            self.available = self.available.min(self.updated);
        } else if self.old > 0 && self.old + self.available > wanted {
            self.old -= 1;
        } else {
            self.expired |= !self.complete && now >= self.expires_at();
            return false;
        }
        (self.expired, self.moved_at) = (false, now);
        self.complete |= self.is_available();
        true
    }

    /// When it is told that it does not move any more; nothing if it was, or everything is there.
    pub(super) fn expires(&self) -> Option<Duration> {
        (!self.complete && !self.expired).then(|| self.expires_at())
    }

    fn expires_at(&self) -> Duration {
        self.moved_at + self.spec.deadline
    }

    /// Some pods go away; whether there were any.
    pub(super) fn lose(&mut self, count: u64) -> bool {
        let there = self.available > 0;
        (self.available, self.lost) = (self.available.saturating_sub(count), self.lost || there);
        there
    }

    /// They may come back.
    pub(super) const fn regain(&mut self) {
        self.lost = false;
    }

    /// All pods of what its controller saw last are there and available, and no others.
    pub(super) const fn is_available(&self) -> bool {
        self.updated == self.spec.replicas && self.available == self.updated && self.old == 0
    }

    /// The generation that the controller has seen.
    pub(super) const fn generation(&self) -> u64 {
        self.spec.generation
    }

    /// What it is made of.
    pub(super) const fn value(&self) -> u64 {
        self.spec.value
    }

    /// As the controller writes it.
    pub(super) fn status(&self) -> Value {
        let (all, serving) = (self.updated + self.old, self.available + self.old);
        let mut status =
            json!({"observedGeneration": self.spec.generation, "conditions": self.conditions(serving)});
        let counts = [
            ("replicas", all),
            ("updatedReplicas", self.updated),
            ("readyReplicas", serving),
            ("availableReplicas", serving),
            ("unavailableReplicas", all.saturating_sub(serving)),
        ];
        // The real one leaves out what is nothing.
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            if let Some(status) = status.as_object_mut() {
                status.insert(name.to_owned(), json!(count));
            }
        }
        status
    }

    fn conditions(&self, serving: u64) -> Value {
        let serves = serving >= self.spec.replicas;
        let (available, why) = if serves {
            ("True", "MinimumReplicasAvailable")
        } else {
            ("False", "MinimumReplicasUnavailable")
        };
        let (progressing, how) = match (self.complete, self.expired) {
            (true, _) => ("True", "NewReplicaSetAvailable"),
            (false, true) => ("False", "ProgressDeadlineExceeded"),
            (false, false) => ("True", "ReplicaSetUpdated"),
        };
        json!([
            {"type": "Available", "status": available, "reason": why},
            {"type": "Progressing", "status": progressing, "reason": how},
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn spec(generation: u64, value: u64, replicas: u64) -> Spec {
        Spec { uid: "u".to_owned(), generation, value, replicas, deadline: Duration::from_secs(10) }
    }

    fn to_its_end(rollout: &mut Rollout) -> usize {
        (0..50).take_while(|_| rollout.step(NOW, true)).count()
    }

    fn reason(rollout: &Rollout, place: usize) -> String {
        rollout.status()["conditions"][place]["reason"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_rollout_goes_pod_by_pod_and_keeps_serving() {
        let mut rollout = Rollout::new(spec(1, 1, 2), NOW);
        assert_eq!(rollout.status()["replicas"], Value::Null);
        assert_eq!((to_its_end(&mut rollout), rollout.is_available()), (4, true));
        assert!(rollout.see(&spec(2, 2, 2), NOW) && !rollout.see(&spec(2, 2, 2), NOW));
        assert!(!rollout.is_available());
        while rollout.step(NOW, true) {
            assert!(rollout.status()["availableReplicas"].as_u64().unwrap() >= 2);
            assert_eq!(reason(&rollout, 0), "MinimumReplicasAvailable");
        }
        let status = rollout.status();
        assert_eq!((rollout.is_available(), &status["observedGeneration"]), (true, &json!(2)));
        assert_eq!((&status["replicas"], &status["updatedReplicas"]), (&json!(2), &json!(2)));
        assert!(rollout.see(&spec(3, 2, 2), NOW) && rollout.is_available());
        assert_eq!(reason(&rollout, 1), "NewReplicaSetAvailable");
        rollout.see(&spec(4, 2, 1), NOW);
        assert_eq!((to_its_end(&mut rollout), rollout.is_available()), (1, true));
        rollout.see(&spec(5, 3, 3), NOW);
        to_its_end(&mut rollout);
        rollout.see(&spec(6, 4, 1), NOW);
        to_its_end(&mut rollout);
        assert!(rollout.is_available(), "{rollout:?}");
    }

    #[test]
    fn what_stands_still_expires_and_the_next_one_goes_on() {
        let mut rollout = Rollout::new(spec(1, 1, 1), NOW);
        assert!(rollout.step(NOW, false) && !rollout.step(NOW, false));
        assert_eq!(
            (rollout.expires(), reason(&rollout, 1).as_str()),
            (Some(Duration::from_secs(11)), "ReplicaSetUpdated")
        );
        assert!(!rollout.step(Duration::from_secs(11), false));
        assert_eq!((rollout.expires(), reason(&rollout, 1).as_str()), (None, "ProgressDeadlineExceeded"));
        rollout.see(&spec(2, 2, 1), NOW);
        to_its_end(&mut rollout);
        assert_eq!((rollout.is_available(), reason(&rollout, 1).as_str()), (true, "NewReplicaSetAvailable"));
    }

    #[test]
    fn pods_that_went_away_come_back_when_they_may() {
        let mut rollout = Rollout::new(spec(1, 1, 2), NOW);
        assert!(!rollout.lose(1));
        to_its_end(&mut rollout);
        assert!(rollout.lose(1) && !rollout.step(NOW, true) && !rollout.is_available());
        assert_eq!(reason(&rollout, 0), "MinimumReplicasUnavailable");
        assert_eq!((reason(&rollout, 1).as_str(), rollout.expires()), ("NewReplicaSetAvailable", None));
        rollout.regain();
        assert_eq!((to_its_end(&mut rollout), rollout.is_available()), (1, true));
    }
}
