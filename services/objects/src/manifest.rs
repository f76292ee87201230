//! From the text of a file to the objects that are to be applied.
//!
//! Accepts what `kubectl apply --server-side` would send to the API server and refuses what kubectl itself
//! refuses, so that the API server's own validation is the only other judge. Refused beyond that, each with a
//! message that says so: hooks, which are not supported yet; content that kubectl would drop without a word (see
//! [`crate::yaml`]), as keys that stand twice and separators that are none; files without any object are not refused, they have none.

use serde_json::Value as Json;
use thiserror::Error;

use crate::digest::{Sha256, canonicalize, object_digest};
use crate::identity::{Identity, key_in, split_api_version};
use crate::ownership::{OWNER_ANNOTATION, SOURCE_LABEL, policies_of};
use crate::yaml::{Document, Duplicate, Limits, Node, Value, YamlError, load_documents};

/// One object of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Which object it is. The namespace is empty where the file names none.
    pub identity: Identity,
    /// The object, canonical: serializing it gives the bytes that `digest` covers.
    pub object: Json,
    /// The file that it came from, as it was given.
    pub file: String,
    /// Line where the object starts, from 1.
    pub line: u32,
    /// SHA-256 over the canonical encoding.
    pub digest: Sha256,
    /// What is accepted but surely not meant.
    pub warnings: Vec<Warning>,
}

/// Something in a file that is accepted but surely not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Line, from 1.
    pub line: u32,
    /// What, and what happens.
    pub message: String,
}

/// Why a file is refused, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct ManifestError {
    /// The file, as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong and what to do.
    pub message: String,
}

/// Reads all objects of a file; lists are taken apart.
///
/// # Errors
/// The first thing in the file that cannot be applied, with its place.
pub fn parse_manifests(file: &str, text: &str, limits: &Limits) -> Result<Vec<Manifest>, ManifestError> {
    let refuse = |error: YamlError| ManifestError {
        file: file.to_owned(),
        line: error.line,
        column: error.column,
        message: error.message,
    };
    let mut manifests = Vec::new();
    for document in load_documents(text, limits).map_err(refuse)? {
        document_objects(file, &document, &mut manifests).map_err(refuse)?;
    }
    Ok(manifests)
}

/// What to say about a folder that holds a file of this name (the last part of its path): it has to be rendered,
/// which is not supported yet. `None` for all other names.
#[must_use]
pub fn refused_folder(file_name: &str) -> Option<&'static str> {
    match file_name {
        "kustomization.yaml" | "kustomization.yml" | "Kustomization" => Some(
            "a kustomization has to be rendered, which is not supported yet; exclude the folder or commit the \
             rendered manifests",
        ),
        "Chart.yaml" => Some(
            "a Helm chart has to be rendered, which is not supported yet; exclude the folder or commit the \
             rendered manifests",
        ),
        _ => None,
    }
}

/// Pairs of manifests that name the same object, the earlier one first: same group, kind, namespace and name,
/// whatever the version, where no namespace means `default_namespace`. A third one is paired with the first.
#[must_use]
pub fn find_duplicates(manifests: &[Manifest], default_namespace: &str) -> Vec<(usize, usize)> {
    let mut first = std::collections::BTreeMap::new();
    let mut pairs = Vec::new();
    for (index, manifest) in manifests.iter().enumerate() {
        match first.entry(key_in(&manifest.identity, default_namespace)) {
            std::collections::btree_map::Entry::Occupied(entry) => pairs.push((*entry.get(), index)),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(index);
            }
        }
    }
    pairs
}

fn document_objects(file: &str, document: &Document, into: &mut Vec<Manifest>) -> Result<(), YamlError> {
    refuse_lost(document)?;
    let root = &document.root;
    if root.as_sequence().is_some() {
        return Err(at(
            root,
            "a list at the top; write one object per document, or use 'kind: List' with 'items'",
        ));
    }
    if root.as_mapping().is_none() {
        return Err(at(root, format!("{} where an object is expected", root.kind())));
    }
    match root.get("items") {
        None => into.push(manifest(file, root, None)?),
        Some(items) => list_objects(file, root, items, into)?,
    }
    Ok(())
}

/// Of a key that stands twice only one value would count, and with a separator that is none a whole object would be lost.
fn refuse_lost(document: &Document) -> Result<(), YamlError> {
    let separator = document.false_separators.iter().min();
    let Some(duplicate) = document.duplicates.iter().min_by_key(|key| (key.line, key.column)) else {
        return separator.map_or(Ok(()), |(line, column)| {
            let message = "text that ends in '---', which separates documents only on a line of its own; write that \
                           line, or the text in quotes";
            Err(YamlError::new(*line, *column, message))
        });
    };
    let hint = match separator.filter(|(line, _)| *line < duplicate.line) {
        Some((line, _)) => format!(
            "; line {line} ends in '---', which separates documents only on a line of its own, at its beginning"
        ),
        None if duplicate.path.is_empty()
            && ["apiVersion", "kind", "metadata"].contains(&&*duplicate.key) =>
        {
            "; two objects need a line '---' between them".to_owned()
        }
        None => String::new(),
    };
    let Duplicate { path, key, line, column, first_line } = duplicate;
    let place = if path.is_empty() { "the object" } else { path };
    let message = format!(
        "the key '{key}' is already in {place}, in line {first_line}; only one of the two would count, remove the other{hint}"
    );
    Err(YamlError::new(*line, *column, message))
}

/// An item of a typed list (`PodList`) may leave out apiVersion and kind, which the list then tells.
fn list_objects(file: &str, list: &Node, items: &Node, into: &mut Vec<Manifest>) -> Result<(), YamlError> {
    let api_version = required_text(list, "apiVersion")?;
    let kind = required_text(list, "kind")?;
    if items.is_null() {
        return Ok(());
    }
    let Some(items) = items.as_sequence() else {
        return Err(at(items, format!("items of a list must be a list, this is {}", items.kind())));
    };
    let item_kind = kind.strip_suffix("List").unwrap_or(kind);
    for item in items {
        if item.as_mapping().is_none() {
            return Err(at(item, format!("{} where an object of the list is expected", item.kind())));
        }
        if item.get("items").is_some() {
            return Err(at(item, "a list inside a list; put its objects into the outer one"));
        }
        into.push(manifest(file, item, Some((api_version, item_kind)))?);
    }
    Ok(())
}

fn manifest(file: &str, node: &Node, from_list: Option<(&str, &str)>) -> Result<Manifest, YamlError> {
    let told = from_list
        .filter(|(_, kind)| !kind.is_empty() && !has_text(node, "apiVersion") && !has_text(node, "kind"));
    let (api_version, kind) = match told {
        Some(told) => told,
        None => (required_text(node, "apiVersion")?, required_text(node, "kind")?),
    };
    let (group, version) = split_api_version(api_version).ok_or_else(|| {
        let place = node.get("apiVersion").unwrap_or(node);
        at(place, format!("apiVersion '{api_version}' is not of the form 'version' or 'group/version'"))
    })?;
    let metadata = metadata(node)?;
    refuse_hooks(metadata)?;
    let identity = Identity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace(metadata)?,
        name: name(metadata)?,
    };
    let mut object = canonicalize(node.to_json());
    if let (Some((api_version, kind)), Some(map)) = (told, object.as_object_mut()) {
        map.insert("apiVersion".to_owned(), api_version.into());
        map.insert("kind".to_owned(), kind.into());
        object = canonicalize(object);
    }
    if let Err(error) = policies_of(&object) {
        let place = annotation(metadata, error.annotation).unwrap_or(metadata);
        return Err(at(place, error.to_string()));
    }
    let digest = object_digest(&object);
    let warnings = mark_warnings(metadata);
    Ok(Manifest { identity, object, file: file.to_owned(), line: node.line, digest, warnings })
}

fn at(node: &Node, message: impl Into<String>) -> YamlError {
    YamlError::new(node.line, node.column, message)
}

fn has_text(node: &Node, key: &str) -> bool {
    node.get(key).and_then(Node::as_str).is_some_and(|text| !text.is_empty())
}

fn required_text<'a>(node: &'a Node, key: &str) -> Result<&'a str, YamlError> {
    let example = if key == "kind" { "kind: ConfigMap" } else { "apiVersion: v1" };
    match node.get(key) {
        None => Err(at(node, format!("the object has no {key}; add one, such as '{example}'"))),
        Some(value) => match &value.value {
            Value::String(text) if !text.is_empty() => Ok(text),
            Value::String(_) | Value::Null => {
                Err(at(value, format!("{key} is empty; write one, such as '{example}'")))
            }
            _ => Err(at(value, format!("{key} must be text, this is {}", value.kind()))),
        },
    }
}

fn metadata(node: &Node) -> Result<&Node, YamlError> {
    match node.get("metadata") {
        Some(metadata) if metadata.as_mapping().is_some() => Ok(metadata),
        Some(metadata) if !metadata.is_null() => {
            Err(at(metadata, format!("metadata must be a mapping, this is {}", metadata.kind())))
        }
        _ => Err(at(node, "the object has no metadata.name; add one")),
    }
}

fn name(metadata: &Node) -> Result<String, YamlError> {
    let message = match metadata.get("name") {
        Some(name) => match &name.value {
            Value::String(text) if !text.is_empty() => return path_part(name, "metadata.name", text),
            Value::String(_) | Value::Null => return Err(at(name, "metadata.name is empty; write one")),
            _ => {
                let message =
                    format!("metadata.name must be text, this is {}; write it in quotes", name.kind());
                return Err(at(name, message));
            }
        },
        None if metadata.get("generateName").is_some_and(|prefix| !prefix.is_null()) => {
            "metadata.generateName makes a new object each time it is applied; give the object a metadata.name"
        }
        None => "the object has no metadata.name; add one",
    };
    Err(at(metadata, message))
}

fn namespace(metadata: &Node) -> Result<String, YamlError> {
    match metadata.get("namespace") {
        None => Ok(String::new()),
        Some(namespace) => match &namespace.value {
            Value::Null => Ok(String::new()),
            Value::String(text) if text.is_empty() => Ok(String::new()),
            Value::String(text) => path_part(namespace, "metadata.namespace", text),
            _ => {
                let kind = namespace.kind();
                Err(at(
                    namespace,
                    format!("metadata.namespace must be text, this is {kind}; write it in quotes"),
                ))
            }
        },
    }
}

/// Names become parts of request paths, so what could lead elsewhere is refused.
fn path_part(node: &Node, field: &str, text: &str) -> Result<String, YamlError> {
    let wrong =
        text == "." || text == ".." || text.contains(['/', '%']) || text.chars().any(char::is_control);
    if wrong {
        return Err(at(
            node,
            format!("{field} must not be '.' or '..' or contain '/', '%' or control characters"),
        ));
    }
    Ok(text.to_owned())
}

fn annotation<'a>(metadata: &'a Node, key: &str) -> Option<&'a Node> {
    metadata.get("annotations")?.entry(key).map(|(key, _)| key)
}

fn refuse_hooks(metadata: &Node) -> Result<(), YamlError> {
    for hook in ["argocd.argoproj.io/hook", "helm.sh/hook"] {
        if let Some(key) = annotation(metadata, hook) {
            let message = format!(
                "the annotation {hook} makes this object a hook; hooks are not supported yet, remove the annotation \
                 or exclude the file"
            );
            return Err(at(key, message));
        }
    }
    Ok(())
}

/// The owner mark is the agent's to write: one in a file comes from a copied live object.
fn mark_warnings(metadata: &Node) -> Vec<Warning> {
    let label = metadata.get("labels").and_then(|labels| labels.entry(SOURCE_LABEL)).map(|(key, _)| key);
    [(label, SOURCE_LABEL), (annotation(metadata, OWNER_ANNOTATION), OWNER_ANNOTATION)]
        .into_iter()
        .filter_map(|(key, name)| {
            key.map(|key| Warning {
                line: key.line,
                message: format!("{name} is overwritten by the agent; remove it"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
