//! What a request to a cluster's API asks for, out of its method, path and query.
//!
//! Reads paths as the API server's own `RequestInfoFactory` does (k8s.io/apiserver, `pkg/endpoints/request`), with two
//! differences, both to the safe side: a path that two readers may understand differently is refused, and whoever opens a
//! connection into a pod by `GET`, as a WebSocket is, does `create` (KEP-4006).

use std::borrow::Cow;

use events::attributes::{Attributes, ResourceTarget, Target};
use percent_encoding::percent_decode_str;

/// Roots of paths to objects: of the core group, and of all others.
const CORE: &str = "api";
const GROUPS: &str = "apis";
/// The one verb that a path may begin with behind its version; long deprecated and still served.
const WATCH: &str = "watch";
/// Parts of a namespace itself; what else stands behind its name lies in it.
const PARTS_OF_A_NAMESPACE: [&str; 2] = ["status", "finalize"];
/// Subresources of the core group that are a connection.
const CONNECTIONS: [(&str, &[&str]); 3] =
    [("pods", &["exec", "attach", "portforward", PROXY]), ("services", &[PROXY]), ("nodes", &[PROXY])];
/// Subresources that go on as long as they like.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", PROXY, LOG, "portforward"];
/// The subresource behind which somebody else answers.
const PROXY: &str = "proxy";
/// The one subresource that may be read over an upgraded connection.
const LOG: &str = "log";

/// A path that is not forwarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("the path does not begin with a slash")]
    Relative,
    /// A segment stands for another place.
    #[error("the path has a segment that stands for another place (`.` or `..`)")]
    Dots,
    /// Two slashes stand side by side.
    #[error("the path has an empty segment; write one slash instead of two")]
    Empty,
    /// A segment holds what separates segments.
    #[error("the path has an encoded slash or backslash in a segment")]
    Separator,
    /// A percent sign without two hexadecimal digits behind it, a control character, or what is no UTF-8.
    #[error("the path is not properly percent-encoded")]
    Encoding,
    /// Connections through the API server by `/proxy/` in front of the path ended with Kubernetes 1.10.
    #[error("this form of path was removed in Kubernetes 1.10; use the subresource `proxy`")]
    LegacyProxy,
    /// A verb in front of nothing.
    #[error("the path ends after `watch`")]
    NothingToWatch,
    /// No resource has such a name; together with its group it could be read as one of another group.
    #[error("the resource in the path has a dot in its name")]
    Resource,
    /// Readers of queries do not agree about it.
    #[error("the query has a semicolon or a percent sign that is not encoded")]
    Query,
}

/// What is asked for. `path` and `query` are as they stand in the request line; `upgrades` says whether the connection is to become
/// another protocol.
///
/// # Errors
/// For a path that nobody who means well writes.
pub fn attributes(
    method: &str,
    path: &str,
    query: Option<&str>,
    upgrades: bool,
) -> Result<Attributes, PathError> {
    let segments = segments(path)?;
    let segments: Vec<&str> = segments.iter().map(Cow::as_ref).collect();
    let (group, version, rest) = match segments.as_slice() {
        [CORE, version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        [GROUPS, group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => {
            segments.iter().try_for_each(|segment| plain(segment))?;
            let target = Target::Path(format!("/{}", segments.join("/")));
            return Ok(Attributes { verb: method.to_ascii_lowercase(), target });
        }
    };
    let (verb, rest) = match rest {
        ["proxy", ..] => return Err(PathError::LegacyProxy),
        [WATCH] => return Err(PathError::NothingToWatch),
        [WATCH, rest @ ..] => (WATCH, rest),
        rest => (verb_of(method), rest),
    };
    let (namespace, parts) = match rest {
        ["namespaces", namespace, part, ..] if PARTS_OF_A_NAMESPACE.contains(part) => (*namespace, rest),
        ["namespaces", namespace, parts @ ..] if !parts.is_empty() => (*namespace, parts),
        ["namespaces", namespace] => (*namespace, rest),
        rest => ("", rest),
    };
    // What stands behind a subresource `proxy` is another server's and may look as it likes.
    let anothers = if parts.get(2) == Some(&PROXY) { parts.len() - 3 } else { 0 };
    segments.iter().rev().skip(anothers).try_for_each(|segment| plain(segment))?;
    let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    let mut target = ResourceTarget {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
    };
    if target.resource.contains('.') {
        return Err(PathError::Resource);
    }
    let verb = if matches!(verb, "get" | WATCH) && is_connection(&target, upgrades) {
        "create"
    } else if target.name.is_empty() {
        let asked = Asked::of(query.unwrap_or_default())?;
        let of_many = match verb {
            "get" if asked.watches => WATCH,
            "get" => "list",
            "delete" => "deletecollection",
            verb => verb,
        };
        if verb == "get" {
            target.name = asked.name.unwrap_or_default();
        }
        of_many
    } else {
        verb
    };
    Ok(Attributes { verb: verb.to_owned(), target: Target::Resource(target) })
}

/// Whether a request may take as long as it likes, and its answer as long as it likes to begin: a log without a line has none yet. The
/// API server ends all others after a minute (k8s.io/apiserver, `BasicLongRunningRequestCheck`).
#[must_use]
pub fn is_long_running(attributes: &Attributes) -> bool {
    let Target::Resource(target) = &attributes.target else { return false };
    attributes.verb == WATCH || LONG_RUNNING.contains(&target.subresource.as_str())
}

/// Whether somebody behind the API server answers, and not it: a pod, say, whatever that is.
#[must_use]
pub fn is_answered_by_others(attributes: &Attributes) -> bool {
    matches!(&attributes.target, Target::Resource(target) if target.subresource == PROXY)
}

/// The verb of an HTTP method; empty for one that objects do not know.
fn verb_of(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

fn is_connection(target: &ResourceTarget, upgrades: bool) -> bool {
    let is_known = target.group.is_empty()
        && CONNECTIONS.iter().any(|(resource, subresources)| {
            target.resource == *resource && subresources.contains(&target.subresource.as_str())
        });
    is_known || (upgrades && !target.subresource.is_empty() && target.subresource != LOG)
}

/// The decoded segments of a path. None may stand for another place, wherever it stands itself.
fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, PathError> {
    let inner = path.strip_prefix('/').ok_or(PathError::Relative)?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    inner.split('/').map(segment).collect()
}

fn segment(raw: &str) -> Result<Cow<'_, str>, PathError> {
    let segment = decoded(raw)?;
    if segment.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        return Err(PathError::Dots);
    }
    Ok(segment)
}

/// Whether a segment is one for every reader.
fn plain(segment: &str) -> Result<(), PathError> {
    if segment.is_empty() {
        return Err(PathError::Empty);
    }
    if segment.contains(['/', '\\']) {
        return Err(PathError::Separator);
    }
    Ok(())
}

fn decoded(raw: &str) -> Result<Cow<'_, str>, PathError> {
    let is_encoded = |rest: &str| rest.bytes().take_while(u8::is_ascii_hexdigit).take(2).count() == 2;
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| PathError::Encoding)?;
    if raw.split('%').skip(1).all(is_encoded) && !text.bytes().any(|byte| byte.is_ascii_control()) {
        Ok(text)
    } else {
        Err(PathError::Encoding)
    }
}

/// What the query of a list says of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    watches: bool,
    /// The one object that a field selector leaves.
    name: Option<String>,
}

impl Asked {
    fn of(query: &str) -> Result<Self, PathError> {
        if query.contains(';') || decoded(query).is_err() {
            return Err(PathError::Query);
        }
        let first = |key: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == key).map(|(_, value)| value)
        };
        // Only no value, `0` and `false` mean no (k8s.io/apimachinery, `Convert_Slice_string_To_bool`).
        let watches = first(WATCH).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
        let name = first("fieldSelector").and_then(|selector| name_in(&selector));
        Ok(Self { watches, name })
    }
}

/// The name in a field selector such as `metadata.name=web`. The API server also reads escaped commas; no object has such a name.
fn name_in(selector: &str) -> Option<String> {
    if selector.contains('\\') {
        return None;
    }
    let name = selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    })?;
    let is_name = !name.is_empty() && !name.contains(['/', '%']) && !matches!(name, "." | "..");
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests;
