//! A record as it is written: its fields in their order, each with what is its own. In memory much of it is shared.

use std::sync::Arc;

use events::requests::index::HealthState;
use events::{AgentId, Sha256, SourceId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Alike, Kind, Record, Verdict};
use crate::model::deployed::SetBy;
use crate::model::facts::{Facts, Special};
use crate::model::groups::Memberships;
use crate::model::list::List;
use crate::model::optional::Optional;
use crate::model::owners::Mark;
use crate::model::relations::Link;
use crate::model::text::Text;
use crate::model::writers::{Writer, Written};

#[derive(Serialize, Deserialize)]
struct Stored {
    agent: AgentId,
    uid: Text,
    kind: Kind,
    version: Text,
    namespace: Text,
    name: Text,
    facts: StoredFacts,
    digest: Option<Sha256>,
    awaits_body: bool,
    own: Verdict,
    built_in: HealthState,
    changed_at: Timestamp,
    sequence: u64,
    told: (u64, u64),
    gone_at: Optional,
    changes: u64,
    writer: Option<Writer>,
    written: Written,
    managers: List<Text>,
    set: Option<SetBy>,
    hand: Optional,
}

#[derive(Serialize, Deserialize)]
struct StoredFacts {
    created_at: Optional,
    generation: Optional,
    labels: List<(Text, Text)>,
    links: List<Link>,
    source: Option<SourceId>,
    marks: List<Mark>,
    special: Option<Special>,
}

impl From<&Record> for Stored {
    fn from(record: &Record) -> Self {
        let Alike { agent, kind, version, namespace, source, marks, managers } = &*record.alike;
        let Facts { created_at, generation, labels, links } = &record.facts;
        Self {
            agent: *agent,
            uid: record.uid.clone(),
            kind: kind.clone(),
            version: version.clone(),
            namespace: namespace.clone(),
            name: record.name.clone(),
            facts: StoredFacts {
                created_at: *created_at,
                generation: *generation,
                labels: labels.clone(),
                links: links.clone(),
                source: *source,
                marks: marks.clone(),
                special: record.special().cloned(),
            },
            digest: record.digest,
            awaits_body: record.awaits_body,
            own: Verdict::clone(&record.own),
            built_in: record.built_in,
            changed_at: record.changed_at,
            sequence: record.sequence,
            told: record.told,
            gone_at: record.gone_at().into(),
            changes: record.changes(),
            writer: record.writer.clone(),
            written: record.written.clone(),
            managers: managers.clone(),
            set: record.set_by(),
            hand: record.hand,
        }
    }
}

impl From<Stored> for Record {
    fn from(stored: Stored) -> Self {
        let StoredFacts { created_at, generation, labels, links, source, marks, special } = stored.facts;
        let Stored { agent, kind, version, namespace, managers, .. } = stored;
        let mut record = Self {
            alike: Arc::new(Alike { agent, kind, version, namespace, source, marks, managers }),
            uid: stored.uid,
            name: stored.name,
            facts: Facts { created_at, generation, labels, links },
            digest: stored.digest,
            awaits_body: stored.awaits_body,
            own: Arc::new(stored.own),
            built_in: stored.built_in,
            changed_at: stored.changed_at,
            sequence: stored.sequence,
            told: stored.told,
            changes: u32::try_from(stored.changes).unwrap_or(u32::MAX),
            writer: stored.writer,
            written: stored.written,
            hand: stored.hand,
            rare: None,
            stated: (0, 0),
            groups: Memberships::default(),
        };
        record.set_special(special);
        record.set_gone_at(stored.gone_at.time());
        record.note_set_by(stored.set);
        record
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Stored::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use events::SyncId;
    use events::observation::FieldWriter;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::model::given::{AGENT, SOURCE, marked};
    use crate::model::record::Rule;

    #[test]
    fn a_record_with_its_counts_is_as_large_as_what_is_allocated_for_it() {
        // The allocator has pieces of 192 and 224 bytes.
        assert_eq!(size_of::<Record>() + 2 * size_of::<usize>(), 224);
        assert_eq!(size_of::<Link>(), 40);
    }

    /// What a link names, as it is written.
    #[derive(Serialize)]
    enum Target<'a> {
        Uid(&'a str, Key<'a>),
        Claims(&'a str, Vec<&'a str>, Vec<Requirement<'a>>),
    }

    /// Kind, namespace and name.
    type Key<'a> = ((&'a str, &'a str), &'a str, &'a str);

    #[derive(Serialize)]
    enum Requirement<'a> {
        In(&'a str, Vec<&'a str>),
    }

    #[derive(Serialize)]
    struct Written<'a> {
        agent: AgentId,
        uid: &'a str,
        kind: (&'a str, &'a str),
        version: &'a str,
        namespace: &'a str,
        name: &'a str,
        facts: WrittenFacts<'a>,
        digest: Option<Sha256>,
        awaits_body: bool,
        own: (&'a str, &'a str, bool, bool, &'a str, Option<i64>, bool),
        built_in: &'a str,
        changed_at: i64,
        sequence: u64,
        told: (u64, u64),
        gone_at: Option<i64>,
        changes: u64,
        writer: Option<(&'a str, &'a str, &'a str, Option<i64>)>,
        written: Vec<u64>,
        managers: Vec<&'a str>,
        set: Option<(SyncId, (u64, u64))>,
        hand: Option<i64>,
    }

    #[derive(Serialize, Default)]
    struct WrittenFacts<'a> {
        created_at: Option<i64>,
        generation: Option<i64>,
        labels: Vec<(&'a str, &'a str)>,
        links: Vec<(&'a str, Target<'a>)>,
        source: Option<SourceId>,
        marks: Vec<(&'a str, &'a str)>,
        special: Option<()>,
    }

    /// Changing what is written is another version of the fold.
    fn is_written_as(record: &Record, written: &Written<'_>) {
        let bytes = rmp_serde::to_vec(record).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec(written).unwrap(), "{record:?}");
        let read: Record = events::decode(&bytes).unwrap();
        assert_eq!(read, *record);
    }

    fn set() -> Record {
        let identity = events::ObjectIdentity {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "StatefulSet".to_owned(),
            namespace: "shop".to_owned(),
            name: "db".to_owned(),
        };
        Record::named(AGENT, &identity, "u-1")
    }

    fn nothing_but_its_name() -> Written<'static> {
        Written {
            agent: AGENT,
            uid: "u-1",
            kind: ("apps", "StatefulSet"),
            version: "v1",
            namespace: "shop",
            name: "db",
            facts: WrittenFacts::default(),
            digest: None,
            awaits_body: false,
            own: ("none", "", false, false, "none", None, false),
            built_in: "none",
            changed_at: 0,
            sequence: 0,
            told: (0, 0),
            gone_at: None,
            changes: 0,
            writer: None,
            written: vec![],
            managers: vec![],
            set: None,
            hand: None,
        }
    }

    #[test]
    fn a_record_of_which_nothing_is_known_is_written_as_ever() {
        is_written_as(&set(), &nothing_but_its_name());
    }

    const SYNC: SyncId = SyncId(Uuid::from_u128(14));

    /// The same set, of which all is known.
    fn known_set() -> Record {
        let body = marked(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {
            "name": "db", "namespace": "shop", "generation": 3, "creationTimestamp": "1970-01-01T00:00:01Z",
            "labels": {"app": "db", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "db"},
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Database", "name": "db", "uid": "u-0", "controller": true}]},
            "spec": {"selector": {"matchLabels": {"app": "db"}}, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}));
        let mut record = set();
        record.read(&body);
        (record.digest, record.awaits_body) = (Some(Sha256([7; 32])), true);
        record.own = Arc::new(Verdict {
            message: Text::from("0 of 1"),
            terminating: true,
            optional: true,
            rule: Rule::BuiltIn,
            recheck_at: Some(Timestamp(9)).into(),
            asks: true,
            ..Verdict::unknown("")
        });
        record.built_in = HealthState::Progressing;
        (record.changed_at, record.sequence, record.told) = (Timestamp(5), 6, (7, 8));
        record.set_gone_at(Some(Timestamp(10)));
        record.set_changes(11);
        let [manager, operation, subresource] = ["kubectl", "Apply", "status"].map(str::to_owned);
        record.writer =
            Some(Writer::of(&FieldWriter { manager, operation, subresource, at: Some(Timestamp(12)) }));
        record.written = Box::<[u64]>::from([13, u64::MAX]).into();
        record.change_alike(|alike| alike.managers = vec![Text::from("helm")].into());
        record.note_set_by(Some(SetBy { sync: SYNC, told: (15, 16) }));
        record.hand = Optional::from(Some(Timestamp(17)));
        record
    }

    #[test]
    fn a_record_of_which_all_is_known_is_written_as_ever() {
        let source = SOURCE.to_string();
        let links = vec![
            ("controls", Target::Uid("u-0", (("example.com", "Database"), "shop", "db"))),
            ("mounts", Target::Claims("shop", vec!["data-db-"], vec![Requirement::In("app", vec!["db"])])),
        ];
        let labels =
            vec![("app", "db"), ("app.kubernetes.io/managed-by", "Helm"), ("kasbah.dev/source", &*source)];
        let marks = vec![("helm", "db"), ("managed-by", "Helm")];
        is_written_as(
            &known_set(),
            &Written {
                facts: WrittenFacts {
                    created_at: Some(1_000),
                    generation: Some(3),
                    labels,
                    links,
                    source: Some(SOURCE),
                    marks,
                    special: None,
                },
                digest: Some(Sha256([7; 32])),
                awaits_body: true,
                own: ("unknown", "0 of 1", true, true, "built-in", Some(9), true),
                built_in: "progressing",
                changed_at: 5,
                sequence: 6,
                told: (7, 8),
                gone_at: Some(10),
                changes: 11,
                writer: Some(("kubectl", "Apply", "status", Some(12))),
                written: vec![13, u64::MAX],
                managers: vec!["helm"],
                set: Some((SYNC, (15, 16))),
                hand: Some(17),
                ..nothing_but_its_name()
            },
        );
    }
}
