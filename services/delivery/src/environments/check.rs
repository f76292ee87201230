//! What callers say of environments and deployments, checked.

use events::Refusal;
use events::environment::{
    DEPLOYERS_PER_ENVIRONMENT, EnvironmentSettings, Grouping, LONGEST_AUTO_STOP_SECONDS, LONGEST_NAMESPACE,
    LONGEST_URL, SHORTEST_AUTO_STOP_SECONDS,
};

/// Longest name of a label, with its prefix.
const LONGEST_LABEL: usize = 317;

/// A text that is not too long and can be printed.
///
/// # Errors
/// What is allowed.
pub(crate) fn text(field: &str, text: &str, longest: usize) -> Result<(), Refusal> {
    if text.chars().count() <= longest && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("must be at most {longest} printable characters; shorten it")))
}

/// A page of the web: no other scheme, and no secret in it.
///
/// # Errors
/// What is allowed. The text is not repeated: it may hold a secret.
pub(crate) fn url(field: &str, address: &str) -> Result<(), Refusal> {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(Refusal::invalid(field, "must begin with https:// or http://"));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return Err(Refusal::invalid(field, "must name a host, and no user name or password; remove them"));
    }
    if address.contains(' ') {
        return Err(Refusal::invalid(field, "must not contain spaces; write %20"));
    }
    text(field, address, LONGEST_URL)
}

/// The settings of an environment.
///
/// # Errors
/// What is wrong with them.
pub(super) fn settings(settings: &EnvironmentSettings) -> Result<(), Refusal> {
    if let Some(address) = &settings.url {
        url("url", address)?;
    }
    if let Some(namespace) = &settings.namespace {
        text("namespace", namespace, LONGEST_NAMESPACE)?;
    }
    let range = SHORTEST_AUTO_STOP_SECONDS..=LONGEST_AUTO_STOP_SECONDS;
    if settings.auto_stop_seconds.is_some_and(|seconds| !range.contains(&seconds)) {
        let message = format!(
            "must be {SHORTEST_AUTO_STOP_SECONDS} to {LONGEST_AUTO_STOP_SECONDS} seconds, or 0 for never"
        );
        return Err(Refusal::invalid("auto_stop_seconds", message));
    }
    if let Some(Grouping::Labels { project, environment }) = &settings.grouping {
        for label in [project, environment] {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
            if label.is_empty() || label.len() > LONGEST_LABEL || !label.chars().all(fits) {
                return Err(Refusal::invalid("grouping", format!("{label:?} is not the key of a label")));
            }
        }
    }
    if settings.deployers.len() > DEPLOYERS_PER_ENVIRONMENT {
        let message = format!("more than {DEPLOYERS_PER_ENVIRONMENT} projects; name fewer of them");
        return Err(Refusal::invalid("deployers", message));
    }
    Ok(())
}
