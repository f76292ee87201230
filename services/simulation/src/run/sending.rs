//! That events are exported and sent: all of them in the end, and at once while nothing goes wrong but with another receiver.

use std::time::Duration;

use super::{Run, SETTLED, STAYS};
use crate::exports::Exported;
use crate::receivers::{PROMPT, RECEIVERS};

/// While a receiver of webhooks is in trouble, something happens so often.
const DISTURBED_EVERY: Duration = Duration::from_secs(300);
/// Everything is at a receiver this long after its subscription was told to go on: two events may be refused six times before that, with
/// pauses of a minute in all.
const RESUMED: Duration = Duration::from_secs(300);
/// The same where nobody told it: the longest pause between two attempts comes before that.
const TRIED_AGAIN: Duration = Duration::from_secs(3_600 + 300);

impl Run {
    /// From now on nothing goes wrong but with one receiver of webhooks: what is said to the others is said at once.
    pub(super) fn sends_at_once(&mut self) -> Result<(), String> {
        let began = self.scene.executor.now();
        let sent = self.until("what was to be sent is", SETTLED, |run| Ok(run.unsent(began).is_none()));
        sent.map_err(|error| format!("{error}: {}", self.unsent(began).unwrap_or_default()))?;
        self.sent_at_once = Some(self.scene.executor.now());
        Ok(())
    }

    /// What is not exported or not sent to the receiver that takes everything, of what was stored until then.
    fn unsent(&self, until: Duration) -> Option<String> {
        self.scene.log.audit(|audit| {
            let exports = audit.exports();
            let missing = exports.missing(until);
            missing.or_else(|| self.scene.receivers.prompt_one_lacks(exports.all(), until))
        })
    }

    /// What is late, since it has to be sent at once.
    pub(super) fn late(&self) -> Option<String> {
        self.sent_at_once?;
        let until = self.scene.executor.now().saturating_sub(PROMPT);
        self.unsent(until).map(|unsent| format!("{unsent} within {PROMPT:?}"))
    }

    /// The rest of the time for which a receiver is in trouble, in which something happens now and then; then it gets everything.
    pub(super) fn outlast(&mut self) -> Result<(), String> {
        let end = self.scene.executor.now() + self.setting.outage;
        while self.scene.executor.now() < end {
            self.time_passes(DISTURBED_EVERY)?;
            let person = self.person.clone();
            self.until_done("something happens", async move { person.disturb().await })?;
        }
        self.scene.receivers.heal();
        let healed = self.scene.executor.now();
        // Whoever was in trouble for long is tried again by itself, in the end; else nobody waits for that.
        let limit = if self.setting.outage.is_zero() {
            let person = self.person.clone();
            self.until_done("subscriptions go on", async move { person.resume_subscriptions().await })?;
            RESUMED
        } else {
            TRIED_AGAIN
        };
        loop {
            let person = self.person.clone();
            self.until_done("dead letters are listed", async move { person.list_dead_letters().await })?;
            let Some(lacking) = self.lacking(healed) else { return Ok(()) };
            if self.scene.executor.now() > healed + limit {
                return Err(format!("not within {limit:?} once it is well again: {lacking}"));
            }
            self.time_passes(STAYS)?;
        }
    }

    /// What a receiver was to get and has not got, of what was exported until then.
    fn lacking(&self, until: Duration) -> Option<String> {
        let receivers = &self.scene.receivers;
        let lacks = |exports: &[Exported]| {
            (0..RECEIVERS.len()).find_map(|number| receivers.lacks(number, exports, until))
        };
        self.scene.log.audit(|audit| lacks(audit.exports().all()))
    }

    fn time_passes(&mut self, time: Duration) -> Result<(), String> {
        let end = self.scene.executor.now() + time;
        self.until("time passes", time * 2, |run| {
            run.faults.restart(&mut run.scene);
            Ok(run.scene.executor.now() >= end)
        })
    }
}
