//! One object as the index holds it in memory: slim, without its body.

use events::requests::index::{HealthState, ObjectHealth};
use events::{AgentId, ObjectIdentity, Sha256, Timestamp};
use objects::health::{Health, HealthStatus, RuleSource};
use serde::{Deserialize, Serialize};

use super::deployed::SetBy;
use super::facts::Facts;
use super::groups::Memberships;
use super::list::{List, Lists};
use super::optional::Optional;
use super::relations::{Key, Link};
use super::text::{Strings, Text};
use super::writers::{Writer, Written};

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// In which agent's cluster.
    pub agent: AgentId,
    /// Its UID; with its kind behind it where an object of another kind has the same.
    pub uid: Text,
    /// Its kind.
    pub kind: Kind,
    /// API version under which it was read.
    pub version: Text,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// What its body says that queries need.
    pub facts: Facts,
    /// Digest of its newest body; absent while no body was seen.
    pub digest: Option<Sha256>,
    /// The agent named a digest of which no body was seen yet.
    pub awaits_body: bool,
    /// What it points at by relations that its agent's configuration declares. Derived, and not stored.
    #[serde(skip)]
    pub declared: Box<[Link]>,
    /// The verdict on the object by itself.
    pub own: Verdict,
    /// How the object was by the built-in rules when it changed last: what is kept of the past.
    pub built_in: HealthState,
    /// The verdict with the reason that its pods give, where that is another one. Derived, and not stored.
    #[serde(skip)]
    pub with_pods: Option<Box<Verdict>>,
    /// When the newest change was recorded.
    pub changed_at: Timestamp,
    /// Sequence of the record in the log that held the newest change.
    pub sequence: u64,
    /// Epoch and sequence of the observation that told of the newest change.
    pub told: (u64, u64),
    /// When it was recorded as gone; absent while it is there.
    pub gone_at: Optional,
    /// How many changes of it were recorded: the number of the newest one.
    pub changes: u64,
    /// Who wrote it last.
    pub writer: Option<Writer>,
    /// Everybody who had written to it by then.
    pub written: Written,
    /// The field managers that may own it.
    pub managers: List<Text>,
    /// The sync that set it last, as its agent's applier said.
    pub set: Option<Box<SetBy>>,
    /// The last time that a writer other than Kubernetes' own components wrote the object itself.
    pub hand: Optional,
    /// In which epoch and with which sequence its agent stated it last. Stored beside it, as lists restate much that did not change.
    #[serde(skip)]
    pub stated: (u64, u64),
    /// The environments that it belongs to. The index finds them.
    #[serde(skip)]
    pub groups: Memberships,
}

impl Record {
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
        Key { kind: self.kind.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The verdict that counts: the one with its pods' reason where there is one.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        self.with_pods.as_deref().unwrap_or(&self.own)
    }

    /// Whether it is there.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.gone_at.is_none()
    }

    /// All that it points at: by its body, and by relations that its agent's configuration declares.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.facts.links.iter().chain(&*self.declared)
    }

    pub(crate) fn share(&mut self, shared: &mut Shared) {
        self.facts.share(shared);
        let Shared { strings, managers, .. } = shared;
        self.kind.share(strings);
        strings.share_known(&mut self.name);
        for text in [&mut self.version, &mut self.namespace, &mut self.own.message] {
            strings.share(text);
        }
        self.writer.iter_mut().for_each(|writer| writer.share(strings));
        managers.share(&mut self.managers, |manager| strings.share(manager));
        self.declared.iter_mut().for_each(|link| link.share(strings));
    }
}

/// What many objects share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) strings: Strings,
    pub(crate) labels: Lists<(Text, Text)>,
    pub(crate) links: Lists<Link>,
    pub(crate) managers: Lists<Text>,
}

impl Shared {
    /// Takes in what objects of other clusters share. What both have stays twice in those objects.
    pub(crate) fn join(&mut self, other: Self) {
        self.strings.join(other.strings);
        self.labels.join(other.labels);
        self.links.join(other.links);
        self.managers.join(other.managers);
    }

    /// Lets go of what nothing uses.
    pub(crate) fn sweep(&mut self) {
        self.labels.sweep();
        self.links.sweep();
        self.managers.sweep();
        // The lists held some.
        self.strings.sweep();
    }
}

/// A verdict on an object's health, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
