//! Whose file is to be read when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use events::{AgentId, ProjectId};
use world::Random;

use super::Cause;
use super::read::Read;

/// First and longest pause when a file could not be read just now.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The folder of configuration files of a project, by Git's id: as long as it is the same, so are the files.
pub(super) type Folder = (ProjectId, String);

/// One entry for each agent with a live token. Times are the world's monotonic clock.
pub(super) struct Schedule {
    interval: Duration,
    entries: BTreeMap<AgentId, Entry>,
    /// Those that are not being read, by when they are due.
    queue: BTreeSet<(Duration, AgentId)>,
    /// The folders as they were seen last, and when.
    folders: BTreeMap<ProjectId, (String, Duration)>,
    /// The revision of the state that the agents are from, and when it was looked at.
    seen: Option<(u64, Duration)>,
}

/// A file that is to be read.
pub(super) struct Due {
    pub(super) agent: AgentId,
    /// The chain that made it so, if any did.
    pub(super) cause: Option<Cause>,
    /// What was read before may still come to the log, on this version.
    pub(super) unsettled: Option<u64>,
}

#[derive(Debug, Default)]
struct Entry {
    due: Duration,
    cause: Option<Cause>,
    unsettled: Option<u64>,
    reading: bool,
    /// There is a reason to read it, beside that it was not read for long.
    asked: bool,
    /// Asked for while it was being read.
    again: bool,
    /// The folder as it was when the file was read, if nothing but the file was looked at.
    read: Option<Folder>,
    /// Other projects that were read with it.
    others: BTreeSet<ProjectId>,
    /// Projects that got another commit while it was being read, in which chain: it may turn out to be one that is read.
    meanwhile: BTreeMap<ProjectId, Cause>,
    failures: u32,
}

impl Schedule {
    pub(super) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            entries: BTreeMap::new(),
            queue: BTreeSet::new(),
            folders: BTreeMap::new(),
            seen: None,
        }
    }

    /// Whether the agents of this revision are not known yet, or so long that tokens may have ended meanwhile.
    pub(super) fn needs(&mut self, revision: u64, now: Duration) -> bool {
        let known =
            self.seen.is_some_and(|(seen, at)| seen == revision && now.saturating_sub(at) < self.interval);
        if !known {
            self.seen = Some((revision, now));
        }
        !known
    }

    /// Which agents are this replica's may have changed.
    pub(super) const fn look_again(&mut self) {
        self.seen = None;
    }

    /// These are the agents now; new ones are due at once.
    pub(super) fn keep(&mut self, agents: &[AgentId], now: Duration) {
        self.entries.retain(|agent, _| agents.binary_search(agent).is_ok());
        for agent in agents {
            self.entries.entry(*agent).or_insert_with(|| {
                self.queue.insert((now, *agent));
                Entry { due: now, ..Entry::default() }
            });
        }
    }

    /// An agent that is due. Where somebody else's file was read lately and the folder is as it was, there is nothing to read.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<Due> {
        while let Some((due, agent)) = self.queue.first().copied().filter(|(due, _)| *due <= now) {
            self.queue.pop_first();
            // It may have left, and come back.
            let entry = self.entries.get_mut(&agent).filter(|entry| entry.due == due && !entry.reading);
            let Some(entry) = entry else { continue };
            let seen = entry.read.as_ref().and_then(|(project, read)| {
                let (folder, at) = self.folders.get(project)?;
                (folder == read).then_some(*at)
            });
            if !entry.asked && seen.is_some_and(|at| now.saturating_sub(at) < self.interval / 2) {
                entry.due = now + self.interval;
                self.queue.insert((entry.due, agent));
                continue;
            }
            (entry.reading, entry.asked) = (true, false);
            entry.meanwhile.clear();
            return Some(Due { agent, cause: entry.cause.clone(), unsettled: entry.unsettled });
        }
        None
    }

    pub(super) fn until_next(&self, now: Duration) -> Duration {
        let next = self.queue.first().map(|(due, _)| due.saturating_sub(now));
        next.unwrap_or(self.interval).min(self.interval)
    }

    /// A project has another commit: the agents that read files there are due at once, in that chain, unless the folder is as it was when
    /// they did.
    pub(super) fn advanced(
        &mut self,
        project: ProjectId,
        folder: Option<String>,
        reads_there: impl Fn(&AgentId) -> bool,
        cause: &Cause,
        now: Duration,
    ) {
        let folder = folder.map(|folder| (project, folder));
        for (agent, entry) in &mut self.entries {
            if !reads_there(agent) && !entry.others.contains(&project) {
                if entry.reading {
                    entry.meanwhile.insert(project, cause.clone());
                }
                continue;
            }
            let as_it_was = folder.is_some() && entry.read == folder && !entry.reading && !entry.asked;
            if !as_it_was {
                entry.cause = Some(cause.clone());
                ask(&mut self.queue, *agent, entry);
            }
        }
        match folder {
            Some((_, folder)) => self.folders.insert(project, (folder, now)),
            None => self.folders.remove(&project),
        };
    }

    pub(super) fn all_due(&mut self) {
        for (agent, entry) in &mut self.entries {
            ask(&mut self.queue, *agent, entry);
        }
    }

    pub(super) fn finished(&mut self, agent: AgentId, read: Read, now: Duration, random: &dyn Random) {
        let Some(entry) = self.entries.get_mut(&agent) else { return };
        entry.reading = false;
        let pause = match read {
            Read::Done { folder, others } => {
                entry.cause = entry.cause.take().filter(|_| entry.again);
                if let Some(cause) = others.iter().find_map(|project| entry.meanwhile.remove(project)) {
                    (entry.cause, entry.again) = (Some(cause), true);
                }
                entry.others = others;
                if let Some((project, folder)) = &folder {
                    self.folders.insert(*project, (folder.clone(), now));
                }
                (entry.read, entry.failures, entry.unsettled) = (folder, 0, None);
                self.interval
            }
            Read::NotNow => entry.tried_in_vain(),
            Read::Unsettled(version) => {
                entry.unsettled = Some(version);
                entry.tried_in_vain()
            }
        };
        entry.due = if std::mem::take(&mut entry.again) {
            entry.asked = true;
            Duration::ZERO
        } else {
            let spread = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 5;
            now + pause - Duration::from_millis(random.below(spread))
        };
        self.queue.insert((entry.due, agent));
    }
}

impl Entry {
    /// Gives the pause until the next try.
    fn tried_in_vain(&mut self) -> Duration {
        self.asked = true;
        let doubled =
            FIRST_BACKOFF.saturating_mul(1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        doubled.min(LONGEST_BACKOFF)
    }
}

/// Makes an agent due at once.
fn ask(queue: &mut BTreeSet<(Duration, AgentId)>, agent: AgentId, entry: &mut Entry) {
    entry.again = entry.reading;
    entry.asked = !entry.reading;
    if !entry.reading {
        queue.remove(&(entry.due, agent));
        entry.due = Duration::ZERO;
        queue.insert((entry.due, agent));
    }
}

#[cfg(test)]
mod tests {
    use events::CorrelationId;
    use events::id::derived_uuid;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Adds nothing to any pause.
    struct Still;

    impl Random for Still {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    fn agents() -> [AgentId; 2] {
        let mut agents = [b"one", b"two"].map(|name| AgentId(derived_uuid(&[name])));
        agents.sort();
        agents
    }

    fn project() -> ProjectId {
        ProjectId(derived_uuid(&[b"project"]))
    }

    fn cause() -> Cause {
        Cause { correlation_id: CorrelationId(derived_uuid(&[b"cause"])), traceparent: None }
    }

    fn due(schedule: &mut Schedule, now: Duration) -> Vec<AgentId> {
        std::iter::from_fn(|| schedule.take_due(now)).map(|due| due.agent).collect()
    }

    fn done(schedule: &mut Schedule, agent: AgentId, folder: Option<&str>, now: Duration) {
        let folder = folder.map(|folder| (project(), folder.to_owned()));
        schedule.finished(agent, Read::Done { folder, others: BTreeSet::new() }, now, &Still);
    }

    fn other_project() -> ProjectId {
        ProjectId(derived_uuid(&[b"other project"]))
    }

    /// An agent has read its file, and files of another project.
    fn done_with_other(schedule: &mut Schedule, agent: AgentId, now: Duration) {
        let others = BTreeSet::from([other_project()]);
        schedule.finished(agent, Read::Done { folder: None, others }, now, &Still);
    }

    fn advance_other(schedule: &mut Schedule, now: Duration) {
        schedule.advanced(other_project(), Some("a".to_owned()), |_| false, &cause(), now);
    }

    /// Both agents have read their files of one folder.
    fn read() -> Schedule {
        let [one, other] = agents();
        let mut schedule = Schedule::new(MINUTE);
        schedule.keep(&[one, other], Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [one, other]);
        done(&mut schedule, one, Some("a"), Duration::ZERO);
        done(&mut schedule, other, Some("a"), Duration::ZERO);
        schedule
    }

    fn advance(schedule: &mut Schedule, folder: Option<&str>, now: Duration) {
        schedule.advanced(project(), folder.map(str::to_owned), |_| true, &cause(), now);
    }

    #[test]
    fn of_a_folder_that_is_as_it_was_one_file_is_read_now_and_then() {
        let [one, other] = agents();
        let mut schedule = read();
        assert_eq!(due(&mut schedule, MINUTE / 2), []);
        assert_eq!(schedule.take_due(MINUTE).map(|due| due.agent), Some(one), "nobody looked lately");
        done(&mut schedule, one, Some("a"), MINUTE);
        assert_eq!(due(&mut schedule, MINUTE), [], "the other one need not");
        assert_eq!(schedule.take_due(MINUTE * 2).map(|due| due.agent), Some(one));
        done(&mut schedule, one, Some("b"), MINUTE * 2);
        assert_eq!(due(&mut schedule, MINUTE * 2), [other], "it is another folder now");
    }

    #[test]
    fn a_commit_is_a_reason_unless_the_folder_is_as_it_was() {
        let all = agents();
        let mut schedule = read();
        advance(&mut schedule, Some("a"), MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), []);
        advance(&mut schedule, Some("b"), MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), all);
        // While one is read there is another commit, which goes back to what the other one has read.
        done(&mut schedule, all[1], Some("b"), MINUTE / 4);
        advance(&mut schedule, Some("b"), MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), []);
        done(&mut schedule, all[0], Some("a"), MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), [all[0]], "it may have read what was there before");
        done(&mut schedule, all[0], Some("b"), MINUTE / 4);
        advance(&mut schedule, None, MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), all, "nobody knows");
    }

    #[test]
    fn a_chain_ends_when_what_it_asked_for_is_read() {
        let [one, other] = agents();
        let mut schedule = read();
        advance(&mut schedule, Some("b"), Duration::ZERO);
        let in_chain = |due: Due| (due.agent, due.cause.is_some());
        assert_eq!(schedule.take_due(Duration::ZERO).map(in_chain), Some((one, true)));
        schedule.finished(one, Read::NotNow, Duration::ZERO, &Still);
        assert_eq!(schedule.take_due(Duration::ZERO).map(in_chain), Some((other, true)));
        advance(&mut schedule, Some("c"), Duration::ZERO);
        done(&mut schedule, other, Some("b"), Duration::ZERO);
        for _ in 0..2 {
            let (agent, in_chain) = schedule.take_due(FIRST_BACKOFF).map(in_chain).unwrap();
            assert!(in_chain);
            done(&mut schedule, agent, Some("c"), Duration::ZERO);
        }
        schedule.all_due();
        assert_eq!(schedule.take_due(FIRST_BACKOFF).map(in_chain), Some((one, false)));
    }

    #[test]
    fn who_looks_at_more_than_the_file_reads_each_time() {
        let [one, other] = agents();
        let mut schedule = read();
        schedule.all_due();
        assert_eq!(due(&mut schedule, Duration::ZERO), [one, other]);
        done(&mut schedule, one, None, Duration::ZERO);
        done(&mut schedule, other, Some("a"), Duration::ZERO);
        advance(&mut schedule, Some("a"), Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [one]);
    }

    #[test]
    fn a_commit_of_another_project_is_a_reason_for_those_that_read_files_there() {
        let [one, other] = agents();
        let mut schedule = read();
        advance_other(&mut schedule, Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [], "nobody reads there");
        schedule.all_due();
        assert_eq!(due(&mut schedule, Duration::ZERO), [one, other]);
        done_with_other(&mut schedule, one, Duration::ZERO);
        done(&mut schedule, other, Some("a"), Duration::ZERO);
        for _ in 0..2 {
            advance_other(&mut schedule, Duration::ZERO);
            let again = schedule.take_due(Duration::ZERO).map(|due| (due.agent, due.cause.is_some()));
            assert_eq!(again, Some((one, true)), "also where the folder is as it was");
            assert_eq!(due(&mut schedule, Duration::ZERO), []);
            done_with_other(&mut schedule, one, Duration::ZERO);
        }
        // It could not be read: it is still known where it was read before.
        advance_other(&mut schedule, Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [one]);
        schedule.finished(one, Read::NotNow, Duration::ZERO, &Still);
        assert_eq!(due(&mut schedule, Duration::ZERO), []);
        advance_other(&mut schedule, Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [one]);
        done(&mut schedule, one, Some("a"), Duration::ZERO);
        advance_other(&mut schedule, Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), [], "it is read no more");
    }

    #[test]
    fn a_commit_of_a_project_that_turns_out_to_be_read_is_not_missed() {
        let [one, other] = agents();
        let mut schedule = read();
        schedule.all_due();
        assert_eq!(due(&mut schedule, Duration::ZERO), [one, other]);
        advance_other(&mut schedule, Duration::ZERO);
        done_with_other(&mut schedule, one, Duration::ZERO);
        done(&mut schedule, other, Some("a"), Duration::ZERO);
        let again = schedule.take_due(Duration::ZERO).map(|due| (due.agent, due.cause.is_some()));
        assert_eq!(again, Some((one, true)), "it may have read what was there before");
        done_with_other(&mut schedule, one, Duration::ZERO);
        assert_eq!(due(&mut schedule, Duration::ZERO), []);
    }

    #[test]
    fn the_agents_are_asked_for_after_a_change_and_now_and_then() {
        let mut schedule = read();
        assert!(schedule.needs(1, Duration::ZERO) && !schedule.needs(1, MINUTE / 2));
        assert!(schedule.needs(2, MINUTE / 2) && !schedule.needs(2, MINUTE) && schedule.needs(2, MINUTE * 2));
        schedule.look_again();
        assert!(schedule.needs(2, MINUTE * 2));
    }

    #[test]
    fn what_is_unsettled_is_read_again_soon_and_known_to_be_until_it_is_settled() {
        let [one, other] = agents();
        let mut schedule = read();
        schedule.all_due();
        assert_eq!(due(&mut schedule, Duration::ZERO), [one, other]);
        schedule.finished(one, Read::Unsettled(7), Duration::ZERO, &Still);
        done(&mut schedule, other, Some("a"), Duration::ZERO);
        for read in [Read::NotNow, Read::Done { folder: None, others: BTreeSet::new() }] {
            let again = schedule.take_due(MINUTE).unwrap();
            assert_eq!((again.agent, again.unsettled), (one, Some(7)));
            schedule.finished(one, read, Duration::ZERO, &Still);
        }
        assert_eq!(schedule.take_due(MINUTE).unwrap().unsettled, None);
    }

    #[test]
    fn one_that_left_and_came_back_is_due_once() {
        let [one, other] = agents();
        let mut schedule = read();
        schedule.keep(&[other], Duration::ZERO);
        schedule.keep(&[one, other], MINUTE / 4);
        assert_eq!(due(&mut schedule, MINUTE / 4), [one]);
        schedule.finished(one, Read::NotNow, MINUTE / 4, &Still);
        assert_eq!(due(&mut schedule, MINUTE / 4 + FIRST_BACKOFF), [one], "it is tried again soon");
    }
}
