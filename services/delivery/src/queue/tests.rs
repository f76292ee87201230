use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const NOW: Duration = Duration::from_secs(1);
const PLACES: usize = 2;

/// Gives the largest number that it may.
struct Largest;

impl Random for Largest {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn below(&self, bound: u64) -> u64 {
        bound.saturating_sub(1)
    }
}

fn source(number: u128) -> SourceId {
    SourceId(Uuid::from_u128(number))
}

fn agent(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

/// Sources by number, of the agent and in the partition given by its tens and hundreds.
fn queue(sources: &[u128]) -> Queue {
    let mut queue = Queue::new(PLACES);
    for number in sources {
        touch(&mut queue, *number, NOW);
    }
    queue
}

fn touch(queue: &mut Queue, number: u128, now: Duration) {
    let partition = u16::try_from(number / 100).unwrap();
    queue.touch(source(number), agent(number / 10), partition, now);
}

fn take(queue: &mut Queue, now: Duration) -> Vec<u128> {
    std::iter::from_fn(|| queue.take(now)).map(|due| due.source.0.as_u128()).collect()
}

fn finish(queue: &mut Queue, number: u128, ended: Ended, now: Duration) {
    queue.finished(source(number), ended, now, &Largest);
}

#[test]
fn sources_of_one_agent_are_handled_one_after_the_other() {
    let mut queue = queue(&[11, 12, 21]);
    assert_eq!(take(&mut queue, NOW), [11, 21]);
    finish(&mut queue, 11, Ended::Settled, NOW);
    assert_eq!(take(&mut queue, NOW), [12]);
    finish(&mut queue, 12, Ended::Settled, NOW);
    finish(&mut queue, 21, Ended::Settled, NOW);
    assert!(queue.is_empty() && queue.agents.is_empty(), "nothing is kept of what is done");
    assert_eq!(queue.until_next(NOW), None);
}

#[test]
fn a_source_that_fails_waits_for_itself_alone() {
    let mut queue = queue(&[11, 12]);
    let mut now = NOW;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        assert_eq!(queue.take(now).unwrap().source, source(11));
        finish(&mut queue, 11, Ended::Failed, now);
        assert_eq!(take(&mut queue, now), [12], "of the same agent");
        // What is new about a source does not make it due before its pause has passed.
        touch(&mut queue, 11, now);
        finish(&mut queue, 12, Ended::Settled, now);
        assert_eq!(take(&mut queue, now), []);
        let pause = queue.until_next(now).unwrap();
        pauses.push(pause.as_millis());
        now += pause;
        touch(&mut queue, 12, now);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000]);
    assert_eq!(queue.take(now).unwrap().source, source(11));
    finish(&mut queue, 11, Ended::Settled, now);
    touch(&mut queue, 11, now);
    assert_eq!(take(&mut queue, now), [12], "it was touched before");
    finish(&mut queue, 12, Ended::Settled, now);
    assert_eq!(take(&mut queue, now), [11]);
    finish(&mut queue, 11, Ended::Failed, now);
    assert_eq!(queue.until_next(now), Some(BACKOFF.first), "a success ends the pauses");
}

#[test]
fn what_hangs_in_one_partition_takes_no_place_of_another() {
    let mut queue = queue(&[110, 120, 130, 140, 210]);
    assert_eq!(take(&mut queue, NOW), [110, 120, 210], "two places in each");
    assert_eq!(queue.until_next(NOW), None, "those that wait have no place");
    finish(&mut queue, 210, Ended::Settled, NOW);
    touch(&mut queue, 220, NOW);
    assert_eq!(take(&mut queue, NOW), [220]);
    finish(&mut queue, 120, Ended::Failed, NOW);
    assert_eq!(take(&mut queue, NOW), [130]);
}

#[test]
fn what_is_touched_while_it_is_handled_is_handled_again() {
    let mut queue = queue(&[11]);
    assert_eq!(take(&mut queue, NOW), [11]);
    touch(&mut queue, 11, NOW);
    assert_eq!(take(&mut queue, NOW), [], "not beside itself");
    finish(&mut queue, 11, Ended::Settled, NOW);
    assert_eq!(take(&mut queue, NOW), [11]);
    finish(&mut queue, 11, Ended::Settled, NOW);
    assert!(queue.is_empty());
}

#[test]
fn a_source_that_is_stuck_waits_until_something_about_it_changes() {
    let mut queue = queue(&[11]);
    assert_eq!(take(&mut queue, NOW), [11]);
    finish(&mut queue, 11, Ended::Stuck, NOW);
    assert_eq!(queue.until_next(NOW), Some(STUCK));
    touch(&mut queue, 11, NOW);
    assert_eq!(take(&mut queue, NOW), [11]);
    touch(&mut queue, 11, NOW);
    finish(&mut queue, 11, Ended::Stuck, NOW);
    assert_eq!(take(&mut queue, NOW), [11], "it changed while it was handled");
    finish(&mut queue, 11, Ended::Stuck, NOW);
    assert_eq!(take(&mut queue, NOW + STUCK), [11], "and now and then");
}

#[test]
fn a_source_is_postponed_once_behind_those_that_come_next() {
    let mut queue = queue(&[11, 12, 13]);
    let due = queue.take(NOW).unwrap();
    assert_eq!((due.source, due.coming), (source(11), vec![source(12), source(13)]));
    finish(&mut queue, 11, Ended::Postponed, NOW);
    let due = queue.take(NOW).unwrap();
    assert_eq!(
        (due.source, due.coming),
        (source(12), vec![source(13)]),
        "one that was postponed does not come next"
    );
    finish(&mut queue, 12, Ended::Failed, NOW);
    assert_eq!(queue.take(NOW).unwrap().source, source(13));
    finish(&mut queue, 13, Ended::Settled, NOW);
    touch(&mut queue, 13, NOW);
    let due = queue.take(NOW).unwrap();
    assert_eq!((due.source, due.coming), (source(11), vec![]), "it is postponed for nobody any more");
}

#[derive(Debug, Clone)]
enum Step {
    Touch(u128),
    Take,
    Finish(usize, Ended),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ended = prop::sample::select(vec![Ended::Settled, Ended::Postponed, Ended::Failed, Ended::Stuck]);
    let step = prop_oneof![
        (100..140_u128).prop_map(Step::Touch),
        (200..220_u128).prop_map(Step::Touch),
        Just(Step::Take),
        (0..8_usize, ended).prop_map(|(which, ended)| Step::Finish(which, ended)),
        (0..3_000_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn whatever_happens_all_are_handled_and_never_too_many_at_once(steps in steps()) {
        let (mut queue, mut now) = (Queue::new(PLACES), NOW);
        let (mut handled, mut owed) = (Vec::new(), BTreeSet::new());
        let taken = |queue: &mut Queue, handled: &mut Vec<u128>, owed: &mut BTreeSet<u128>, now| {
            let Some(due) = queue.take(now) else { return false };
            let number = due.source.0.as_u128();
            assert!(handled.iter().all(|other| other / 10 != number / 10), "two of one agent");
            handled.push(number);
            assert!(handled.iter().filter(|other| *other / 100 == number / 100).count() <= PLACES);
            assert!(owed.remove(&number), "nobody asked");
            true
        };
        for step in steps {
            match step {
                Step::Touch(number) => {
                    touch(&mut queue, number, now);
                    owed.insert(number);
                }
                Step::Take => {
                    taken(&mut queue, &mut handled, &mut owed, now);
                }
                Step::Finish(which, ended) if which < handled.len() => {
                    let number = handled.remove(which);
                    if ended != Ended::Settled {
                        owed.insert(number);
                    }
                    finish(&mut queue, number, ended, now);
                }
                Step::Finish(..) => {}
                Step::Pass(millis) => now += Duration::from_millis(millis),
            }
        }
        loop {
            for number in std::mem::take(&mut handled) {
                finish(&mut queue, number, Ended::Settled, now);
            }
            if taken(&mut queue, &mut handled, &mut owed, now) {
                continue;
            }
            let Some(pause) = queue.until_next(now) else { break };
            now += pause.max(Duration::from_millis(1));
        }
        prop_assert!(owed.is_empty() && queue.is_empty() && queue.agents.is_empty());
    }
}
