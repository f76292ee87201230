//! The cluster's own controllers, as far as they roll Deployments out: a while after somebody wrote, pod by pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::NAMESPACE;
use super::rollout::{Rollout, Spec};
use super::truth::SharedTruth;
use crate::api_server::{ApiServer, Written};
use crate::executor::Executor;
use crate::faults::Kind as Fault;
use crate::people::never_available;

/// One Deployment.
struct Minded {
    /// What is wanted, which the controller may not have seen yet.
    spec: Spec,
    rollout: Option<Rollout>,
    /// The next look; those that were to be before it are not.
    look: u64,
}

#[derive(Default)]
struct State {
    minded: BTreeMap<String, Minded>,
    still_until: Duration,
    looks: u64,
}

/// All of them; cheap to clone.
#[derive(Clone)]
pub(super) struct Controllers {
    executor: Executor,
    truth: SharedTruth,
    state: Arc<Mutex<State>>,
}

impl Controllers {
    pub(super) fn new(executor: &Executor, truth: &SharedTruth) -> Self {
        Self { executor: executor.clone(), truth: Arc::clone(truth), state: Arc::default() }
    }

    /// They do nothing for a while.
    pub(super) fn stand_still(&self, time: Duration) {
        self.state.lock().still_until = self.executor.now() + time;
    }

    /// Nothing keeps them any more.
    pub(super) fn go_on(&self) {
        self.state.lock().still_until = Duration::ZERO;
    }

    /// The agent does not see for a while what becomes of Deployments.
    pub(super) fn sight_breaks(&self) {
        self.truth.lock().breaks(self.executor.now());
    }

    /// Somebody wrote a Deployment.
    pub(super) fn saw(&self, server: &ApiServer, written: &Written<'_>) {
        let (name, now) = (written.name, self.executor.now());
        let mut state = self.state.lock();
        let Some(spec) = written.after.and_then(Spec::of) else {
            state.minded.remove(name);
            self.truth.lock().note(name, now, None, false);
            return;
        };
        let minded = state.minded.entry(name.to_owned()).or_insert_with(|| Minded {
            spec: spec.clone(),
            rollout: None,
            look: 0,
        });
        if minded.rollout.is_some() && minded.spec == spec {
            return;
        }
        if minded.spec.uid != spec.uid {
            minded.rollout = None;
        }
        self.truth.lock().note(name, now, Some(spec.value), false);
        minded.spec = spec;
        let soon = self.executor.roll(|dice| dice.between(5, 400));
        self.look_in(&mut state, server, name, Duration::from_millis(soon));
    }

    /// Some pods of a Deployment go away for a while; whether one had any.
    pub(super) fn lose_pods(&self, server: &ApiServer, time: Duration) -> bool {
        let mut state = self.state.lock();
        let still = state.still_until > self.executor.now();
        let complete = state.minded.iter().filter(|(_, minded)| is_available(minded));
        let names: Vec<String> = complete.map(|(name, _)| name.clone()).collect();
        let chosen = self.executor.roll(|dice| dice.one_of(&names).cloned());
        let Some(name) = chosen.filter(|_| !still) else { return false };
        let count = self.executor.roll(|dice| dice.between(1, 3));
        let lost = state.minded.get_mut(&name).and_then(|minded| minded.rollout.as_mut());
        if !lost.is_some_and(|rollout| rollout.lose(count)) {
            return false;
        }
        drop(state);
        self.tell(server, &name);
        let (controllers, server) = (self.clone(), server.clone());
        self.executor.after(time, move || controllers.regain(&server, &name));
        true
    }

    fn regain(&self, server: &ApiServer, name: &str) {
        let mut state = self.state.lock();
        let rollout = state.minded.get_mut(name).and_then(|minded| minded.rollout.as_mut());
        rollout.into_iter().for_each(Rollout::regain);
        self.look_in(&mut state, server, name, Duration::ZERO);
    }

    fn look_in(&self, state: &mut State, server: &ApiServer, name: &str, time: Duration) {
        state.looks += 1;
        let number = state.looks;
        let Some(minded) = state.minded.get_mut(name) else { return };
        minded.look = number;
        let (controllers, server, name) = (self.clone(), server.clone(), name.to_owned());
        self.executor.after(time, move || controllers.look(&server, &name, number));
    }

    /// One step of one Deployment's controller.
    fn look(&self, server: &ApiServer, name: &str, number: u64) {
        let now = self.executor.now();
        let mut state = self.state.lock();
        let still_until = state.still_until;
        let Some(minded) = state.minded.get_mut(name).filter(|minded| minded.look == number) else { return };
        if now < still_until {
            let late = self.executor.roll(|dice| Duration::from_millis(dice.between(1, 300)));
            self.look_in(&mut state, server, name, still_until - now + late);
            drop(state);
            server.note_fired(Fault::ControllersStill);
            return;
        }
        let moved = match &mut minded.rollout {
            None => {
                minded.rollout = Some(Rollout::new(minded.spec.clone(), now));
                true
            }
            Some(rollout) => {
                rollout.see(&minded.spec, now) || rollout.step(now, !never_available(rollout.value()))
            }
        };
        let next = if moved {
            Some(Duration::from_millis(self.executor.roll(|dice| dice.between(20, 400))))
        } else {
            minded.rollout.as_ref().and_then(Rollout::expires).map(|at| at.saturating_sub(now))
        };
        if let Some(next) = next {
            self.look_in(&mut state, server, name, next);
        }
        drop(state);
        self.tell(server, name);
    }

    /// Says how a Deployment is doing; from this moment on it is true.
    fn tell(&self, server: &ApiServer, name: &str) {
        let told = {
            let state = self.state.lock();
            let minded = state.minded.get(name);
            minded.and_then(|minded| {
                Some((minded.rollout.as_ref()?.status(), minded.spec.value, is_available(minded)))
            })
        };
        let Some((status, value, available)) = told else { return };
        server.report(NAMESPACE, name, status);
        self.truth.lock().note(name, self.executor.now(), Some(value), available);
    }
}

fn is_available(minded: &Minded) -> bool {
    let rollout = minded.rollout.as_ref();
    rollout.is_some_and(|rollout| rollout.generation() == minded.spec.generation && rollout.is_available())
}
