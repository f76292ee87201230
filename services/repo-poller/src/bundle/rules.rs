//! Which files a source takes, and what they may hold.

use events::configuration::{ResourceRules, SourceConfiguration};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

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
}

/// Which paths are taken.
#[derive(Debug)]
pub struct Globs {
    include: GlobSet,
    exclude: GlobSet,
}

/// A glob cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the glob {glob:?} cannot be understood")]
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
        Ok(Self { include: globs(&rules.include)?, exclude: globs(&rules.exclude)? })
    }

    /// Whether the globs take a path.
    #[must_use]
    pub fn take(&self, path: &str) -> bool {
        self.include.is_match(path) && !self.leave_out(path)
    }

    /// Whether the globs leave a path out in so many words.
    #[must_use]
    pub fn leave_out(&self, path: &str) -> bool {
        path.starts_with(OWN_FOLDER) || self.exclude.is_match(path)
    }
}

/// A glob also takes everything below a folder that it names. `*` and `?` do not cross a slash, `**` does.
fn globs(patterns: &[String]) -> Result<GlobSet, GlobError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let wrong = |_| GlobError { glob: pattern.clone() };
        let folder = pattern.trim_end_matches('/');
        for glob in [folder.to_owned(), format!("{folder}/**")] {
            set.add(
                GlobBuilder::new(&glob)
                    .literal_separator(true)
                    .backslash_escape(true)
                    .build()
                    .map_err(wrong)?,
            );
        }
    }
    set.build().map_err(|_| GlobError { glob: patterns.join(", ") })
}

/// Whether a file's name says that it holds manifests.
#[must_use]
pub fn is_manifest_name(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| matches!(end, "yaml" | "yml" | "json"))
}
