//! What happens, as it happens: the event log as Kasbah's own command line prints it, without what only machines read.

use std::io::{BufRead, BufReader, IsTerminal};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use super::kasbah::Kasbah;

/// Events that say nothing to who watches: inner steps, and what another event says again.
const SILENT: &[&str] = &[
    "name.claimed",
    "role.assigned",
    "token.used",
    "applier.named",
    "sync.started",
    "observed.sync-started",
    "observed.sync-waiting",
    "observed.sync-finished",
];
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";

pub struct Narrator {
    child: Child,
}

impl Narrator {
    /// Follows the log until it is dropped: from its beginning, or from now on.
    pub fn start(kasbah: &Kasbah, from_the_beginning: bool, color: bool) -> Result<Self> {
        let mut command = kasbah.client().command();
        command.args(["log", "tail", "--follow", "--lines", if from_the_beginning { "1000" } else { "0" }]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start kasbah log tail")?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let color = color && std::io::stdout().is_terminal();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(text) = Line::parse(&line).and_then(|line| line.told(color)) {
                    println!("{text}");
                }
            }
        });
        Ok(Self { child })
    }

    pub fn must_run(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "kasbah log tail ended: {ended:?}");
        Ok(())
    }
}

impl Drop for Narrator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of `kasbah log tail`: time, type, what it is about, and the rest.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    time: &'a str,
    kind: &'a str,
    /// Kind and id, and a name where there is one.
    about: &'a str,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (time, line) = line.trim_start().split_once(' ')?;
        let (kind, line) = line.trim_start().split_once(' ')?;
        let line = line.trim_start();
        let (about, rest) = line.split_once("  ").unwrap_or((line, ""));
        Some(Self { time, kind, about, rest: rest.trim() })
    }

    /// `11:03:47.115  object applied     changed, ConfigMap shop-staging/storefront`.
    fn told(&self, color: bool) -> Option<String> {
        // What is on its way would stand there as if it never arrived, as what is healthy is not told: the end of a sync is.
        let well = self.is("healthy") || self.is("progressing");
        let silent = SILENT.contains(&self.kind) || self.kind == "observed.health-changed" && well;
        // Which bundle is wanted is said by the commit's arrival, unless something special is to happen with it.
        if silent || self.kind == "bundle.desired" && !self.rest.contains("prune") {
            return None;
        }
        let clock = self.time.split_once('T').map_or(self.time, |(_, clock)| clock.trim_end_matches('Z'));
        let words = self.kind.trim_start_matches("observed.").replace(['.', '-'], " ");
        let source = self.about.strip_prefix("source/").and_then(|about| about.split_once(' '));
        let source = source.map_or_else(String::new, |(_, name)| format!("{name}: "));
        let (paint, end) = if color { (self.paint(), "\x1b[0m") } else { ("", "") };
        let text = format!("{clock}  {paint}{words:<24}{end}  {source}{}", self.rest);
        Some(text.trim_end().to_owned())
    }

    /// What an agent saw begins with the name of the source.
    fn is(&self, word: &str) -> bool {
        self.rest.split(", ").take(2).any(|part| part == word)
    }

    fn paint(&self) -> &'static str {
        let bad = ["failed", "degraded"].iter().any(|word| self.is(word));
        match self.kind {
            _ if bad || self.kind.ends_with("rejected") || self.kind.ends_with("failed") => RED,
            "observed.object-pruned" | "observed.drift-seen" | "bundle.held" => YELLOW,
            "sync.finished" | "observed.drift-corrected" => GREEN,
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Option<String> {
        Line::parse(line).unwrap().told(false)
    }

    #[test]
    fn lines_are_told_in_words() {
        let applied = "2026-11-21T11:03:47.115Z  observed.object-applied  agent-01 demo  demo/staging, changed, ConfigMap a/b";
        assert_eq!(
            told(applied).unwrap(),
            "11:03:47.115  object applied            demo/staging, changed, ConfigMap a/b"
        );
        let finished = "2026-11-21T11:03:47.128Z  sync.finished            source/d760 demo/staging  succeeded, 43 unchanged";
        assert_eq!(
            told(finished).unwrap(),
            "11:03:47.128  sync finished             demo/staging: succeeded, 43 unchanged"
        );
    }

    #[test]
    fn inner_steps_are_not_told() {
        for kind in ["name.claimed", "observed.sync-waiting"] {
            assert_eq!(told(&format!("2026-11-21T11:03:47.115Z  {kind}  name/1")), None);
        }
        for health in ["healthy", "progressing"] {
            let line = format!(
                "2026-11-21T11:03:47.115Z  observed.health-changed  agent-01 demo  demo/staging, {health}, Job a/b"
            );
            assert_eq!(told(&line), None);
        }
        assert!(
            told("2026-11-21T11:03:47.115Z  observed.health-changed  agent-01 demo  demo/staging, degraded, Job a/b").is_some()
        );
        assert!(
            told("2026-11-21T11:03:47.115Z  bundle.desired  source/d760  commit 1, 41 objects, 3 to prune")
                .is_some()
        );
        assert_eq!(told("2026-11-21T11:03:47.115Z  bundle.desired  source/d760  commit 1, 41 objects"), None);
    }
}
