//! Which files a source takes, and what they may hold.

use events::configuration::{ResourceRules, SourceConfiguration};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Where agents' configuration files lie; never manifests.
const OWN_FOLDER: &str = ".kasbah/";

/// What decides the bundle of a source, apart from its commit. A fleet's sources mostly have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rules {
    /// Namespace that is meant where a manifest names none.
    pub default_namespace: String,
    /// Kinds that the agent may manage.
    pub resources: ResourceRules,
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Rules {
    /// Those of a source.
    #[must_use]
    pub fn of(resources: &ResourceRules, source: &SourceConfiguration) -> Self {
        Self {
            default_namespace: source.default_namespace.clone(),
            resources: resources.clone(),
            include: source.include.clone(),
            exclude: source.exclude.clone(),
        }
    }

    /// The globs, for messages.
    pub(super) fn describe_globs(&self) -> String {
        let include = self.include.join(", ");
        match self.exclude.as_slice() {
            [] => format!("include [{include}]"),
            exclude => format!("include [{include}] without exclude [{}]", exclude.join(", ")),
        }
    }
}

/// Which paths are taken.
#[derive(Debug)]
pub struct Globs {
    include: GlobSet,
    /// Folders below which `include` may take something.
    above: GlobSet,
    exclude: GlobSet,
}

/// A glob cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the glob {glob:?} is invalid")]
pub struct GlobError {
    /// Which.
    pub glob: String,
}

impl Globs {
    /// Those of a checked configuration.
    ///
    /// # Errors
    /// For a glob that cannot be understood, which config-fetcher refuses.
    pub fn of(rules: &Rules) -> Result<Self, GlobError> {
        Ok(Self {
            include: globs(&rules.include)?,
            above: exact_globs(rules.include.iter().flat_map(|pattern| folders_above(pattern)))?,
            exclude: globs(&rules.exclude)?,
        })
    }

    /// Whether the globs take a path.
    #[must_use]
    pub fn take(&self, path: &str) -> bool {
        self.include.is_match(path) && !self.leave_out(path)
    }

    /// Whether the globs take a path, or may take one below it.
    #[must_use]
    pub fn take_or_enter(&self, path: &str) -> bool {
        (self.include.is_match(path) || self.above.is_match(path)) && !self.leave_out(path)
    }

    /// Whether the globs leave a path out in so many words.
    #[must_use]
    pub fn leave_out(&self, path: &str) -> bool {
        is_own(path) || self.exclude.is_match(path)
    }
}

/// Whether a path is Kasbah's own, and never holds manifests.
#[must_use]
pub fn is_own(path: &str) -> bool {
    path.starts_with(OWN_FOLDER)
}

/// Globs of the folders on the way to what a glob takes. They may match more than those, never less.
fn folders_above(pattern: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut folder = String::new();
    let parts = parts(pattern);
    for part in parts.iter().take(parts.len().saturating_sub(1)) {
        // `**`, and braces with a slash in them, reach folders of any depth.
        let is_deep = part.contains('/') || part == "**";
        folder.push_str(if is_deep { "**" } else { part });
        // A slash in brackets, which matches nothing, would cut them in two.
        folders.push(if glob(&folder).is_ok() { folder.clone() } else { "**".to_owned() });
        if is_deep {
            break;
        }
        folder.push('/');
    }
    folders
}

/// The parts of a glob between slashes, where braces belong to one part.
fn parts(pattern: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut braces = 0_u32;
    let mut letters = pattern.trim_end_matches('/').chars();
    while let Some(letter) = letters.next() {
        match letter {
            '/' if braces == 0 => parts.push(std::mem::take(&mut part)),
            '\\' => {
                part.push(letter);
                part.extend(letters.next());
            }
            letter => {
                match letter {
                    '{' => braces += 1,
                    '}' => braces = braces.saturating_sub(1),
                    _ => {}
                }
                part.push(letter);
            }
        }
    }
    parts.push(part);
    parts
}

/// A glob also takes everything below a folder that it names.
fn globs(patterns: &[String]) -> Result<GlobSet, GlobError> {
    let below = |pattern: &String| {
        let folder = pattern.trim_end_matches('/');
        [folder.to_owned(), format!("{folder}/**")]
    };
    exact_globs(patterns.iter().flat_map(below))
}

fn exact_globs(patterns: impl Iterator<Item = String>) -> Result<GlobSet, GlobError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(glob(&pattern).map_err(|_| GlobError { glob: pattern })?);
    }
    set.build().map_err(|error| GlobError { glob: error.glob().unwrap_or_default().to_owned() })
}

/// `*` and `?` do not cross a slash, `**` does.
fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build()
}

/// Whether a file's name says that it holds manifests.
#[must_use]
pub fn is_manifest_name(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| matches!(end, "yaml" | "yml" | "json"))
}
