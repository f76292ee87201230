//! One object as the index holds it in memory: slim, without its body.

mod alike;
mod rare;
mod stored;

use std::sync::Arc;

use events::requests::index::{HealthState, ObjectHealth};
use events::{AgentId, ObjectIdentity, Sha256, Timestamp};
use objects::health::{Health, HealthStatus, RuleSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts::{Facts, Special, source_of};
use super::groups::Memberships;
use super::list::{Copies, List, Lists};
use super::optional::Optional;
use super::owners::{Mark, marks_of};
use super::relations::{Key, Link, Room};
use super::text::{Strings, Text};
use super::writers::{By, Writer, Written};
pub use alike::Alike;
use rare::Rare;

/// A group and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: Text,
    /// The kind.
    pub kind: Text,
}

impl Kind {
    /// A kind of that group.
    #[must_use]
    pub fn new(group: &str, kind: &str) -> Self {
        Self { group: Text::from(group), kind: Text::from(kind) }
    }

    /// Whether it is this kind of this group.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        &*self.group == group && &*self.kind == kind
    }

    /// Whether its objects tell of others and pass by themselves after a while.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.is("", "Event") || self.is("events.k8s.io", "Event")
    }

    pub(crate) fn share(&mut self, strings: &mut Strings) {
        strings.share(&mut self.group);
        strings.share(&mut self.kind);
    }
}

/// Under what an object is kept whose UID an object of another kind has, too.
pub(crate) fn uid_of_kind(uid: &str, kind: &Kind) -> Text {
    Text::from(format!("{uid}/{}.{}", kind.kind, kind.group).as_str())
}

/// The UID in what an object is kept under.
#[must_use]
pub fn plain_uid(uid: &str) -> &str {
    uid.split_once('/').map_or(uid, |(uid, _)| uid)
}

/// An object. Another one of the same name has another UID, and is another object.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What it has alike with others: cluster, kind, namespace. It is read as if it stood here.
    alike: Arc<Alike>,
    /// Its UID; with its kind behind it where an object of another kind has the same.
    pub uid: Text,
    /// Name.
    pub name: Text,
    /// What its body says that queries need.
    pub facts: Facts,
    /// Digest of its newest body; absent while no body was seen.
    pub digest: Option<Sha256>,
    /// The agent named a digest of which no body was seen yet.
    pub awaits_body: bool,
    /// The verdict on the object by itself.
    pub own: Arc<Verdict>,
    /// How the object was by the built-in rules when it changed last: what is kept of the past.
    pub built_in: HealthState,
    /// When the newest change was recorded.
    pub changed_at: Timestamp,
    /// Sequence of the record in the log that held the newest change.
    pub sequence: u64,
    /// Epoch and sequence of the observation that told of the newest change.
    pub told: (u64, u64),
    /// See [`Self::changes`]: four bytes are enough for a change each second for a hundred years.
    changes: u32,
    /// Who wrote it last.
    pub writer: Option<Writer>,
    /// Everybody who had written to it by then.
    pub written: Written,
    /// The last time that a writer other than Kubernetes' own components wrote the object itself.
    pub hand: Optional,
    rare: Option<Box<Rare>>,
    /// In which epoch and with which sequence its agent stated it last. Stored beside it, as lists restate much that did not change.
    pub stated: (u64, u64),
    /// The environments that it belongs to. The index finds them.
    pub groups: Memberships,
}

impl Record {
    /// An object of which nothing but its name is known yet.
    #[must_use]
    pub fn named(agent: AgentId, identity: &ObjectIdentity, uid: &str) -> Self {
        let ObjectIdentity { group, version, kind, namespace, name } = identity;
        let alike = Alike {
            agent,
            kind: Kind::new(group, kind),
            version: Text::from(version.as_str()),
            namespace: Text::from(namespace.as_str()),
            source: None,
            marks: List::default(),
            managers: List::default(),
        };
        Self {
            alike: Arc::new(alike),
            uid: Text::from(uid),
            name: Text::from(name.as_str()),
            facts: Facts::default(),
            digest: None,
            awaits_body: false,
            own: Arc::new(Verdict::none()),
            built_in: HealthState::None,
            changed_at: Timestamp(0),
            sequence: 0,
            told: (0, 0),
            changes: 0,
            writer: None,
            written: Written::default(),
            hand: Optional::NONE,
            rare: None,
            stated: (0, 0),
            groups: Memberships::default(),
        }
    }

    /// Takes from its body what queries need.
    pub fn read(&mut self, body: &Value) {
        self.facts = Facts::of(body);
        self.set_special(Special::of(body));
        self.change_alike(|alike| (alike.source, alike.marks) = (source_of(body), marks_of(body).into()));
    }

    /// Its body is not known.
    pub fn forget_body(&mut self) {
        self.facts = Facts::default();
        self.set_special(None);
        self.change_alike(|alike| (alike.source, alike.marks) = (None, List::default()));
    }

    /// Changes what it has alike with others. Where nothing is another, it goes on sharing that.
    pub fn change_alike(&mut self, change: impl FnOnce(&mut Alike)) {
        let mut alike = Alike::clone(&self.alike);
        change(&mut alike);
        if alike != *self.alike {
            self.alike = Arc::new(alike);
        }
    }

    /// How many changes of it were recorded: the number of the newest one.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.into()
    }

    /// Sets how many changes of it were recorded.
    pub fn set_changes(&mut self, changes: u64) {
        self.changes = u32::try_from(changes).unwrap_or(u32::MAX);
    }

    /// Which object it is.
    #[must_use]
    pub fn identity(&self) -> ObjectIdentity {
        ObjectIdentity {
            group: self.kind.group.to_string(),
            version: self.version.to_string(),
            kind: self.kind.kind.to_string(),
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
        }
    }

    /// The name of the object in its cluster.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of(self.kind.clone(), self.namespace.clone(), self.name.clone())
    }

    /// The verdict that counts: the one with its pods' reason where there is one.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        self.with_pods().unwrap_or(&self.own)
    }

    /// All that it points at: by its body, and by relations that its agent's configuration declares.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.facts.links.iter().chain(self.declared())
    }

    pub(crate) fn share(&mut self, shared: &mut Shared) {
        Alike::share(&mut self.alike, shared);
        self.facts.share(shared);
        if let Some(rare) = &mut self.rare {
            rare.share(shared);
        }
        shared.strings.share_known(&mut self.name);
        shared.share_verdict(&mut self.own);
        if let Some(writer) = &mut self.writer {
            writer.share(shared);
        }
    }
}

/// What many objects share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) strings: Strings,
    pub(crate) labels: Lists<(Text, Text)>,
    links: Lists<Link>,
    rooms: Copies<Room>,
    managers: Lists<Text>,
    marks: Lists<Mark>,
    alike: Copies<Alike>,
    verdicts: Copies<Verdict>,
    pub(crate) writers: Copies<By>,
}

impl Shared {
    /// Takes in what objects of other clusters share. What both have stays twice in those objects.
    pub(crate) fn join(&mut self, other: Self) {
        // Each field by its name: of one that is forgotten what comes later would share nothing with what was loaded.
        let Self { strings, labels, links, rooms, managers, marks, alike, verdicts, writers } = other;
        self.strings.join(strings);
        self.labels.join(labels);
        self.links.join(links);
        self.rooms.join(rooms);
        self.managers.join(managers);
        self.marks.join(marks);
        self.alike.join(alike);
        self.verdicts.join(verdicts);
        self.writers.join(writers);
    }

    pub(crate) fn share_links(&mut self, list: &mut List<Link>) {
        let Self { links, rooms, strings, .. } = self;
        links.share(list, |link| link.share(strings, rooms));
    }

    /// Most objects of a kind have one verdict.
    pub(crate) fn share_verdict(&mut self, verdict: &mut Arc<Verdict>) {
        let Self { verdicts, strings, .. } = self;
        verdicts.share(verdict, |verdict| strings.share(&mut verdict.message));
    }

    /// Lets go of what nothing uses.
    pub(crate) fn sweep(&mut self) {
        self.alike.sweep();
        self.labels.sweep();
        self.links.sweep();
        self.rooms.sweep();
        self.managers.sweep();
        self.marks.sweep();
        self.verdicts.sweep();
        self.writers.sweep();
        // All of them held some.
        self.strings.sweep();
    }
}

/// A verdict on an object's health, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// How it is doing.
    pub state: HealthState,
    /// Why; empty when there is nothing to say.
    pub message: Text,
    /// Being deleted.
    pub terminating: bool,
    /// It does not count in a roll-up.
    pub optional: bool,
    /// Which rule judged.
    pub rule: Rule,
    /// When to judge again even if the object does not change.
    pub recheck_at: Optional,
    /// An imported rule is to judge it, and was not asked yet.
    pub asks: bool,
}

/// Which rule judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The object is being deleted, whatever its kind.
    Deletion,
    /// A rule that the agent's configuration declares.
    Declared,
    /// A rule of Argo CD that the agent's configuration imports.
    Imported,
    /// A rule for the kind.
    BuiltIn,
    /// The conventions that most controllers follow.
    Generic,
    /// None could judge.
    None,
}

impl Rule {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Declared => "declared",
            Self::Imported => "imported",
            Self::BuiltIn => "built-in",
            Self::Generic => "generic",
            Self::None => "none",
        }
    }
}

impl Verdict {
    /// No rule, and nothing that the object says of itself.
    #[must_use]
    pub fn none() -> Self {
        Self::without_rule(HealthState::None, "")
    }

    /// The body is not known, so nothing can be told.
    #[must_use]
    pub fn unknown(message: &str) -> Self {
        Self::without_rule(HealthState::Unknown, message)
    }

    fn without_rule(state: HealthState, message: &str) -> Self {
        let message = Text::from(message);
        let (terminating, optional, asks) = (false, false, false);
        Self { state, message, terminating, optional, rule: Rule::None, recheck_at: Optional::NONE, asks }
    }

    /// What an imported rule says.
    #[must_use]
    pub fn imported(state: HealthState, message: &str) -> Self {
        Self { rule: Rule::Imported, ..Self::without_rule(state, message) }
    }

    /// Until an imported rule is asked: what it said before the object changed.
    #[must_use]
    pub fn asking(former: &Self) -> Self {
        let verdict = if former.rule == Rule::Imported {
            Self { recheck_at: Optional::NONE, ..former.clone() }
        } else {
            Self::imported(HealthState::Progressing, "its imported rule has not been asked yet")
        };
        Self { asks: true, ..verdict }
    }

    /// Whether an imported rule comes before the one that made it, and has something to judge.
    #[must_use]
    pub fn leaves_to_imported(&self) -> bool {
        let knows_no_body = self.rule == Rule::None && self.state == HealthState::Unknown;
        !knows_no_body && !matches!(self.rule, Rule::Deletion | Rule::Declared)
    }

    /// Whether it has to be judged again at this instant.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.recheck_at.time().is_some_and(|at| at <= now)
    }

    /// As it is answered.
    #[must_use]
    pub fn answer(&self) -> ObjectHealth {
        ObjectHealth {
            state: self.state,
            message: self.message.to_string(),
            terminating: self.terminating,
            optional: self.optional,
            rule: self.rule.as_str().to_owned(),
            rule_set: None,
        }
    }
}

/// Most letters of a verdict's message that are kept.
const MESSAGE: usize = 1_000;

impl From<Option<Health>> for Verdict {
    fn from(health: Option<Health>) -> Self {
        let Some(health) = health else { return Self::none() };
        let state = match health.status {
            HealthStatus::Healthy => HealthState::Healthy,
            HealthStatus::Suspended => HealthState::Suspended,
            HealthStatus::Progressing => HealthState::Progressing,
            HealthStatus::Missing => HealthState::Missing,
            HealthStatus::Degraded => HealthState::Degraded,
            HealthStatus::Unknown => HealthState::Unknown,
        };
        let rule = match health.source {
            RuleSource::Deletion => Rule::Deletion,
            RuleSource::Declared => Rule::Declared,
            RuleSource::BuiltIn => Rule::BuiltIn,
            RuleSource::Generic => Rule::Generic,
            RuleSource::Absence => Rule::None,
        };
        let message: String = health.message.chars().take(MESSAGE).collect();
        Self {
            state,
            message: Text::from(message.as_str()),
            terminating: health.terminating,
            optional: health.optional,
            rule,
            recheck_at: health.recheck_at.into(),
            asks: false,
        }
    }
}
