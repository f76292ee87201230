//! The process in which imported rules run: it can do nothing but read questions and write answers, and the index may kill it.

use std::io::{self, BufRead, Read as _, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sandbox::{self, Answer, Said};

/// Longest question, in bytes: an object and a rule.
pub(super) const QUESTION: u64 = 16 << 20;
/// Memory of the whole process, in bytes: beyond what a rule may use, for the object on its way.
const PROCESS_MEMORY: u64 = 512 << 20;
/// Seconds of a processor that one question may take, should its parent be gone and not end the process.
const PROCESSOR: u64 = 5;

/// Which rule is to judge which object, and when.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question<'a> {
    pub(super) script: std::borrow::Cow<'a, str>,
    pub(super) object: std::borrow::Cow<'a, Value>,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Answers questions from the standard input until it ends.
///
/// # Errors
/// When the limits cannot be set, a question cannot be read, or an answer cannot be written.
pub fn judge_imported() -> io::Result<()> {
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Data, PROCESS_MEMORY)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    // The parent waits for this.
    tell(&mut output, &Answer { said: Said::Nothing, asked_time: false })?;
    loop {
        line.clear();
        if input.by_ref().take(QUESTION).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let question: Question<'_> = serde_json::from_str(&line)?;
        limit(Resource::Cpu, processor_used().saturating_add(PROCESSOR))?;
        tell(&mut output, &sandbox::judge(&question.script, &question.object, question.now))?;
    }
}

fn tell(output: &mut impl Write, answer: &Answer) -> io::Result<()> {
    serde_json::to_writer(&mut *output, answer)?;
    output.write_all(b"\n")?;
    output.flush()
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum })?)
}

/// Whole seconds of a processor that this process has used.
fn processor_used() -> u64 {
    u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0)
}
