//! Where a repository is, out of what a project says.

use std::path::PathBuf;

use crate::git::GitError;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Behind HTTP or HTTPS.
    Remote(RemoteUrl),
    /// A folder of this machine.
    Local(PathBuf),
}

/// An HTTP(S) URL of a repository, without credentials, query and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// With TLS.
    pub secure: bool,
    /// Host, with port where it is not the scheme's own.
    pub authority: String,
    /// Path, without a final slash.
    pub path: String,
}

impl Location {
    /// Reads the repository of a project's settings.
    ///
    /// # Errors
    /// `Refused` for what is not supported or names a credential.
    pub fn parse(repository: &str) -> Result<Self, GitError> {
        if let Some(path) = repository.strip_prefix("file://") {
            return local(path);
        }
        if repository.starts_with('/') {
            return local(repository);
        }
        if let Some((scheme, rest)) = repository.split_once("://") {
            return match scheme.to_ascii_lowercase().as_str() {
                "https" => RemoteUrl::parse(true, rest).map(Self::Remote),
                "http" => RemoteUrl::parse(false, rest).map(Self::Remote),
                "ssh" | "git+ssh" => Err(ssh()),
                other => Err(GitError::refused(format!(
                    "repositories over {other} are not supported; use the repository's https URL"
                ))),
            };
        }
        if repository.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err(ssh());
        }
        Err(GitError::refused("the repository is neither an http(s) URL nor an absolute path; set it to one"))
    }
}

fn ssh() -> GitError {
    GitError::refused(
        "repositories over SSH are not supported; use the repository's https URL with a credential",
    )
}

fn local(path: &str) -> Result<Location, GitError> {
    let path = PathBuf::from(path);
    if path.is_absolute() {
        Ok(Location::Local(path))
    } else {
        Err(GitError::refused("a local repository needs an absolute path"))
    }
}

impl RemoteUrl {
    fn parse(secure: bool, rest: &str) -> Result<Self, GitError> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(GitError::refused(
                "the repository's URL contains a user or password; remove it and name a credential instead",
            ));
        }
        if path.contains(['?', '#']) {
            return Err(GitError::refused("the repository's URL has a query or fragment; remove it"));
        }
        let valid = authority.parse::<http::uri::Authority>().ok().filter(|parsed| !parsed.host().is_empty());
        let Some(parsed) = valid else {
            return Err(GitError::refused("the repository's URL names no host"));
        };
        let own = if secure { 443 } else { 80 };
        let authority = match parsed.port_u16() {
            Some(port) if port != own => format!("{}:{port}", parsed.host().to_ascii_lowercase()),
            _ => parsed.host().to_ascii_lowercase(),
        };
        let url = Self { secure, authority, path: path.trim_end_matches('/').to_owned() };
        url.endpoint("")
            .parse::<http::Uri>()
            .map_err(|_| GitError::refused("the repository's URL is malformed"))?;
        Ok(url)
    }

    /// The URL of something below the repository.
    #[must_use]
    pub fn endpoint(&self, suffix: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}/{}{suffix}", self.authority, self.path)
    }

    /// The repository that a redirect of `suffix` leads to, if it stays on this host.
    ///
    /// # Errors
    /// `Refused` when it leads elsewhere.
    pub fn redirected(&self, location: &str, suffix: &str) -> Result<Self, GitError> {
        let elsewhere = |host: &str| {
            GitError::refused(format!(
                "the server redirects to {host}; set the repository to the URL it moved to"
            ))
        };
        let target = if let Some(path) = location.strip_prefix('/').filter(|path| !path.starts_with('/')) {
            Self { path: path.to_owned(), ..self.clone() }
        } else {
            let (secure, rest) = match (location.strip_prefix("https://"), location.strip_prefix("http://")) {
                (Some(rest), _) => (true, rest),
                (_, Some(rest)) => (false, rest),
                _ => return Err(elsewhere("another place")),
            };
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let target = Self::parse(secure, authority)?;
            if target.secure != self.secure || target.authority != self.authority {
                return Err(elsewhere(&target.authority));
            }
            Self { path: path.to_owned(), ..target }
        };
        match target.path.strip_suffix(suffix) {
            Some(path) => Ok(Self { path: path.trim_end_matches('/').to_owned(), ..target }),
            None => Err(GitError::refused(
                "the server redirects to an address that is not a repository; a login page?",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read() {
        let url = |secure, authority: &str, path: &str| {
            Ok(Location::Remote(RemoteUrl { secure, authority: authority.into(), path: path.into() }))
        };
        let rows = [
            ("https://Example.com/a/b.git", url(true, "example.com", "a/b.git")),
            ("https://example.com:443/a/", url(true, "example.com", "a")),
            ("http://127.0.0.1:8080/a", url(false, "127.0.0.1:8080", "a")),
            ("https://[::1]:8443/a", url(true, "[::1]:8443", "a")),
            ("/srv/git/a.git", Ok(Location::Local("/srv/git/a.git".into()))),
            ("file:///srv/git/a.git", Ok(Location::Local("/srv/git/a.git".into()))),
        ];
        for (text, expected) in rows {
            assert_eq!(Location::parse(text), expected, "{text}");
        }
        for (text, part) in [
            ("git@example.com:a/b.git", "SSH"),
            ("ssh://git@example.com/a.git", "SSH"),
            ("git://example.com/a.git", "over git"),
            ("https://user:secret@example.com/a.git", "user or password"),
            ("https:///a.git", "no host"),
            ("https://example.com/a?b=c", "query"),
            ("a/b", "absolute path"),
            ("file://relative", "absolute path"),
        ] {
            let error = Location::parse(text).expect_err(text);
            assert!(error.message.contains(part) && !error.message.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn redirects_stay_on_their_host() {
        let Ok(Location::Remote(url)) = Location::parse("https://example.com/a") else { panic!("a URL") };
        let suffix = "/info/refs?service=git-upload-pack";
        let target = url.redirected("https://example.com/b.git/info/refs?service=git-upload-pack", suffix);
        assert_eq!(target.map(|url| url.path), Ok("b.git".to_owned()));
        let target = url.redirected("/b.git/info/refs?service=git-upload-pack", suffix);
        assert_eq!(target.map(|url| url.path), Ok("b.git".to_owned()));
        for elsewhere in [
            "https://other.example.com/a/info/refs?service=git-upload-pack",
            "http://example.com/a/info/refs?service=git-upload-pack",
            "https://example.com:8443/a/info/refs?service=git-upload-pack",
            "//other.example.com/a/info/refs?service=git-upload-pack",
            "/login",
        ] {
            assert!(url.redirected(elsewhere, suffix).is_err(), "{elsewhere}");
        }
    }
}
