//! Who manages which field: server-side apply and `metadata.managedFields`. Maps are merged key by key, everything else is one
//! value. In the real one each container and each condition of a Deployment is managed by itself; nobody here shares them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The names on the way to a field.
type Path = Vec<String>;

/// What no manager has.
const UNMANAGED: [&str; 2] = ["apiVersion", "kind"];
const UNMANAGED_METADATA: [&str; 10] = [
    "name",
    "namespace",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// How somebody writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Managed {
    manager: String,
    operation: Operation,
    api_version: String,
    time: String,
    /// Empty: the object itself.
    subresource: String,
    fields: BTreeSet<Path>,
}

impl Managed {
    /// As messages name it.
    fn words(&self) -> String {
        match self.operation {
            Operation::Apply => format!("{:?}", self.manager),
            Operation::Update => format!("{:?} using {}", self.manager, self.api_version),
        }
    }
}

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) manager: &'a str,
    pub(super) time: &'a str,
    /// Empty: the object itself.
    pub(super) subresource: &'a str,
}

/// A field that somebody else has with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Such as `conflict with "kubectl-edit" using v1`.
    pub(super) message: String,
    /// Such as `.data.key`.
    pub(super) field: String,
}

/// Values by where they stand.
fn leaves(object: &Value) -> BTreeMap<Path, Value> {
    fn walk(value: &Value, path: &mut Path, found: &mut BTreeMap<Path, Value>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (name, below) in map {
                    path.push(name.clone());
                    walk(below, path, found);
                    path.pop();
                }
            }
            other => {
                found.insert(path.clone(), other.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(object, &mut Vec::new(), &mut found);
    found.retain(|path, _| match path.first().map(String::as_str) {
        None => false,
        Some("metadata") => path.get(1).is_some_and(|name| !UNMANAGED_METADATA.contains(&name.as_str())),
        // A status that says nothing is nobody's.
        Some("status") => path.len() > 1,
        Some(name) => !UNMANAGED.contains(&name),
    });
    found
}

fn put(object: &mut Value, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        put(map.entry(name.clone()).or_insert(Value::Null), rest, value);
    }
}

/// Takes a field out, and each map that is empty then.
fn take(object: &mut Value, path: &[String]) {
    let (Some(map), Some((name, rest))) = (object.as_object_mut(), path.split_first()) else { return };
    if rest.is_empty() {
        map.remove(name);
    } else if let Some(below) = map.get_mut(name) {
        take(below, rest);
        if below.as_object().is_some_and(Map::is_empty) {
            map.remove(name);
        }
    }
}

fn read(object: &Value) -> Vec<Managed> {
    fn walk(set: &Value, path: &mut Path, fields: &mut BTreeSet<Path>) {
        let below: Vec<(&str, &Value)> = set
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, below)| Some((name.strip_prefix("f:")?, below)))
            .collect();
        if below.is_empty() && !path.is_empty() {
            fields.insert(path.clone());
        }
        for (name, below) in below {
            path.push(name.to_owned());
            walk(below, path, fields);
            path.pop();
        }
    }
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = if text("operation") == "Apply" { Operation::Apply } else { Operation::Update };
            let mut fields = BTreeSet::new();
            walk(entry.get("fieldsV1").unwrap_or(&Value::Null), &mut Vec::new(), &mut fields);
            Managed {
                manager: text("manager"),
                operation,
                api_version: text("apiVersion"),
                time: text("time"),
                subresource: text("subresource"),
                fields,
            }
        })
        .collect()
}

fn write(object: &mut Value, managed: &[Managed]) {
    let entries = managed.iter().filter(|managed| !managed.fields.is_empty()).map(|managed| {
        let mut set = json!({});
        for field in &managed.fields {
            let path: Vec<String> = field.iter().map(|name| format!("f:{name}")).collect();
            put(&mut set, &path, json!({}));
        }
        let mut entry = json!({
            "manager": managed.manager, "operation": managed.operation.name(), "apiVersion": managed.api_version,
            "time": managed.time, "fieldsType": "FieldsV1", "fieldsV1": set,
        });
        if !managed.subresource.is_empty() {
            put(&mut entry, &["subresource".to_owned()], Value::String(managed.subresource.clone()));
        }
        entry
    });
    let entries = Value::Array(entries.collect());
    put(object, &["metadata".to_owned(), "managedFields".to_owned()], entries);
}

fn api_version(object: &Value) -> String {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The live object with what a manager applies; `None`: it is as it would be, and so is who manages it.
pub(super) fn apply(
    live: Option<&Value>,
    wanted: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Option<Value>, Vec<Conflict>> {
    let before = live.map(leaves).unwrap_or_default();
    let new = leaves(wanted);
    let mut managed = live.map(read).unwrap_or_default();
    let is_own = |one: &Managed| one.manager == writer.manager && one.operation == Operation::Apply;
    let changed: BTreeSet<&Path> =
        new.iter().filter(|(path, value)| before.get(*path) != Some(*value)).map(|(path, _)| path).collect();
    let mut conflicts = Vec::new();
    for other in managed.iter_mut().filter(|one| !is_own(one)) {
        if force {
            other.fields.retain(|field| !changed.contains(field));
            continue;
        }
        let words = other.words();
        conflicts.extend(other.fields.iter().filter(|field| changed.contains(field)).map(|field| Conflict {
            message: format!("conflict with {words}"),
            field: format!(".{}", field.join(".")),
        }));
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let former = managed.iter().find(|one| is_own(one)).map(|one| one.fields.clone()).unwrap_or_default();
    managed.retain(|one| !is_own(one));
    let given_up = former.iter().filter(|field| !new.contains_key(*field));
    let gone: Vec<&Path> =
        given_up.filter(|field| !managed.iter().any(|other| other.fields.contains(*field))).collect();
    let fields: BTreeSet<Path> = new.keys().cloned().collect();
    if live.is_some() && changed.is_empty() && gone.is_empty() && fields == former {
        return Ok(None);
    }
    let mut merged = live.unwrap_or(wanted).clone();
    for path in gone {
        take(&mut merged, path);
    }
    for (path, value) in new {
        put(&mut merged, &path, value);
    }
    managed.push(Managed {
        manager: writer.manager.to_owned(),
        operation: Operation::Apply,
        api_version: api_version(wanted),
        time: writer.time.to_owned(),
        subresource: String::new(),
        fields,
    });
    write(&mut merged, &managed);
    Ok(Some(merged))
}

/// Says who manages the fields of an object that somebody creates or replaces.
pub(super) fn update(live: Option<&Value>, new: &mut Value, writer: Writer<'_>) {
    let states = new.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null());
    let mut managed = if states { read(new) } else { live.map(read).unwrap_or_default() };
    let (before, after) = (live.map(leaves).unwrap_or_default(), leaves(new));
    let changed: BTreeSet<Path> = after
        .iter()
        .filter(|(path, value)| before.get(*path) != Some(*value))
        .map(|(path, _)| path.clone())
        .collect();
    let is_own = |one: &Managed| {
        one.operation == Operation::Update
            && (one.manager.as_str(), one.subresource.as_str()) == (writer.manager, writer.subresource)
    };
    for one in &mut managed {
        let own = is_own(one);
        one.fields.retain(|field| after.contains_key(field) && (own || !changed.contains(field)));
    }
    if !changed.is_empty() {
        let mut fields = changed;
        if let Some(place) = managed.iter().position(is_own) {
            fields.extend(managed.swap_remove(place).fields);
        }
        managed.push(Managed {
            manager: writer.manager.to_owned(),
            operation: Operation::Update,
            api_version: api_version(new),
            time: writer.time.to_owned(),
            subresource: writer.subresource.to_owned(),
            fields,
        });
    }
    write(new, &managed);
}
