//! Puts figures and machine into `docs/benchmarks.md`, a section a scenario.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figure::Figure;

const FILE: &str = "docs/benchmarks.md";
const HEAD: &str = "# Benchmarks\n\nEach figure is the median of five runs beside its baseline from the same runs. Reproduce a section with\n`cargo xtask bench <scenario>`. Machines are noisy: ratios are firmer than absolutes.\n";

/// With this the line about the machine begins, and the figures below it.
const MACHINE: &str = "On ";

/// Replaces the figures in the sections of the scenarios that were measured; the others stay.
pub fn write(figures: &[Figure]) -> anyhow::Result<()> {
    let mut sections = read_sections();
    let mut measured: BTreeMap<String, Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        let scenario = figure.name.split('.').next().unwrap_or_default().to_owned();
        measured.entry(scenario).or_default().push(figure);
    }
    for (scenario, figures) in measured {
        let said = sections.get(&scenario).map(|body| explanation(body).to_owned()).unwrap_or_default();
        sections.insert(scenario, section(&said, &figures)?);
    }
    let mut text = HEAD.to_owned();
    for (scenario, body) in sections {
        write!(text, "\n## {scenario}\n\n{body}\n")?;
    }
    std::fs::write(FILE, text)?;
    println!("recorded in {FILE}");
    Ok(())
}

fn read_sections() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    text.split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once("\n\n"))
        .map(|(name, body)| (name.to_owned(), body.trim_end().to_owned()))
        .collect()
}

/// What somebody has written before the figures of a section.
fn explanation(body: &str) -> &str {
    let figures = if body.starts_with(MACHINE) { Some(0) } else { body.find(&format!("\n{MACHINE}")) };
    figures.map_or(body, |at| body.get(..at).unwrap_or_default()).trim_end()
}

fn section(explanation: &str, figures: &[&Figure]) -> anyhow::Result<String> {
    let mut text = if explanation.is_empty() { String::new() } else { format!("{explanation}\n\n") };
    write!(text, "{MACHINE}{}.\n\n```\n", machine())?;
    for figure in figures {
        writeln!(text, "{figure}")?;
    }
    text.push_str("```");
    Ok(text)
}

/// Processors, memory and kernel.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes / 1024 / 1024);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processors} processors, {memory} GiB of memory, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_wrote_stays_before_the_figures() {
        assert_eq!(explanation("On 2 processors.\n\n```\nx 1\n```"), "");
        assert_eq!(explanation("How to read it.\n\nOn 2 processors.\n\n```\nx 1\n```"), "How to read it.");
        assert_eq!(explanation("Not measured yet."), "Not measured yet.");
    }
}
