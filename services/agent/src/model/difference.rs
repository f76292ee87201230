//! From the dry runs of single objects to what a sync would do with all of them.

use events::requests::diff::{DiffChange, DiffReason, DiffStop, ObjectDiff, SourceDiff, SyncExtent};
use objects::order::Stage;

use super::cause::{Created, explains};
use super::target::Target;
use crate::kubernetes::ApiError;

/// Bytes of an answer, about: what carries it takes no more than a mebibyte.
pub const MOST_BYTES: usize = 700 << 10;
/// What an object takes beside its texts.
const OBJECT_BYTES: usize = 160;

/// What the dry run of one object came to.
#[derive(Debug)]
pub struct Compared {
    /// The object is in the cluster.
    pub is_there: bool,
    /// What would happen to it.
    pub outcome: Outcome,
}

/// See [`Compared::outcome`].
#[derive(Debug)]
pub enum Outcome {
    /// Nothing.
    Same,
    /// This.
    Differs(ObjectDiff),
    /// It would not be applied.
    Refused {
        /// What is said of it.
        diff: ObjectDiff,
        /// What the API server said, where it was it.
        error: Option<ApiError>,
        /// It keeps the rest of the set back.
        stops: bool,
    },
}

/// What a sync would do with the objects of a bundle.
#[derive(Debug, Default)]
pub struct Conclusion {
    /// Those that do not stay as they are.
    pub objects: Vec<ObjectDiff>,
    /// How many do.
    pub unchanged: u32,
    /// How far the sync would get, where not all of it is applied.
    pub stopped: Option<DiffStop>,
}

/// Puts the dry runs of all objects together: what fails for want of something that this set creates first is no refusal, and what is refused
/// keeps back all that the sync does after it.
#[must_use]
pub fn conclude(compared: Vec<(&Target, Compared)>) -> Conclusion {
    let created = Creations::of(&compared);
    let mut conclusion = Conclusion::default();
    let (mut refused, mut in_foundation, mut founds) = (0_u32, false, false);
    let excused: Vec<bool> =
        compared.iter().map(|(target, compared)| created.excuse(target, compared)).collect();
    for ((target, Compared { is_there, outcome }), is_excused) in compared.into_iter().zip(excused) {
        let is_foundation = target.stage == Stage::Foundation;
        match outcome {
            Outcome::Same => conclusion.unchanged = conclusion.unchanged.saturating_add(1),
            Outcome::Differs(diff) => {
                founds |= is_foundation;
                conclusion.objects.push(diff);
            }
            Outcome::Refused { diff, .. } if is_excused => {
                founds |= is_foundation;
                conclusion.objects.push(needs_others(diff, is_there));
            }
            Outcome::Refused { diff, stops, .. } => {
                if stops {
                    refused = refused.saturating_add(1);
                    in_foundation |= is_foundation;
                }
                conclusion.objects.push(diff);
            }
        }
    }
    let extent = if founds && !in_foundation { SyncExtent::Foundation } else { SyncExtent::Nothing };
    conclusion.stopped = (refused > 0).then(|| stop(extent, refused));
    conclusion
}

/// Why a sync gets only so far.
#[must_use]
pub fn stop(extent: SyncExtent, objects: u32) -> DiffStop {
    let (those, are, wait) = match objects {
        1 => ("1 object".to_owned(), "is", "waits"),
        more => (format!("{more} objects"), "are", "wait"),
    };
    let message = match extent {
        SyncExtent::AllButPrunes => format!("{those} {wait} for what the cluster does not serve yet"),
        SyncExtent::Nothing | SyncExtent::Foundation => format!("{those} {are} refused or being deleted"),
    };
    DiffStop { extent, message }
}

fn needs_others(diff: ObjectDiff, is_there: bool) -> ObjectDiff {
    let change = if is_there { DiffChange::Change } else { DiffChange::Create };
    let words = diff.message.as_deref().unwrap_or_default();
    let message = format!("not verified, as it needs what this set creates first: {words}");
    ObjectDiff { change, ..diff }.because(DiffReason::NeedsOthers, message)
}

/// What a sync creates in each stage.
struct Creations<'a> {
    foundation: Vec<Created<'a>>,
    rest: Vec<Created<'a>>,
}

impl<'a> Creations<'a> {
    fn of(compared: &[(&'a Target, Compared)]) -> Self {
        let (mut foundation, mut rest) = (Vec::new(), Vec::new());
        for (target, Compared { is_there, outcome }) in compared {
            let created = Created { identity: &target.identity, plural: &target.resource.plural };
            let is_changed = !matches!(outcome, Outcome::Same);
            let is_made = !is_there || matches!(outcome, Outcome::Refused { .. });
            if target.stage == Stage::Foundation {
                foundation.extend(is_made.then_some(created));
                rest.extend(is_changed.then_some(created));
            } else {
                rest.extend(is_made.then_some(created));
            }
        }
        Self { foundation, rest }
    }

    fn excuse(&self, target: &Target, compared: &Compared) -> bool {
        let Outcome::Refused { error: Some(error), .. } = &compared.outcome else { return false };
        let created = if target.stage == Stage::Foundation { &self.foundation } else { &self.rest };
        created.iter().any(|created| explains(*created, &target.identity, error))
    }
}

/// Leaves out what does not fit into an answer: first the fields of objects, then objects; those that are refused, pruned or waited for
/// last.
pub fn bound(diff: &mut SourceDiff, most: usize) {
    let mut left = most;
    let mut take = |bytes: usize| {
        let fits = bytes <= left;
        left = if fits { left - bytes } else { left };
        fits
    };
    let rank = |change: DiffChange| match change {
        DiffChange::Refused => 0,
        DiffChange::Prune => 1,
        DiffChange::Wait => 2,
        DiffChange::Keep => 3,
        DiffChange::Change => 4,
        DiffChange::Create => 5,
    };
    let mut order: Vec<usize> = (0..diff.objects.len()).collect();
    order.sort_by_key(|place| diff.objects.get(*place).map(|object| rank(object.change)));
    let mut stays = vec![false; diff.objects.len()];
    for place in &order {
        if let (Some(object), Some(stays)) = (diff.objects.get(*place), stays.get_mut(*place)) {
            *stays = take(bytes_without_fields(object));
        }
    }
    for place in order {
        let Some(object) = diff.objects.get_mut(place) else { continue };
        let bytes = bytes_of_fields(object);
        if bytes > 0 && !take(bytes) {
            object.fields.clear();
            let words = format!("its fields take {bytes} bytes, which is too much to show");
            let before = object.message.take().map(|message| format!("{message}; ")).unwrap_or_default();
            object.message = Some(format!("{before}{words}"));
        }
    }
    let extra = std::mem::take(&mut diff.extra);
    diff.extra = extra.into_iter().take_while(|extra| take(bytes_of_extra(extra))).collect();
    let mut stays = stays.into_iter();
    let (mut left_out, mut more_kept) = (0_u32, 0_u32);
    diff.objects.retain(|object| {
        let is_in = stays.next().unwrap_or(false);
        if !is_in {
            let count = if object.change == DiffChange::Keep { &mut more_kept } else { &mut left_out };
            *count = count.saturating_add(1);
        }
        is_in
    });
    (diff.left_out, diff.more_kept) = (left_out, more_kept);
}

fn bytes_without_fields(object: &ObjectDiff) -> usize {
    let identity = &object.identity;
    let texts = [&identity.group, &identity.version, &identity.kind, &identity.namespace, &identity.name];
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    OBJECT_BYTES + texts + object.file.len() + object.message.as_ref().map_or(0, String::len)
}

fn bytes_of_fields(object: &ObjectDiff) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    object.fields.iter().map(|(path, before, after)| 16 + path.len() + text(before) + text(after)).sum()
}

fn bytes_of_extra(extra: &events::requests::diff::ObjectExtra) -> usize {
    let fields = extra.fields.iter().map(|(path, manager)| 16 + path.len() + manager.len());
    OBJECT_BYTES + extra.identity.name.len() + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use events::ObjectIdentity;
    use events::digest::Sha256;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::{ApiStatus, Resource};
    use crate::model::target::Entry;

    fn target(kind: &str, namespace: &str, name: &str) -> Target {
        let identity = ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let resource = Resource {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: !namespace.is_empty(),
            listable: true,
            watchable: true,
        };
        let manifest = Bytes::from_static(b"{}");
        let digest = Sha256::of(&manifest);
        let entry = Entry { identity: identity.clone(), digest, file: "a.yaml".into(), line: 3, manifest };
        Target {
            key: identity.key(),
            stage: objects::order::stage(&identity),
            resource: Arc::new(resource),
            entry: Arc::new(entry),
            identity,
        }
    }

    fn differs(target: &Target, change: DiffChange) -> Compared {
        let diff = ObjectDiff::new(target.identity.clone(), change);
        Compared { is_there: change != DiffChange::Create, outcome: Outcome::Differs(diff) }
    }

    fn refused(target: &Target, code: u16, message: &str) -> Compared {
        let body = json!({"message": message}).to_string();
        let error = ApiError::Refused(Box::new(ApiStatus::read(code, body.as_bytes())));
        let diff = ObjectDiff::new(target.identity.clone(), DiffChange::Refused)
            .because(DiffReason::ApiServer, message);
        Compared { is_there: false, outcome: Outcome::Refused { diff, error: Some(error), stops: true } }
    }

    fn changes(conclusion: &Conclusion) -> Vec<DiffChange> {
        conclusion.objects.iter().map(|object| object.change).collect()
    }

    #[test]
    fn what_lacks_only_what_the_set_creates_is_created() {
        let (space, map) = (target("Namespace", "", "shop"), target("ConfigMap", "shop", "web"));
        let missing = || refused(&map, 404, "namespaces \"shop\" not found");
        let conclusion = conclude(vec![(&space, differs(&space, DiffChange::Create)), (&map, missing())]);
        assert_eq!(changes(&conclusion), [DiffChange::Create, DiffChange::Create]);
        assert_eq!(conclusion.objects[1].reason, Some(DiffReason::NeedsOthers));
        assert_eq!(conclusion.stopped, None);
        let alone = conclude(vec![(&map, missing())]);
        assert_eq!(changes(&alone), [DiffChange::Refused]);
        assert_eq!(alone.stopped.unwrap().extent, SyncExtent::Nothing);
    }

    #[test]
    fn what_is_refused_keeps_back_what_comes_after_it() {
        let (space, map) = (target("Namespace", "", "shop"), target("ConfigMap", "shop", "web"));
        let denied = |of: &Target| refused(of, 403, "denied by a policy");
        let extent = |compared| conclude(compared).stopped.map(|stop| stop.extent);
        let made = || differs(&space, DiffChange::Create);
        assert_eq!(extent(vec![(&space, made()), (&map, denied(&map))]), Some(SyncExtent::Foundation));
        assert_eq!(
            extent(vec![(&space, denied(&space)), (&map, differs(&map, DiffChange::Create))]),
            Some(SyncExtent::Nothing)
        );
        let same = Compared { is_there: true, outcome: Outcome::Same };
        assert_eq!(extent(vec![(&space, same), (&map, denied(&map))]), Some(SyncExtent::Nothing));
        let diff = ObjectDiff::new(map.identity.clone(), DiffChange::Refused);
        let held = Outcome::Refused { diff, error: None, stops: false };
        let held = Compared { is_there: true, outcome: held };
        assert_eq!(extent(vec![(&space, made()), (&map, held)]), None, "another source's stops nothing");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted_and_what_is_refused_comes_first() {
        let field = |size: usize| vec![("data.a".to_owned(), None, Some("x".repeat(size)))];
        let object = |name: &str, change: DiffChange, size: usize| {
            let diff = ObjectDiff::new(target("ConfigMap", "shop", name).identity, change);
            ObjectDiff { fields: field(size), ..diff }
        };
        let all = || SourceDiff {
            objects: vec![
                object("a", DiffChange::Create, 10),
                object("b", DiffChange::Change, 5_000),
                object("c", DiffChange::Refused, 10),
            ],
            ..SourceDiff::default()
        };
        let names = |diff: &SourceDiff| {
            diff.objects.iter().map(|object| object.identity.name.clone()).collect::<Vec<_>>()
        };
        let mut whole = all();
        bound(&mut whole, MOST_BYTES);
        assert_eq!(whole, all());
        let mut cut = all();
        bound(&mut cut, 1_000);
        assert_eq!((names(&cut), cut.left_out), (vec!["a".into(), "b".into(), "c".into()], 0));
        assert!(cut.objects[1].fields.is_empty(), "{cut:?}");
        assert!(cut.objects[1].message.as_ref().unwrap().contains("too much to show"), "{cut:?}");
        assert_eq!((cut.objects[0].fields.len(), cut.objects[2].fields.len()), (1, 1), "{cut:?}");
        let mut few = all();
        bound(&mut few, 250);
        assert_eq!((names(&few), few.left_out), (vec!["c".to_owned()], 2));
    }
}
