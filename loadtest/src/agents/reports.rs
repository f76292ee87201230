//! What one simulated agent reports, and how soon it hears that it is durable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use events::desired::DesiredState;
use events::observation::{Observation, Observed};
use events::{InstanceId, ObjectIdentity, SourceId, Timestamp};
use parking_lot::Mutex;
use tunnel::wire::{Acknowledged, Batch};
use world::World;

/// One agent's reports, over all of its connections.
#[derive(Debug, Default)]
pub struct Reports(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// About which its reports are; none while it has none.
    source: Option<SourceId>,
    /// Under which it applies; 0 while it does not.
    epoch: u64,
    last: u64,
    /// Sequences that are not durable as far as is known, and when they were sent.
    sent: VecDeque<(u64, Instant)>,
}

impl Reports {
    /// It was told what it is to have, and who applies.
    pub fn told(&self, instance: InstanceId, desired: &DesiredState) {
        let mut state = self.0.lock();
        state.source = desired.sources.first().map(|source| source.head.source);
        let named = desired.applier.filter(|applier| applier.instance == instance);
        let epoch = named.map_or(0, |applier| applier.epoch);
        if state.epoch != epoch {
            *state = State { source: state.source, epoch, ..State::default() };
        }
    }

    /// A connection begins behind what is durable.
    pub fn resumes(&self, after: Acknowledged) {
        let mut state = self.0.lock();
        state.sent.clear();
        state.last = if after.epoch == state.epoch { after.sequence } else { 0 };
    }

    /// The next report; nothing while it does not apply.
    pub fn next(&self, world: &World) -> Option<Batch> {
        let mut state = self.0.lock();
        let source = state.source.filter(|_| state.epoch > 0)?;
        state.last += 1;
        let (epoch, first) = (state.epoch, state.last);
        state.sent.push_back((first, Instant::now()));
        let what = Observed::HealthChanged {
            source,
            sync: None,
            identity: ObjectIdentity {
                group: String::new(),
                version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                namespace: "default".to_owned(),
                name: format!("object-{first}"),
            },
            status: "healthy".to_owned(),
            optional: false,
            message: String::new(),
        };
        let at = Timestamp(world.clock.now_millis());
        Some(Batch { epoch, first, observations: vec![Observation { at, what }] })
    }

    /// Some are durable; how long each of them took.
    pub fn durable(&self, up_to: Acknowledged) -> Vec<Duration> {
        let mut state = self.0.lock();
        if up_to.epoch != state.epoch {
            return Vec::new();
        }
        let count = state.sent.iter().take_while(|(sequence, _)| *sequence <= up_to.sequence).count();
        state.sent.drain(..count).map(|(_, sent)| sent.elapsed()).collect()
    }
}
