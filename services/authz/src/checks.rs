//! What people type, checked: names, paths, repositories, hosts.

use events::Refusal;

/// Longest name of a group, project, organization, credential or agent.
const MAXIMUM_NAME: usize = 63;
/// Longest login name.
const MAXIMUM_LOGIN: usize = 128;
/// Longest repository, branch or host.
const MAXIMUM_TEXT: usize = 2048;

/// A name of a group, project, organization, credential or agent: it stands in paths and in Kubernetes objects.
///
/// # Errors
/// What is allowed.
pub fn name(field: &str, text: &str) -> Result<(), Refusal> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    let good = !text.is_empty()
        && text.len() <= MAXIMUM_NAME
        && bytes.iter().all(|byte| inner(*byte))
        && edge(bytes.first())
        && edge(bytes.last());
    if !good {
        let message = format!(
            "must be 1 to {MAXIMUM_NAME} lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
        );
        return Err(Refusal::invalid(field, message));
    }
    // An all-digit name of a project could not be told from an external id, and a UUID not from an id.
    if bytes.iter().all(u8::is_ascii_digit) || uuid::Uuid::parse_str(text).is_ok() {
        return Err(Refusal::invalid(
            field,
            "must not read like an id: use at least one letter, and no UUID",
        ));
    }
    Ok(())
}

/// A login name: an e-mail address is one.
///
/// # Errors
/// What is allowed. The name itself is not repeated.
pub fn login(field: &str, text: &str) -> Result<(), Refusal> {
    let good = !text.is_empty()
        && text.len() <= MAXIMUM_LOGIN
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-+@".contains(&byte))
        && uuid::Uuid::parse_str(text).is_err();
    if good {
        return Ok(());
    }
    let message =
        format!("must be 1 to {MAXIMUM_LOGIN} lower-case letters, digits and . _ - + @, and no UUID");
    Err(Refusal::invalid(field, message))
}

/// What a token is called: any printable text.
///
/// # Errors
/// What is allowed.
pub fn label(field: &str, text: &str) -> Result<(), Refusal> {
    if !text.is_empty() && text.chars().count() <= MAXIMUM_NAME && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("must be 1 to {MAXIMUM_NAME} printable characters")))
}

/// `group/name`.
///
/// # Errors
/// What is allowed.
pub fn project_path(text: &str) -> Result<(&str, &str), Refusal> {
    let (group, project) = text
        .split_once('/')
        .filter(|(_, project)| !project.contains('/'))
        .ok_or_else(|| Refusal::invalid("path", "must be group/name, such as shop/deployment"))?;
    name("path", group)?;
    name("path", project)?;
    Ok((group, project))
}

/// Where a repository is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// Over HTTP(S): host, with port where it is not the scheme's own.
    Http {
        /// `host` or `host:port`.
        host: &'a str,
        /// Whether it is encrypted on the way.
        encrypted: bool,
    },
    /// A path on the server. Whether such are allowed, the operator says to repo-poller.
    Local,
}

/// The place that a repository names.
///
/// # Errors
/// A scheme that is not known, or a user name or password in the URL. The text is not repeated: it may hold a secret.
pub fn repository(text: &str) -> Result<Location<'_>, Refusal> {
    let wrong = |message: &str| Refusal::invalid("repository", message);
    if text.len() > MAXIMUM_TEXT || text.chars().any(|character| character.is_control() || character == ' ') {
        return Err(wrong("must be a URL or an absolute path of at most 2048 characters without spaces"));
    }
    if text.starts_with('/') || text.starts_with("file:///") {
        return Ok(Location::Local);
    }
    let (encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => {
            return Err(wrong(
                "must begin with https://, http://, file:/// or / (other protocols are not supported)",
            ));
        }
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(wrong("must not contain a user name or password: create a credential and name it"));
    }
    if authority.is_empty() {
        return Err(wrong("names no host"));
    }
    let own_port = if encrypted { ":443" } else { ":80" };
    Ok(Location::Http { host: authority.strip_suffix(own_port).unwrap_or(authority), encrypted })
}

/// The host that a credential is bound to.
///
/// # Errors
/// What is allowed.
pub fn host(text: &str) -> Result<(), Refusal> {
    let good = !text.is_empty()
        && text.len() <= 255
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
        && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if good {
        return Ok(());
    }
    Err(Refusal::invalid(
        "host",
        "must be a host in lower case, with :port if it differs from the scheme's default",
    ))
}

/// A branch, after Git's own rules for the last part of a ref's name.
///
/// # Errors
/// What is allowed.
pub fn branch(text: &str) -> Result<(), Refusal> {
    let forbidden = |character: char| character.is_control() || " ~^:?*[\\".contains(character);
    let bad = text.is_empty()
        || text.len() > 255
        || text.chars().any(forbidden)
        || text.starts_with(['/', '-', '.'])
        || text.ends_with(['/', '.'])
        || ["..", "//", "@{", "/."].iter().any(|part| text.contains(part))
        || text.split('/').any(|part| part.ends_with(".lock"));
    if bad {
        return Err(Refusal::invalid("default_branch", "is not a name that Git allows for a branch"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_that_read_like_no_id() {
        for good in ["a", "shop", "shop-2", "2shop", &"a".repeat(63)] {
            assert_eq!(name("name", good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a_b",
            "a.b",
            "a/b",
            "17",
            "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55",
            &"a".repeat(64),
        ] {
            assert_eq!(name("path", bad).unwrap_err().field.as_deref(), Some("path"), "{bad}");
        }
    }

    #[test]
    fn a_repository_with_a_password_is_refused_without_repeating_it() {
        let refusal = repository("https://me:hunter2@git.example/shop.git").unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("repository"));
        assert!(!refusal.message.contains("hunter2"));
        assert!(repository("https://token@git.example/shop.git").is_err());
    }

    #[test]
    fn a_repository_names_its_host() {
        let host = |text| match repository(text) {
            Ok(Location::Http { host, .. }) => Some(host),
            _ => None,
        };
        assert_eq!(host("https://git.example/shop.git"), Some("git.example"));
        assert_eq!(host("https://git.example:443/shop.git"), Some("git.example"));
        assert_eq!(host("http://git.example:443/shop.git"), Some("git.example:443"));
        assert_eq!(host("http://127.0.0.1:8080/shop.git"), Some("127.0.0.1:8080"));
        assert_eq!(repository("/srv/git/shop.git"), Ok(Location::Local));
        for bad in [
            "ssh://git@git.example/shop",
            "git.example/shop",
            "https:///shop",
            "https://a b",
            "",
            "file://host/x",
        ] {
            assert!(repository(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn branches_are_what_git_allows() {
        for good in ["main", "release/1.2", "a-b_c"] {
            assert_eq!(branch(good), Ok(()), "{good}");
        }
        for bad in ["", "-x", "a..b", "a b", "a:b", "x.lock", "a/.b", "/a", "a/", "a@{1}"] {
            assert!(branch(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn login_names_take_mail_addresses() {
        assert_eq!(login("name", "ada+ops@example.com"), Ok(()));
        assert!(login("name", "Ada").is_err());
        assert!(login("name", "").is_err());
    }
}
