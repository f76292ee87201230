//! `kasbah log tail`.

use std::collections::BTreeMap;

use events::{AggregateRef, Timestamp};
use serde_json::Value;

use super::line;
use super::names::{EventNames, aggregate};
use crate::client::failure::Failure;
use crate::client::feed::Feed;
use crate::client::moment::Moment;
use crate::client::session::Session;

/// How many of the newest events are shown where nothing else is said.
const NEWEST: usize = 20;
const HOUR_MILLIS: i64 = 60 * 60 * 1000;

/// Prints events.
#[derive(Debug, clap::Args)]
pub struct Tail {
    /// Follow new events, also across a restart of the server
    #[arg(short, long)]
    follow: bool,
    /// Start after this position, which -o json prints with each event; `start` for all events
    #[arg(long, value_name = "POSITION")]
    from: Option<String>,
    /// Number of newest events to print; 20 without --since
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "from")]
    lines: Option<usize>,
    /// Only records since a duration ago, such as 10m, or since a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// The changes of objects that agents saw, which are not among the other events; of the last hour if nothing else is said
    #[arg(long, value_name = "STREAM", value_enum, conflicts_with = "aggregate")]
    stream: Option<NamedStream>,
    /// Only this aggregate: KIND/ID, KIND/NAME, a source as AGENT/SOURCE, or an agent
    #[arg(long, value_name = "AGGREGATE")]
    aggregate: Option<String>,
    /// Only events of this type, such as sync.finished; a final .* matches any ending
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
}

/// A stream that is read by its name only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum NamedStream {
    /// Changes of objects.
    Objects,
}

impl Tail {
    /// Since when: nobody wants all changes of objects that ever were.
    fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let of_objects =
            (self.stream.is_some() && self.from.is_none()).then(|| now.plus_millis(-HOUR_MILLIS));
        self.since.map(|since| since.before(now)).or(of_objects)
    }

    /// Prints them.
    ///
    /// # Errors
    /// When the server refuses or cannot be asked.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut tail = Tailing {
            aggregate: match &self.aggregate {
                Some(wanted) => Some(aggregate(session, wanted).await?),
                None => None,
            },
            since: self.since(Timestamp(session.world.clock.now_millis())),
            names: EventNames::ask(session).await?,
            tail: self,
        };
        let mut position = tail.tail.from.clone();
        if position.is_none() {
            position = tail.newest(session).await?;
        }
        if tail.tail.from.is_some() || tail.tail.follow {
            return tail.stream(session, position).await;
        }
        Ok(())
    }
}

/// What is printed, once all of it is known.
struct Tailing {
    tail: Tail,
    aggregate: Option<AggregateRef>,
    since: Option<Timestamp>,
    names: EventNames,
}

impl Tailing {
    /// Prints the newest, and answers the position behind everything that there is.
    async fn newest(&mut self, session: &Session) -> Result<Option<String>, Failure> {
        let most = if self.tail.since.is_some() { usize::MAX } else { NEWEST };
        let mut newest = Newest::of(self.tail.lines.unwrap_or(most));
        let mut everything = self.feed(false);
        // Other events are few enough to be read from the beginning.
        let since = self.since.filter(|_| self.tail.stream.is_some());
        everything.query.extend(since.map(|since| ("since", since.to_string())));
        let position = everything.each(session, None, |event| {
            self.names.learn(&event);
            if self.is_wanted(&event) {
                newest.add(event);
            }
            Ok(())
        });
        let position = position.await?;
        for event in newest.events.into_values() {
            self.print(session, event)?;
        }
        Ok(position)
    }

    async fn stream(&mut self, session: &Session, position: Option<String>) -> Result<(), Failure> {
        let feed = self.feed(self.tail.follow);
        let shown = feed.each(session, position, |event| {
            self.names.learn(&event);
            if self.is_wanted(&event) { self.print(session, event) } else { Ok(()) }
        });
        shown.await.map(|_| ())
    }

    fn print(&self, session: &Session, event: Value) -> Result<(), Failure> {
        let event = self.names.beside(event);
        session.printer.show_line(&event, |event, style| line::of_event(event, &self.names, style))
    }

    fn feed(&self, follow: bool) -> Feed<'static> {
        let aggregate = self.aggregate.iter().map(|aggregate| ("aggregate", aggregate.to_string()));
        let stream = self.tail.stream.iter().map(|NamedStream::Objects| ("stream", "objects".to_owned()));
        Feed { path: &["log", "events"], query: aggregate.chain(stream).collect(), follow }
    }

    fn is_wanted(&self, event: &Value) -> bool {
        let of = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_late = self
            .since
            .is_none_or(|since| Timestamp::parse(of("recordedat")).is_ok_and(|recorded| recorded >= since));
        is_late && self.tail.event_type.as_ref().is_none_or(|wanted| matches_type(wanted, of("type")))
    }
}

/// The newest events by when the log took them: its streams come one after the other.
struct Newest {
    most: usize,
    added: usize,
    events: BTreeMap<(String, usize), Value>,
}

impl Newest {
    const fn of(most: usize) -> Self {
        Self { most, added: 0, events: BTreeMap::new() }
    }

    fn add(&mut self, event: Value) {
        let recorded = event.get("recordedat").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.added += 1;
        self.events.insert((recorded, self.added), event);
        if self.events.len() > self.most {
            self.events.pop_first();
        }
    }
}

fn matches_type(wanted: &str, found: &str) -> bool {
    let bare = |text: &str| text.strip_prefix("kasbah.").unwrap_or(text).to_owned();
    let (wanted, found) = (bare(wanted), bare(found));
    match wanted.strip_suffix('*') {
        Some(beginning) => found.starts_with(beginning),
        None => wanted == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_objects_are_those_of_the_last_hour_unless_it_is_said_otherwise() {
        let now = Timestamp(10 * HOUR_MILLIS);
        let tail = |arguments: &[&str]| {
            let arguments = std::iter::once(&"tail").chain(arguments);
            <Tail as clap::FromArgMatches>::from_arg_matches(
                &<Tail as clap::Args>::augment_args(clap::Command::new("tail")).get_matches_from(arguments),
            )
            .unwrap()
        };
        assert_eq!(tail(&[]).since(now), None);
        assert_eq!(tail(&["--stream", "objects"]).since(now), Some(Timestamp(9 * HOUR_MILLIS)));
        assert_eq!(tail(&["--stream", "objects", "--from", "start"]).since(now), None);
        let since = tail(&["--stream", "objects", "--since", "2h"]).since(now);
        assert_eq!(since, Some(Timestamp(8 * HOUR_MILLIS)));
    }

    #[test]
    fn types_match_with_and_without_their_prefix() {
        for (wanted, found, matches) in [
            ("sync.finished", "kasbah.sync.finished", true),
            ("kasbah.sync.finished", "kasbah.sync.finished", true),
            ("sync.*", "kasbah.sync.started", true),
            ("observed.*", "kasbah.observed.object-applied", true),
            ("sync", "kasbah.sync.started", false),
            ("sync.*", "kasbah.source.removed", false),
        ] {
            assert_eq!(matches_type(wanted, found), matches, "{wanted} {found}");
        }
    }

    #[test]
    fn the_newest_are_so_by_time_whatever_stream_they_came_from() {
        let mut newest = Newest::of(3);
        for (at, name) in [(1, "a"), (4, "b"), (4, "c"), (2, "d"), (3, "e")] {
            newest
                .add(serde_json::json!({"recordedat": format!("1970-01-01T00:00:0{at}.000Z"), "name": name}));
        }
        let names: Vec<_> = newest.events.values().map(|event| event["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["e", "b", "c"]);
        let mut none = Newest::of(0);
        none.add(serde_json::json!({}));
        assert!(none.events.is_empty());
    }
}
