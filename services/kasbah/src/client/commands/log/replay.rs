//! `kasbah log replay`: the services' models on a laptop, step by step, out of a slice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, IsTerminal as _};
use std::path::PathBuf;

use clap::ValueHint;
use events::{AggregateRef, Position};
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;
use store::replay::{Folding, Model, Recorded, Redecided};
use store::slice::SliceReader;
use store::{Record, slice::SliceError};

use crate::client::failure::Failure;
use crate::client::moment::Moment;
use crate::client::print::{Fields, Format, Paint, Printer, Style};

/// The models of all services that decide.
pub const MODELS: [Model; 6] = [
    Model::of::<authz::model::Directory>(),
    Model::of::<config_fetcher::model::State>(),
    Model::of::<repo_poller::model::State>(),
    Model::of::<delivery::model::DeliveryState>(),
    Model::of::<delivery::environments::Environments>(),
    Model::of::<event_relay::model::State>(),
];

/// Lines around each change.
const CONTEXT: usize = 2;

/// Replays a slice.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// Slice from `kasbah log export`
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Stop after this position, as printed with each step
    #[arg(long, value_name = "POSITION")]
    until: Option<Position>,
    /// Show only commits since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Show only commits of this aggregate
    #[arg(long, value_name = "KIND/ID")]
    aggregate: Option<AggregateRef>,
    /// Wait for Enter after each commit; q quits
    #[arg(long)]
    step: bool,
    /// Repeat each decision with this version's models, and show those with another result
    #[arg(long, conflicts_with_all = ["step", "aggregate", "since"])]
    redecide: bool,
}

/// One commit, with what it changed.
#[derive(Debug, Serialize)]
struct Step {
    position: String,
    recorded_at: events::Timestamp,
    aggregate: String,
    version: u64,
    events: Vec<String>,
    /// The aggregate's state before and after in YAML, as a diff, by model.
    changes: BTreeMap<&'static str, String>,
}

impl Replay {
    /// Replays it.
    ///
    /// # Errors
    /// When the file is no whole slice, somebody should step who is not there, or a decision comes out differently.
    pub fn run(self, printer: Printer) -> Result<(), Failure> {
        if self.step && !(std::io::stdin().is_terminal() && printer.format == Format::Table) {
            let message = "needs an interactive terminal; programs use -o json without it";
            return Err(Failure::usage("--step", message));
        }
        let records = self.records()?;
        if self.redecide {
            return redecide(records, printer);
        }
        let since = self.since.map(|since| since.before(printer.style.now));
        let mut folds: Vec<(&Model, Box<dyn Folding>)> =
            MODELS.iter().map(|model| (model, model.start())).collect();
        for record in &records {
            let Some(step) = fold(&mut folds, record) else { continue };
            if self.aggregate.as_ref().is_some_and(|wanted| wanted.to_string() != step.aggregate)
                || since.is_some_and(|since| step.recorded_at < since)
            {
                continue;
            }
            printer.show_line(&step, text)?;
            if self.step && !goes_on()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The records up to the wanted position, as they came to be: the log promises an order inside a shard, the times do the rest.
    fn records(&self) -> Result<Vec<Record>, Failure> {
        let io = |detail| Failure::Io { doing: format!("read {}", self.file.display()), detail };
        let wrong = |error: SliceError| Failure::Unsuccessful(format!("{}: {error}", self.file.display()));
        let mut reader =
            SliceReader::open(BufReader::new(File::open(&self.file).map_err(io)?)).map_err(wrong)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().map_err(wrong)? {
            records.push(record);
        }
        records.sort_by_key(|record| record.recorded_at);
        let Some(until) = &self.until else { return Ok(records) };
        let mut reached = Position::start();
        let end = records.iter().position(|record| {
            reached.advance(record.shard, record.sequence);
            reached.covers(until)
        });
        let end = end.ok_or_else(|| {
            Failure::usage("--until", format!("the slice does not reach {until}; it ends at {reached}"))
        })?;
        records.truncate(end + 1);
        Ok(records)
    }
}

/// Folds a record into all models; what a commit changed of its aggregate.
fn fold(folds: &mut [(&Model, Box<dyn Folding>)], record: &Record) -> Option<Step> {
    let Some(commit) = record.commit() else {
        folds.iter_mut().for_each(|(_, fold)| fold.apply(record));
        return None;
    };
    let mut changes = BTreeMap::new();
    for (model, fold) in folds.iter_mut() {
        let describe = |fold: &mut Box<dyn Folding>| {
            let known = fold.describe(commit.organization, &commit.aggregate);
            known.map(|known| known + "\n").unwrap_or_default()
        };
        let before = describe(fold);
        fold.apply(record);
        let after = describe(fold);
        if before != after {
            let diff = TextDiff::from_lines(&before, &after);
            changes.insert(model.name, diff.unified_diff().context_radius(CONTEXT).to_string());
        }
    }
    Some(Step {
        position: Position::of(record.shard.0, record.shard.1, record.sequence).to_string(),
        recorded_at: record.recorded_at,
        aggregate: commit.aggregate.to_string(),
        version: commit.version,
        events: commit.events.iter().map(|event| event.body.event_type.clone()).collect(),
        changes,
    })
}

fn text(step: &Step, style: Style) -> String {
    let events: Vec<&str> =
        step.events.iter().map(|event| event.strip_prefix("kasbah.").unwrap_or(event)).collect();
    let head = format!("{}  {}  version {}", step.position, step.aggregate, step.version);
    let mut text =
        format!("{}  {}  {}\n", Paint::Strong.on(&head, style.colour), step.recorded_at, events.join(", "));
    for (model, diff) in &step.changes {
        text.push_str(&format!("  {model}\n"));
        for line in diff.lines() {
            let paint = match line.bytes().next() {
                Some(b'+') => Paint::Good,
                Some(b'-') => Paint::Bad,
                Some(b'@') => Paint::Dim,
                _ => Paint::Plain,
            };
            text.push_str(&format!("    {}\n", paint.on(line, style.colour)));
        }
    }
    text
}

fn goes_on() -> Result<bool, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    let read = read.map_err(|detail| Failure::Io { doing: "read from the terminal".to_owned(), detail })?;
    Ok(read > 0 && line.trim() != "q")
}

/// Makes all decisions again.
fn redecide(records: Vec<Record>, printer: Printer) -> Result<(), Failure> {
    let mut recorded = Recorded::default();
    records.into_iter().for_each(|record| recorded.add(record));
    let mut models = BTreeMap::new();
    let mut differing: Vec<Value> = Vec::new();
    let mut missing: BTreeMap<String, u64> = BTreeMap::new();
    for model in MODELS {
        let mut counts = Counts::default();
        model.redecide(&recorded, &mut |record, commit, remade| {
            counts.count(&remade);
            let position = Position::of(record.shard.0, record.shard.1, record.sequence).to_string();
            match remade {
                Redecided::Differs { recorded, made } => differing.push(json!({
                    "position": position,
                    "model": model.name,
                    "aggregate": commit.aggregate.to_string(),
                    "version": commit.version,
                    "recorded": recorded.iter().map(said).collect::<Vec<_>>(),
                    "made": match *made {
                        Ok(Some(draft)) => json!({
                            "aggregate": draft.aggregate.to_string(),
                            "version": draft.expected + 1,
                            "events": draft.events.iter().map(said).collect::<Vec<_>>(),
                        }),
                        Ok(None) => json!("nothing"),
                        Err(refusal) => json!({ "refused": refusal }),
                    },
                })),
                Redecided::NotHere { missing: what } => *missing.entry(what).or_default() += 1,
                Redecided::Unreadable { detail } => *missing.entry(detail).or_default() += 1,
                Redecided::Same | Redecided::WithoutGrounds => {}
            }
        });
        models.insert(model.name, counts);
    }
    let count = differing.len();
    let shown = json!({ "models": models, "differing": differing, "missing": missing });
    printer.show(&shown, |shown, style| redecided_text(&models, shown, style))?;
    if count > 0 {
        return Err(Failure::Unsuccessful(format!("{count} decisions would be made differently today")));
    }
    Ok(())
}

/// How the decisions of a model came out.
#[derive(Debug, Default, Serialize)]
struct Counts {
    same: u64,
    differing: u64,
    /// Recorded before decisions were recorded with what they were made on.
    without_inputs: u64,
    /// What they were made on is not in the slice.
    not_here: u64,
    unreadable: u64,
}

impl Counts {
    fn count(&mut self, remade: &Redecided) {
        let count = match remade {
            Redecided::Same => &mut self.same,
            Redecided::Differs { .. } => &mut self.differing,
            Redecided::WithoutGrounds => &mut self.without_inputs,
            Redecided::NotHere { .. } => &mut self.not_here,
            Redecided::Unreadable { .. } => &mut self.unreadable,
        };
        *count += 1;
    }

    fn text(&self) -> String {
        let said = [
            (self.same, "the same"),
            (self.differing, "DIFFERENT"),
            (self.without_inputs, "recorded without inputs"),
            (self.not_here, "made on what the slice does not hold"),
            (self.unreadable, "unreadable"),
        ];
        let said = said.iter().filter(|(count, _)| *count > 0);
        let said: Vec<String> = said.map(|(count, what)| format!("{count} {what}")).collect();
        if said.is_empty() { "no decisions".to_owned() } else { said.join(", ") }
    }
}

fn said(event: &events::Event) -> Value {
    let body = event.encode().map(|body| body.event_type).unwrap_or_default();
    json!({ "type": body, "data": event.to_json().unwrap_or_default() })
}

fn redecided_text(models: &BTreeMap<&'static str, Counts>, shown: &Value, style: Style) -> String {
    let fields =
        models.iter().fold(Fields::new(), |fields, (model, counts)| fields.with(model, counts.text()));
    let mut text = fields.render(style);
    for (what, count) in shown.get("missing").and_then(Value::as_object).into_iter().flatten() {
        text.push_str(&format!("{count} times missing: {what}\n"));
    }
    for differing in shown.get("differing").and_then(Value::as_array).into_iter().flatten() {
        let of = |name: &str| differing.get(name).and_then(Value::as_str).unwrap_or_default();
        let pretty = |name: &str| {
            serde_json::to_string_pretty(differing.get(name).unwrap_or(&Value::Null)).unwrap_or_default()
                + "\n"
        };
        let (recorded, made) = (pretty("recorded"), pretty("made"));
        let head = format!("{}  {}  {}", of("position"), of("aggregate"), of("model"));
        text.push_str(&format!("{}\n", Paint::Bad.on(&head, style.colour)));
        let diff = TextDiff::from_lines(&recorded, &made);
        text.push_str(
            &diff.unified_diff().context_radius(CONTEXT).header("recorded", "made again").to_string(),
        );
    }
    text
}
