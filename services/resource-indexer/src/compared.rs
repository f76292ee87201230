//! `DiffEnvironment`: what came, went and changed in an environment between two moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use events::request::RequestContext;
use events::requests::index::{
    ChangedField, ChangedObject, DiffEnvironment, EnvironmentDiff, IndexedObject, Moment, ObjectFilter,
};
use events::{AgentId, EnvironmentId, Refusal};
use objects::diff::{FieldChange, diff};
use objects::digest::Status;
use serde_json::Value;

use crate::driver::Driver;
use crate::model::{Record, Rights, Slot, Text, View};
use crate::past::{Past, Reach, body_of, parsed};
use crate::store::StoreError;

/// Letters of a value that are answered.
const LETTERS: usize = 200;
/// Objects whose rights are looked up in one go: folding waits no longer.
const AT_ONCE: usize = 5_000;

/// The objects of an environment at a moment that the asker may see, by their place in the index as it was then.
type Members = BTreeMap<(AgentId, Text), Slot>;

impl Driver {
    pub(crate) async fn diff_environment(
        self: Arc<Self>,
        context: RequestContext,
        request: DiffEnvironment,
    ) -> Result<EnvironmentDiff, Refusal> {
        let to = request.to.clone().unwrap_or_else(|| Moment::Time(self.now()));
        for (field, moment) in [("from", &request.from), ("to", &to)] {
            self.check_moment(moment).map_err(|refusal| about(field, refusal))?;
            self.reaches(moment).await?;
        }
        let rights = self.rights(&context, None).await?;
        self.is_whole()?;
        self.environments_are_known(context.organization)?;
        self.beside(move |driver| driver.compare(&request, &to, &rights)).await
    }

    /// Compares outside of the index; of the objects that are shown alone lines are made.
    fn compare(
        &self,
        request: &DiffEnvironment,
        to: &Moment,
        rights: &Rights,
    ) -> Result<EnvironmentDiff, Refusal> {
        let environment = request.environment;
        let filter = ObjectFilter::of_environment(environment);
        let then = |field: &str, moment: &Moment| {
            let moment = (moment, request.todays_rules);
            self.then(rights, (&filter, Reach::Named), moment).map_err(|refusal| about(field, refusal))
        };
        let (earlier, later) = (then("from", &request.from)?, then("to", to)?);
        let before = self.members(rights, &earlier, environment)?;
        let after = self.members(rights, &later, environment)?;
        let comparing = Comparing { earlier: &earlier, later: &later, status: request.status };
        let found = comparing.of(before, after).map_err(|error| self.broken(&error))?;
        self.shown(rights, (&earlier, &later), environment, found)
    }

    /// The environment's objects as they were.
    fn members(&self, rights: &Rights, past: &Past, environment: EnvironmentId) -> Result<Members, Refusal> {
        let clusters = past.judged.index.clusters_of(environment);
        let slots: Vec<Slot> = clusters.flat_map(|(_, cluster)| cluster.members()).collect();
        let mut members = Members::new();
        for some in slots.chunks(AT_ONCE) {
            self.look_back(rights, past, |view| {
                let there = some.iter().filter_map(|slot| Some((*slot, view.there(*slot)?)));
                let lasting = there.filter(|(_, record)| !record.kind.is_passing());
                members.extend(lasting.map(|(slot, record)| ((record.agent, record.uid.clone()), slot)));
                Ok(())
            })?;
        }
        Ok(members)
    }

    /// What was found, as it is answered.
    fn shown(
        &self,
        rights: &Rights,
        (earlier, later): (&Past, &Past),
        environment: EnvironmentId,
        found: Found,
    ) -> Result<EnvironmentDiff, Refusal> {
        let wanted = BTreeSet::from([environment]);
        let line = |view: &View<'_>, slot: Slot| Some(view.line_in(view.index.get(slot)?, Some(&wanted)));
        let mut went: Vec<IndexedObject> = self.look_back(rights, earlier, |view| {
            Ok(found.went.iter().filter_map(|slot| line(view, *slot)).collect())
        })?;
        let (mut came, mut changed, as_of) = self.look_back(rights, later, |view| {
            let came: Vec<IndexedObject> = found.came.iter().filter_map(|slot| line(view, *slot)).collect();
            let changed = found.changed.into_iter().filter_map(|change| {
                let object = line(view, change.slot)?;
                Some(ChangedObject { object, fields: change.fields, field_count: change.field_count })
            });
            Ok((came, changed.collect::<Vec<_>>(), view.as_of.clone()))
        })?;
        came.sort_by_cached_key(place_of);
        went.sort_by_cached_key(place_of);
        changed.sort_by_cached_key(|changed| place_of(&changed.object));
        let is_same = came.is_empty() && went.is_empty() && changed.is_empty();
        let (left_out, differs) = (found.left_out, !is_same || found.left_out > 0);
        Ok(EnvironmentDiff { differs, came, went, changed, left_out, as_of })
    }
}

/// The same refusal about another field of the request.
fn about(field: &str, refusal: Refusal) -> Refusal {
    match refusal.field.as_deref() {
        Some("at") => Refusal { field: Some(field.to_owned()), ..refusal },
        _ => refusal,
    }
}

/// What differs, by place in the index of the later moment; what went, in that of the earlier one.
#[derive(Default)]
struct Found {
    came: Vec<Slot>,
    went: Vec<Slot>,
    changed: Vec<Changed>,
    left_out: u64,
}

struct Changed {
    slot: Slot,
    fields: Vec<ChangedField>,
    field_count: u32,
}

struct Comparing<'a> {
    earlier: &'a Past,
    later: &'a Past,
    status: bool,
}

impl Comparing<'_> {
    fn of(&self, mut before: Members, after: Members) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut left = Left(DiffEnvironment::OBJECTS, 0);
        for (key, slot) in after {
            let Some(record) = self.later.judged.index.get(slot) else { continue };
            let was = before.remove(&key).and_then(|slot| self.earlier.judged.index.get(slot));
            let Some(earlier) = was else {
                found.came.extend(left.take().then_some(slot));
                continue;
            };
            if earlier.changes() == record.changes() {
                continue;
            }
            if left.is_empty() {
                left.take();
                continue;
            }
            if let Some((fields, field_count)) = self.fields(earlier, record)? {
                left.take();
                found.changed.push(Changed { slot, fields, field_count });
            }
        }
        for slot in before.into_values() {
            found.went.extend(left.take().then_some(slot));
        }
        found.left_out = left.1;
        Ok(found)
    }

    /// The fields that changed, the first ones, and how many they are; `None` where none of those that count did.
    fn fields(
        &self,
        earlier: &Record,
        later: &Record,
    ) -> Result<Option<(Vec<ChangedField>, u32)>, StoreError> {
        let before = parsed(body_of(&self.earlier.reader, earlier)?);
        let after = parsed(body_of(&self.later.reader, later)?);
        let (Some(before), Some(after)) = (before, after) else { return Ok(Some((Vec::new(), 0))) };
        let status = if self.status { Status::Covered } else { Status::Ignored };
        let changes = diff(&before, &after, status);
        if changes.is_empty() {
            return Ok(None);
        }
        let field_count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        let fields = changes.into_iter().take(DiffEnvironment::FIELDS).map(field).collect();
        Ok(Some((fields, field_count)))
    }
}

/// How many objects may still be answered, and how many were left out.
struct Left(usize, u64);

impl Left {
    const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Whether there is room for one more.
    const fn take(&mut self) -> bool {
        if self.0 == 0 {
            self.1 = self.1.saturating_add(1);
            return false;
        }
        self.0 = self.0.saturating_sub(1);
        true
    }
}

fn place_of(object: &IndexedObject) -> (AgentId, events::object::ObjectKey) {
    (object.agent, object.identity.key())
}

fn field(change: FieldChange) -> ChangedField {
    let FieldChange { path, before, after } = change;
    let text = |value: Option<Value>| value.map(|value| value.to_string().chars().take(LETTERS).collect());
    ChangedField { path: path.to_string(), before: text(before), after: text(after) }
}
