//! Asks imported rules for the objects that wait for them, beside folding: a rule may be slow, and folding does not wait for it.

use std::sync::Arc;

use bytes::Bytes;
use events::AgentId;
use serde_json::Value;
use world::spawn::blocking;

use super::{Driver, UPKEEP};
use crate::model::{Slot, Text, Verdict};

/// Objects that are asked for in one go.
const AT_ONCE: usize = 100;

/// An object that waits for its imported rule.
struct Asked {
    slot: Slot,
    agent: AgentId,
    uid: Text,
    /// Which of its changes is judged.
    number: u64,
    script: Arc<str>,
    body: Option<Bytes>,
}

impl Driver {
    /// Asks until shutdown.
    pub(super) async fn follow_imported(
        self: &Arc<Self>,
        shutdown: &chassis::Shutdown,
    ) -> anyhow::Result<()> {
        let mut caught_up = self.caught_up.subscribe();
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            _ = caught_up.wait_for(|caught_up| *caught_up) => {}
        }
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = self.asking.notified() => {}
                () = self.deps.world.clock.sleep(UPKEEP) => {}
            }
            let driver = Arc::clone(self);
            let asking = blocking(&*self.deps.world.spawner, "imported-rules", move || driver.ask_imported());
            tokio::select! {
                biased;
                // What is asked by then ends by itself, within the time that one rule may take.
                () = shutdown.requested() => return Ok(()),
                asked = asking => asked?,
            }
        }
    }

    /// Asks for some; more are asked for at once.
    fn ask_imported(&self) {
        let some = self.some_asking();
        let is_all = some.len() < AT_ONCE;
        for asked in some {
            let verdict = self.verdict_of_imported(&asked);
            self.judged_by_imported(&asked, verdict);
        }
        if !is_all {
            self.asking.notify_one();
        }
    }

    /// Some that wait, of each cluster in turn: rules of one that take long do not keep others waiting for more than their turns.
    fn some_asking(&self) -> Vec<Asked> {
        let state = self.state.read();
        let (index, reader) = (&state.fold.index, &state.reader);
        let slots = index.asking(AT_ONCE).into_iter();
        let asked = slots.filter_map(|slot| {
            let record = index.get(slot)?;
            let body = reader.body(record.agent, &record.uid);
            Some(Asked {
                slot,
                agent: record.agent,
                uid: record.uid.clone(),
                number: record.changes(),
                script: Arc::clone(index.imported_rule(record.agent, &record.kind)?),
                body: body.inspect_err(|error| self.suspect(error)).ok().flatten(),
            })
        });
        asked.collect()
    }

    fn verdict_of_imported(&self, asked: &Asked) -> Verdict {
        let body: Option<Value> = asked.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
        body.map_or_else(
            || Verdict::unknown("its body is not known"),
            |body| self.imported.judge(&asked.script, &body, self.now()),
        )
    }

    /// Unless the object changed meanwhile, or another rule is to judge it.
    fn judged_by_imported(&self, asked: &Asked, verdict: Verdict) {
        let mut state = self.state.write();
        let index = &mut state.fold.index;
        let waits = index.get(asked.slot).is_some_and(|record| {
            let is_it =
                record.agent == asked.agent && record.uid == asked.uid && record.changes() == asked.number;
            let script = index.imported_rule(record.agent, &record.kind);
            is_it && record.own.asks && script.is_some_and(|script| Arc::ptr_eq(script, &asked.script))
        });
        if waits {
            index.judge(asked.slot, verdict);
            self.judge_workloads(&mut state, vec![asked.slot]);
        }
    }
}
