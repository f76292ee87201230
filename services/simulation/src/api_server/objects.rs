//! All objects of a cluster and their history: what the API server does with a request, without time, chance or connections.

use std::collections::{BTreeMap, VecDeque};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::asked::{About, Asked, Form, Place, Selector};
use super::fields::{Writer, apply, update};
use super::kinds::{CONFIG_MAP, Kind, NAMESPACE, discovery};
use super::patch::{edit, merge, state};
use super::refusal::Refusal;
use super::specified::{STATUS, count_generation, keep_status, with_status};

/// What happened to one object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) place: Place,
    pub(super) before: Option<Value>,
    /// `None`: it is gone.
    pub(super) after: Option<Value>,
}

/// What is to be followed.
pub(super) struct Followed {
    pub(super) scope: Scope,
    /// What is there already, where no version was named.
    pub(super) first: Vec<Value>,
    /// Changes behind this version.
    pub(super) from: u64,
}

/// Which objects, and in which form.
pub(super) struct Scope {
    pub(super) kind: &'static Kind,
    pub(super) namespace: String,
    pub(super) selector: Selector,
    pub(super) form: Form,
}

impl Scope {
    fn holds(&self, place: &Place) -> bool {
        place.kind == self.kind && (self.namespace.is_empty() || place.namespace == self.namespace)
    }

    /// What a change is for those who follow this scope: a type of event, and the object.
    pub(super) fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        if !self.holds(&change.place) {
            return None;
        }
        let taken =
            |object: &Option<Value>| object.as_ref().is_some_and(|object| self.selector.takes(object));
        let kind = match (taken(&change.before), taken(&change.after)) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        let mut object = change.after.as_ref().or(change.before.as_ref())?.clone();
        state_version(&mut object, change.revision);
        Some((kind, shown(object, self.form)))
    }
}

/// What is answered.
pub(super) enum Served {
    Answer(StatusCode, Value),
    Follow(Followed),
}

/// All objects.
#[derive(Default)]
pub(super) struct Objects {
    revision: u64,
    uids: u64,
    objects: BTreeMap<Place, Value>,
    history: VecDeque<Change>,
    /// Changes up to here are forgotten.
    oldest: u64,
    /// Pages of lists that were not asked for yet, with their version.
    pages: BTreeMap<u64, (u64, VecDeque<Value>)>,
    next_page: u64,
}

impl Objects {
    /// Those of a fresh cluster.
    pub(super) fn new() -> Self {
        let mut objects = Self::default();
        for name in ["default", "kube-system"] {
            let place = Place { kind: &NAMESPACE, namespace: String::new(), name: name.to_owned() };
            objects.create_in(place, json!({"status": {"phase": "Active"}}), "");
        }
        objects
    }

    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// All objects of a kind.
    pub(super) fn of_kind(&self, kind: &'static Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(place, _)| place.kind == kind).map(|(_, object)| object)
    }

    /// Puts an object there as whoever set the cluster up.
    pub(super) fn create_in(&mut self, place: Place, mut object: Value, time: &str) {
        state(&mut object, &["apiVersion"], Value::String(place.kind.api_version()));
        state(&mut object, &["kind"], Value::String(place.kind.kind.to_owned()));
        state(&mut object, &["metadata", "name"], Value::String(place.name.clone()));
        if place.kind.namespaced {
            state(&mut object, &["metadata", "namespace"], Value::String(place.namespace.clone()));
        }
        update(None, &mut object, Writer { manager: "somebody", time, subresource: "" });
        self.birth(&mut object, time);
        self.commit(place, Some(object));
    }

    /// What happened behind a version.
    pub(super) fn since(&self, revision: u64) -> impl Iterator<Item = &Change> {
        let behind = self.history.partition_point(|change| change.revision <= revision);
        self.history.range(behind..)
    }

    /// Forgets what happened.
    pub(super) fn forget(&mut self) {
        self.history.clear();
        self.pages.clear();
        // Something that no agent watches has been written since, so that no watch can go on from where it is.
        self.revision += 1;
        self.oldest = self.revision;
    }

    pub(super) fn serve(&mut self, asked: &Asked, time: &str) -> Result<Served, Refusal> {
        match (&asked.method, &asked.about) {
            (&Method::GET, About::Discovery { core }) => Ok(Served::Answer(StatusCode::OK, discovery(*core))),
            (&Method::GET, About::Collection { kind, namespace }) if asked.is_watch() => {
                self.follow(asked, kind, namespace)
            }
            (&Method::GET, About::Collection { kind, namespace }) => self.list(asked, kind, namespace),
            (&Method::GET, About::Object(place) | About::Status(place)) => {
                let object = self.find(place)?.clone();
                Ok(Served::Answer(StatusCode::OK, shown(object, asked.form)))
            }
            (&Method::POST, About::Collection { kind, namespace }) => {
                self.create(asked, kind, namespace, time)
            }
            (&Method::PUT, About::Object(place) | About::Status(place)) => {
                let object = asked.json()?;
                self.replace(asked, place, object, time)
            }
            (&Method::PATCH, About::Object(place) | About::Status(place)) => self.patch(asked, place, time),
            (&Method::DELETE, About::Object(place)) => self.delete(asked, place, time),
            _ => Err(Refusal::not_simulated(asked.method.as_str())),
        }
    }

    fn find(&self, place: &Place) -> Result<&Value, Refusal> {
        self.objects.get(place).ok_or_else(|| Refusal::not_found(place.kind, &place.name))
    }

    fn list(&mut self, asked: &Asked, kind: &'static Kind, namespace: &str) -> Result<Served, Refusal> {
        let limit = asked.query("limit").parse().unwrap_or(usize::MAX).max(1);
        let (version, mut items) = match asked.query("continue") {
            "" => {
                let selector = asked.selector()?;
                let scope = Scope { kind, namespace: namespace.to_owned(), selector, form: asked.form };
                (self.revision, self.listed(&scope))
            }
            token => token
                .parse()
                .ok()
                .and_then(|page: u64| self.pages.remove(&page))
                .ok_or_else(Refusal::page_expired)?,
        };
        let rest = items.split_off(limit.min(items.len()));
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if !rest.is_empty() {
            self.next_page += 1;
            self.pages.insert(self.next_page, (version, rest));
            state(&mut metadata, &["continue"], Value::String(self.next_page.to_string()));
        }
        let (list_kind, api_version) = match asked.form {
            Form::Whole => (format!("{}List", kind.kind), kind.api_version()),
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let items: Vec<Value> = items.into_iter().collect();
        let list =
            json!({"kind": list_kind, "apiVersion": api_version, "metadata": metadata, "items": items});
        Ok(Served::Answer(StatusCode::OK, list))
    }

    fn listed(&self, scope: &Scope) -> VecDeque<Value> {
        let those =
            self.objects.iter().filter(|(place, object)| scope.holds(place) && scope.selector.takes(object));
        those
            .map(|(_, object)| {
                let mut item = shown(object.clone(), scope.form);
                if let (Form::Whole, Some(item)) = (scope.form, item.as_object_mut()) {
                    // Items of lists do not state their kind.
                    item.remove("kind");
                    item.remove("apiVersion");
                }
                item
            })
            .collect()
    }

    fn follow(&self, asked: &Asked, kind: &'static Kind, namespace: &str) -> Result<Served, Refusal> {
        let scope =
            Scope { kind, namespace: namespace.to_owned(), selector: asked.selector()?, form: asked.form };
        let (first, from) = match asked.query("resourceVersion") {
            "" | "0" => {
                let there = self.objects.iter();
                let there =
                    there.filter(|(place, object)| scope.holds(place) && scope.selector.takes(object));
                (there.map(|(_, object)| shown(object.clone(), scope.form)).collect(), self.revision)
            }
            version => {
                let version = version.parse();
                (Vec::new(), version.map_err(|_| Refusal::bad_request("invalid resource version"))?)
            }
        };
        Ok(Served::Follow(Followed { scope, first, from }))
    }

    fn create(
        &mut self,
        asked: &Asked,
        kind: &'static Kind,
        namespace: &str,
        time: &str,
    ) -> Result<Served, Refusal> {
        let mut object = asked.json()?;
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = Place { kind, namespace: namespace.to_owned(), name };
        self.may_begin(&place)?;
        if self.objects.contains_key(&place) {
            return Err(Refusal::exists(kind, &place.name));
        }
        state(&mut object, &["apiVersion"], Value::String(kind.api_version()));
        state(&mut object, &["kind"], Value::String(kind.kind.to_owned()));
        if kind.namespaced {
            state(&mut object, &["metadata", "namespace"], Value::String(place.namespace.clone()));
        }
        if *kind == NAMESPACE {
            state(&mut object, &["status"], json!({"phase": "Active"}));
        }
        keep_status(&place, None, &mut object);
        update(None, &mut object, Writer { manager: &asked.manager, time, subresource: "" });
        Ok(self.begin(asked, place, object, time))
    }

    /// Whether there may be a new object.
    fn may_begin(&self, place: &Place) -> Result<(), Refusal> {
        let Place { kind, namespace, name } = place;
        if kind.namespaced {
            let home = Place { kind: &NAMESPACE, namespace: String::new(), name: namespace.clone() };
            self.find(&home)?;
        }
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let is_name = name.starts_with(plain)
            && name.ends_with(plain)
            && name.chars().all(|letter| plain(letter) || matches!(letter, '-' | '.'));
        if is_name {
            return Ok(());
        }
        let why = format!(
            "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        Err(Refusal::invalid(kind, name, "metadata.name", "FieldValueInvalid", &why))
    }

    fn begin(&mut self, asked: &Asked, place: Place, mut object: Value, time: &str) -> Served {
        self.birth(&mut object, time);
        count_generation(&place, None, &mut object);
        if !asked.is_dry_run() {
            object = self.commit(place, Some(object));
        }
        Served::Answer(StatusCode::CREATED, shown(object, asked.form))
    }

    fn birth(&mut self, object: &mut Value, time: &str) {
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012}", self.uids);
        state(object, &["metadata", "uid"], Value::String(uid));
        state(object, &["metadata", "creationTimestamp"], Value::String(time.to_owned()));
    }

    fn replace(
        &mut self,
        asked: &Asked,
        place: &Place,
        mut new: Value,
        time: &str,
    ) -> Result<Served, Refusal> {
        let live = self.find(place)?.clone();
        for key in ["resourceVersion", "uid"] {
            let named = new.pointer(&format!("/metadata/{key}")).and_then(Value::as_str).unwrap_or_default();
            if !named.is_empty() && Some(named) != text(&live, key) {
                return Err(Refusal::modified(place.kind, &place.name));
            }
        }
        for key in ["uid", "creationTimestamp", "deletionTimestamp", "name", "namespace", "resourceVersion"] {
            let kept = live.pointer(&format!("/metadata/{key}")).cloned();
            if let Some(kept) = kept {
                state(&mut new, &["metadata", key], kept);
            }
        }
        for key in ["apiVersion", "kind"] {
            state(&mut new, &[key], live.get(key).cloned().unwrap_or_default());
        }
        let subresource = asked.subresource();
        if subresource == STATUS {
            new = with_status(&live, new.get(STATUS).cloned().unwrap_or_default());
        } else {
            keep_status(place, Some(&live), &mut new);
        }
        update(Some(&live), &mut new, Writer { manager: &asked.manager, time, subresource });
        self.change(asked, place, &live, new)
    }

    fn patch(&mut self, asked: &Asked, place: &Place, time: &str) -> Result<Served, Refusal> {
        match asked.content_type.as_str() {
            "application/apply-patch+yaml" if asked.subresource().is_empty() => {
                self.apply(asked, place, time)
            }
            "application/merge-patch+json" => {
                let mut new = self.find(place)?.clone();
                merge(&mut new, &asked.json()?);
                self.replace(asked, place, new, time)
            }
            "application/json-patch+json" => {
                let mut new = self.find(place)?.clone();
                for operation in asked.json()?.as_array().into_iter().flatten() {
                    edit(&mut new, operation)?;
                }
                self.replace(asked, place, new, time)
            }
            other => Err(Refusal::not_simulated(other)),
        }
    }

    fn apply(&mut self, asked: &Asked, place: &Place, time: &str) -> Result<Served, Refusal> {
        let mut wanted = asked.json()?;
        keep_status(place, None, &mut wanted);
        typed(place, &wanted)?;
        let live = self.objects.get(place).cloned();
        if live.is_none() {
            self.may_begin(place)?;
        }
        let (writer, force) =
            (Writer { manager: &asked.manager, time, subresource: "" }, asked.query("force") == "true");
        let merged = apply(live.as_ref(), &wanted, writer, force);
        let merged = merged.map_err(|conflicts| Refusal::owned_by_others(&conflicts))?;
        match (live, merged) {
            (None, Some(new)) => Ok(self.begin(asked, place.clone(), new, time)),
            (Some(live), Some(mut new)) => {
                keep_status(place, Some(&live), &mut new);
                self.change(asked, place, &live, new)
            }
            (live, None) => Ok(Served::Answer(StatusCode::OK, shown(live.unwrap_or_default(), asked.form))),
        }
    }

    /// An object becomes another one; it goes, if that is what it waited for.
    fn change(
        &mut self,
        asked: &Asked,
        place: &Place,
        live: &Value,
        mut new: Value,
    ) -> Result<Served, Refusal> {
        count_generation(place, Some(live), &mut new);
        if *place.kind == CONFIG_MAP
            && live.get("immutable").and_then(Value::as_bool) == Some(true)
            && live.get("data") != new.get("data")
        {
            let why = "Forbidden: field is immutable when `immutable` is set";
            return Err(Refusal::invalid(place.kind, &place.name, "data", "FieldValueForbidden", why));
        }
        let answered = if asked.is_dry_run() || new == *live {
            new
        } else if text(&new, "deletionTimestamp").is_some() && !waits(&new) {
            self.commit(place.clone(), None);
            new
        } else {
            self.commit(place.clone(), Some(new))
        };
        Ok(Served::Answer(StatusCode::OK, shown(answered, asked.form)))
    }

    fn delete(&mut self, asked: &Asked, place: &Place, time: &str) -> Result<Served, Refusal> {
        let mut live = self.find(place)?.clone();
        let options = if asked.body.is_empty() { Value::Null } else { asked.json()? };
        let wants = |key: &str| options.pointer(&format!("/preconditions/{key}")).and_then(Value::as_str);
        let unlike = |key: &str, words: &str, end: &str| {
            let (wanted, there) = (wants(key)?, text(&live, key).unwrap_or_default());
            (wanted != there).then(|| {
                let why = format!(
                    "the {words} in the precondition ({wanted}) does not match the {words} in record ({there}). The object might have been {end}"
                );
                Refusal::conflict(place.kind, &place.name, &why)
            })
        };
        if let Some(refusal) = unlike("uid", "UID", "deleted and then recreated")
            .or_else(|| unlike("resourceVersion", "ResourceVersion", "modified"))
        {
            return Err(refusal);
        }
        if *place.kind == NAMESPACE {
            return Err(Refusal::not_simulated("the end of a namespace"));
        }
        if asked.is_dry_run() {
            return Err(Refusal::not_simulated("a deletion that is none"));
        }
        if waits(&live) {
            if text(&live, "deletionTimestamp").is_none() {
                state(&mut live, &["metadata", "deletionTimestamp"], Value::String(time.to_owned()));
                state(&mut live, &["metadata", "deletionGracePeriodSeconds"], json!(0));
                live = self.commit(place.clone(), Some(live));
            }
            return Ok(Served::Answer(StatusCode::OK, shown(live, asked.form)));
        }
        self.commit(place.clone(), None);
        let details = place.kind.details(&place.name);
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Ok(Served::Answer(StatusCode::OK, status))
    }

    /// A controller of the cluster itself says how an object is doing, if it is still there.
    pub(super) fn report(&mut self, place: &Place, status: Value, writer: Writer<'_>) {
        let Some(live) = self.objects.get(place) else { return };
        let mut new = with_status(live, status);
        update(Some(live), &mut new, writer);
        if new != *live {
            self.commit(place.clone(), Some(new));
        }
    }

    fn commit(&mut self, place: Place, after: Option<Value>) -> Value {
        self.revision += 1;
        let after = after.map(|mut object| {
            state_version(&mut object, self.revision);
            object
        });
        let before = match &after {
            Some(object) => self.objects.insert(place.clone(), object.clone()),
            None => self.objects.remove(&place),
        };
        self.history.push_back(Change { revision: self.revision, place, before, after: after.clone() });
        after.unwrap_or_default()
    }
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(key)?.as_str()
}

/// Something has to be done before it may go.
fn waits(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
}

fn state_version(object: &mut Value, revision: u64) {
    state(object, &["metadata", "resourceVersion"], Value::String(revision.to_string()));
}

fn shown(object: Value, form: Form) -> Value {
    match form {
        Form::Whole => object,
        Form::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        }),
    }
}

/// Whether a manifest has the form of its kind, as far as it is looked at here: values of a ConfigMap are text.
fn typed(place: &Place, wanted: &Value) -> Result<(), Refusal> {
    let values = wanted.get("data").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in values.filter(|_| *place.kind == CONFIG_MAP) {
        if !value.is_string() {
            let why = format!(".data.{key}: expected string, got &value.valueUnstructured{{Value:{value}}}");
            return Err(Refusal::untyped(place.kind, &place.namespace, &place.name, &why));
        }
    }
    Ok(())
}
