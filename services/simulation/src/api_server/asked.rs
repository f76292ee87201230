//! A request, read.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::kinds::Kind;
use super::refusal::Refusal;
use super::specified::STATUS;

/// In which form objects are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Metadata,
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// Of the core, or of the groups.
    Discovery { core: bool },
    /// Empty namespace: all.
    Collection { kind: &'static Kind, namespace: String },
    /// One object.
    Object(Place),
    /// The status of one.
    Status(Place),
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) kind: &'static Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Which objects by their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selector {
    All,
    Has(String),
    In(String, Vec<String>),
    /// Of this name.
    Name(String),
}

impl Selector {
    fn read(text: &str) -> Result<Self, Refusal> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::All);
        }
        if let Some((key, values)) = text.split_once(" in ") {
            let values = values.trim().trim_start_matches('(').trim_end_matches(')');
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            return Ok(Self::In(key.trim().to_owned(), values));
        }
        if let Some((key, value)) = text.split_once('=') {
            return Ok(Self::In(key.to_owned(), vec![value.trim_start_matches('=').to_owned()]));
        }
        if text.contains([' ', ',', '!']) {
            return Err(Refusal::not_simulated("a selector of this form"));
        }
        Ok(Self::Has(text.to_owned()))
    }

    pub(super) fn takes(&self, object: &Value) -> bool {
        let label = |key: &str| object.pointer("/metadata/labels")?.get(key)?.as_str();
        match self {
            Self::All => true,
            Self::Has(key) => label(key).is_some(),
            Self::In(key, values) => label(key).is_some_and(|own| values.iter().any(|value| value == own)),
            Self::Name(name) => object.pointer("/metadata/name").and_then(Value::as_str) == Some(name),
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) about: About,
    pub(super) form: Form,
    pub(super) manager: String,
    pub(super) content_type: String,
    pub(super) body: Bytes,
    query: BTreeMap<String, String>,
}

impl Asked {
    pub(super) fn read(request: Request<Bytes>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if parts.headers.contains_key("impersonate-user") {
            return Err(Refusal::not_simulated("impersonation"));
        }
        let query = query_of(parts.uri.query().unwrap_or_default());
        let agent = header(header::USER_AGENT).split('/').next().unwrap_or_default();
        let manager = query.get("fieldManager").cloned().unwrap_or_else(|| agent.to_owned());
        let form = match header(header::ACCEPT) {
            accept if accept.contains("as=PartialObjectMetadata") => Form::Metadata,
            _ => Form::Whole,
        };
        Ok(Self {
            about: About::read(parts.uri.path())?,
            form,
            manager,
            content_type: header(header::CONTENT_TYPE).to_owned(),
            method: parts.method,
            body,
            query,
        })
    }

    pub(super) fn query(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.query("dryRun") == "All"
    }

    /// The part of an object that is meant; empty: the object itself.
    pub(super) const fn subresource(&self) -> &'static str {
        if matches!(self.about, About::Status(_)) { STATUS } else { "" }
    }

    pub(super) fn is_watch(&self) -> bool {
        matches!(self.query("watch"), "1" | "true")
    }

    /// Whether the cluster may be another one afterwards.
    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET && !self.is_dry_run()
    }

    pub(super) fn selector(&self) -> Result<Selector, Refusal> {
        match self.query("fieldSelector") {
            "" => Selector::read(self.query("labelSelector")),
            fields => match fields.strip_prefix("metadata.name=") {
                Some(name) => Ok(Selector::Name(name.to_owned())),
                None => Err(Refusal::not_simulated("a selector of other fields")),
            },
        }
    }

    pub(super) fn json(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body).map_err(|error| Refusal::bad_request(&error.to_string()))
    }
}

impl About {
    pub(super) fn read(path: &str) -> Result<Self, Refusal> {
        let segments: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api"] => return Ok(Self::Discovery { core: true }),
            ["apis"] => return Ok(Self::Discovery { core: false }),
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Refusal::no_such_path()),
        };
        let (rest, is_status) = match rest {
            [rest @ .., "status"] if rest.len() == 4 => (rest, true),
            rest => (rest, false),
        };
        let (plural, namespace, name) = match rest {
            [plural] => (*plural, "", None),
            ["namespaces", name] => ("namespaces", "", Some(*name)),
            ["namespaces", namespace, plural] => (*plural, *namespace, None),
            ["namespaces", namespace, plural, name] => (*plural, *namespace, Some(*name)),
            _ => return Err(Refusal::no_such_path()),
        };
        let kind = Kind::find(group, version, plural).filter(|kind| kind.has_status() || !is_status);
        let (kind, namespace) = (kind.ok_or_else(Refusal::no_such_path)?, namespace.to_owned());
        Ok(match name.map(|name| Place { kind, namespace: namespace.clone(), name: name.to_owned() }) {
            Some(place) if is_status => Self::Status(place),
            Some(place) => Self::Object(place),
            None => Self::Collection { kind, namespace },
        })
    }
}

fn query_of(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), percent_decode_str(value).decode_utf8_lossy().into_owned()))
        .collect()
}
