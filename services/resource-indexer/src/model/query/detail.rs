//! `ShowIndexed`: one object and what it is related to.

use events::object::ObjectKey;
use events::requests::index::{ObjectFilter, RelatedObject};
use events::{Refusal, RefusalKind};

use super::{NAMED, names};
use crate::model::filter::Matcher;
use crate::model::record::{Record, plain_uid};
use crate::model::relations::{Key, Link, Target};
use crate::model::text::Text;
use crate::model::view::{View, key_of};

/// Relations of one object that are answered.
const RELATED: usize = 500;

/// The one object that a filter means.
///
/// # Errors
/// A filter that cannot be read, or means none or several: these are named.
pub fn one<'v>(filter: &ObjectFilter, view: &'v View<'_>) -> Result<&'v Record, Refusal> {
    let matcher = Matcher::read(filter, view)?;
    let found = matcher.walk(view, None).filter_map(|record| view.index.by_uid(record.agent, &record.uid));
    let found: Vec<_> = found.take(NAMED.saturating_add(1)).collect();
    let records: Vec<&Record> = found.iter().filter_map(|slot| view.index.get(*slot)).collect();
    match records.as_slice() {
        [] => Err(Refusal::not_found("object")),
        [record] => Ok(record),
        several => {
            let message = format!("several objects match: {}; name one of them", names(view, several));
            Err(Refusal::new(RefusalKind::Conflict, message))
        }
    }
}

/// What an object is related to: what its own body names, whether that is there or not, and what the asker may see of what names it.
#[must_use]
pub fn related(view: &View<'_>, record: &Record) -> Vec<RelatedObject> {
    let mut found = Vec::new();
    for link in record.links() {
        outwards(view, record, link, &mut found);
    }
    for (relation, slot) in view.index.sources(record) {
        let Some(source) = view.there(slot) else { continue };
        found.push(RelatedObject {
            relation: view.index.relation_name(record.agent, relation).to_owned(),
            inwards: !relation.names_upper(),
            key: key_of(source),
            uid: Some(plain_uid(&source.uid).to_owned()),
            missing: false,
        });
    }
    found.sort_by(|left, right| {
        let of = |related: &RelatedObject| (related.inwards, related.relation.clone(), related.key.clone());
        of(left).cmp(&of(right))
    });
    found.truncate(RELATED);
    found
}

fn outwards(view: &View<'_>, record: &Record, link: &Link, found: &mut Vec<RelatedObject>) {
    let relation = view.index.relation_name(record.agent, link.relation).to_owned();
    let inwards = link.relation.names_upper();
    let there: Vec<&Record> =
        view.index.targets_of(record.agent, link).filter_map(|slot| view.there(slot)).take(RELATED).collect();
    if let (Target::Uid(_, key) | Target::Key(key), []) = (&link.target, there.as_slice()) {
        // The object itself names it, so nothing is reported that its reader does not know; whether it is there only where that could be seen.
        let key = known_key(view, record, key);
        let missing = view.would_show(record.agent, &key);
        found.push(RelatedObject { relation, inwards, key: answered(&key), uid: None, missing });
        return;
    }
    found.extend(there.into_iter().map(|other| RelatedObject {
        relation: relation.clone(),
        inwards,
        key: key_of(other),
        uid: Some(plain_uid(&other.uid).to_owned()),
        missing: false,
    }));
}

/// The name of what is named, without the namespace where its kind has none: an owner reference does not say.
pub(super) fn known_key(view: &View<'_>, record: &Record, key: &Key) -> Key {
    let is_in_none = view.is_in_no_namespace(record.agent, &key.kind);
    let namespace = if is_in_none { Text::default() } else { key.namespace.clone() };
    Key::of(key.kind.clone(), namespace, key.name.clone())
}

pub(super) fn answered(key: &Key) -> ObjectKey {
    ObjectKey {
        group: key.kind.group.to_string(),
        kind: key.kind.kind.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    }
}
