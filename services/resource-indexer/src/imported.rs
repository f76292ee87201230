//! Health rules that users bring along from Argo CD, written in Lua: each is asked in a process of its own kind, which is killed when a rule takes
//! too long. What a rule does there harms nobody else.

mod child;
mod sandbox;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use events::requests::index::HealthState;
use events::{Sha256, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use world::World;
use world::clock::Clock;

use crate::model::Verdict;
use child::Question;
pub use child::judge_imported;
use sandbox::{Answer, Said};

/// The command of this program that [`judge_imported`] stands behind.
pub const COMMAND: &str = "judge-imported";
/// How long one rule may take for one object.
const TIME: Duration = Duration::from_secs(1);
/// How long the process may take to start.
const START: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
const ANSWER: u64 = 64 << 10;
/// After how many times in which a rule had to be stopped it is not asked for a while.
const STRIKES: u32 = 3;
/// For how long it is not asked then; and after what time an object is judged again whose rule was stopped.
const REST_MS: i64 = 600_000;
/// Rules of which it is remembered that they had to be stopped.
const REMEMBERED: usize = 10_000;
/// After what time an object is judged again whose rule asked for the time.
const SOON_MS: i64 = 60_000;

/// Objects for which imported rules are asked for one question about the past.
const QUESTION_OBJECTS: usize = 1_000;
/// How long they may take for one question.
const QUESTION_TIME: Duration = Duration::from_secs(5);

/// Asks imported rules.
pub struct Imported {
    program: PathBuf,
    clock: Arc<dyn Clock>,
    running: Mutex<Option<Running>>,
    struck: Mutex<BTreeMap<Sha256, Struck>>,
}

/// How often a rule had to be stopped, and since when.
#[derive(Debug, Clone, Copy)]
struct Struck {
    times: u32,
    since: Timestamp,
}

/// Asks for one question about the past.
pub(crate) struct ForOneQuestion<'a> {
    imported: &'a Imported,
    left: Cell<usize>,
    until: Duration,
}

impl ForOneQuestion<'_> {
    /// The verdict of a rule on an object as of `at`.
    pub(crate) fn judge(&self, script: &str, object: &Value, at: Timestamp) -> Verdict {
        let left = self.left.get();
        if left == 0 || self.imported.clock.monotonic() >= self.until {
            let message = format!(
                "for one question, imported rules are asked for {QUESTION_OBJECTS} objects and {} s at most",
                QUESTION_TIME.as_secs()
            );
            return unknown(&message);
        }
        self.left.set(left.saturating_sub(1));
        self.imported.judge(script, object, at)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("the imported rule took longer than {} s and was stopped", TIME.as_secs())]
    TooLong,
    #[error("the process of the imported rule ended")]
    Ended,
    #[error("the imported rule cannot be asked: the process for it cannot be started: {0}")]
    Start(io::Error),
    #[error("the imported rule cannot be asked: {0}")]
    Broken(String),
}

impl Imported {
    /// Asks in processes of this program.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            clock: Arc::clone(&world.clock),
            running: Mutex::default(),
            struck: Mutex::default(),
        }
    }

    /// Asks for one question about the past, as far as one may go.
    pub(crate) fn for_one_question(&self) -> ForOneQuestion<'_> {
        let until = self.clock.monotonic().saturating_add(QUESTION_TIME);
        ForOneQuestion { imported: self, left: Cell::new(QUESTION_OBJECTS), until }
    }

    /// The verdict of a rule on an object as of `at`.
    #[must_use]
    pub fn judge(&self, script: &str, object: &Value, at: Timestamp) -> Verdict {
        let now = Timestamp(self.clock.now_millis());
        let digest = Sha256::of(script.as_bytes());
        if self.rests(digest, now) {
            let message =
                format!("the imported rule had to be stopped {STRIKES} times, and rests for a while");
            return again(unknown(&message), at, REST_MS);
        }
        let Answer { said, asked_time } = match self.ask(script, object, at) {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, AskError::TooLong | AskError::Ended) {
                    self.strike(digest, now);
                }
                return again(unknown(&error.to_string()), at, REST_MS);
            }
        };
        if said == Said::OutOfMemory {
            self.strike(digest, now);
        }
        let verdict = verdict_of(said);
        if asked_time { again(verdict, at, SOON_MS) } else { verdict }
    }

    fn ask(&self, script: &str, object: &Value, at: Timestamp) -> Result<Answer, AskError> {
        let question = Question {
            script: script.into(),
            object: std::borrow::Cow::Borrowed(object),
            now: at.0.div_euclid(1_000),
        };
        let mut line = serde_json::to_vec(&question).map_err(|error| AskError::Broken(error.to_string()))?;
        line.push(b'\n');
        if u64::try_from(line.len()).is_ok_and(|length| length > child::QUESTION) {
            return Err(AskError::Broken("the object is too large".to_owned()));
        }
        let mut place = self.running.lock();
        let mut running = match place.take() {
            Some(running) => running,
            None => Running::start(&self.program).map_err(AskError::Start)?,
        };
        // One that gave no answer is not asked again: dropping it ends it.
        let answer = running.ask(line)?;
        *place = Some(running);
        Ok(answer)
    }

    fn rests(&self, rule: Sha256, now: Timestamp) -> bool {
        let mut struck = self.struck.lock();
        match struck.get(&rule) {
            Some(Struck { since, .. }) if now >= since.plus_millis(REST_MS) => {
                struck.remove(&rule);
                false
            }
            Some(Struck { times, .. }) => *times >= STRIKES,
            None => false,
        }
    }

    fn strike(&self, rule: Sha256, now: Timestamp) {
        let mut struck = self.struck.lock();
        if struck.len() >= REMEMBERED {
            struck.retain(|_, struck| now < struck.since.plus_millis(REST_MS));
        }
        if struck.len() < REMEMBERED {
            let struck = struck.entry(rule).or_insert(Struck { times: 0, since: now });
            *struck = Struck { times: struck.times.saturating_add(1), since: now };
        }
    }
}

fn unknown(message: &str) -> Verdict {
    Verdict::imported(HealthState::Unknown, message)
}

fn again(verdict: Verdict, at: Timestamp, after_ms: i64) -> Verdict {
    Verdict { recheck_at: Some(at.plus_millis(after_ms)).into(), ..verdict }
}

fn verdict_of(said: Said) -> Verdict {
    match said {
        Said::Nothing => Verdict::imported(HealthState::None, ""),
        Said::Health { status, message } => {
            let state = match status.as_str() {
                "Healthy" => HealthState::Healthy,
                "Suspended" => HealthState::Suspended,
                "Progressing" => HealthState::Progressing,
                "Missing" => HealthState::Missing,
                "Degraded" => HealthState::Degraded,
                "Unknown" => HealthState::Unknown,
                _ => {
                    return unknown(&format!("the imported rule gave no valid health status: '{status}'"));
                }
            };
            Verdict::imported(state, &message)
        }
        Said::Failed(why) => unknown(&format!("the imported rule failed: {why}")),
        Said::OutOfMemory => {
            unknown(&format!("the imported rule needed more than {} MiB", sandbox::MEMORY >> 20))
        }
    }
}

/// A process that answers.
struct Running {
    child: Child,
    questions: Sender<Vec<u8>>,
    answers: Receiver<io::Result<Answer>>,
}

impl Running {
    fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env_clear().env("TZ", "UTC").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (questions, asked) = channel();
        let (answered, answers) = channel();
        // Ends with the process, or once nobody asks any more.
        std::thread::Builder::new()
            .name("imported-rules".to_owned())
            .spawn(move || pass_on((input, output), &asked, &answered))?;
        let running = Self { child, questions, answers };
        match running.answers.recv_timeout(START) {
            Ok(Ok(_)) => Ok(running),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("it did not begin in time")),
        }
    }

    fn ask(&mut self, question: Vec<u8>) -> Result<Answer, AskError> {
        self.questions.send(question).map_err(|_| AskError::Ended)?;
        match self.answers.recv_timeout(TIME) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(AskError::Ended),
            Err(RecvTimeoutError::Timeout) => Err(AskError::TooLong),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither can fail for a child of one's own that was not waited for.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Hands questions to a process and its answers back; the first answer says that it has begun.
fn pass_on(
    (mut input, output): (ChildStdin, ChildStdout),
    questions: &Receiver<Vec<u8>>,
    answers: &Sender<io::Result<Answer>>,
) {
    let mut output = BufReader::new(output);
    let mut answer = || -> io::Result<Answer> {
        let mut line = String::new();
        output.by_ref().take(ANSWER).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    let begun = answer();
    if answers.send(begun).is_err() {
        return;
    }
    for question in questions {
        let answer = input.write_all(&question).and_then(|()| answer());
        let is_last = answer.is_err();
        if answers.send(answer).is_err() || is_last {
            return;
        }
    }
}
