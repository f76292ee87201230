//! Which files a source takes, and what they may hold.

use events::configuration::{ResourceRules, SourceConfiguration};
use events::{AgentId, SourceId};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Where agents' configuration files lie; never manifests.
const OWN_FOLDER: &str = ".kasbah/";

/// What decides the bundle of a source, apart from its commit.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// Which source.
    pub id: SourceId,
    /// Whose.
    pub agent: AgentId,
    /// Namespace that is meant where a manifest names none.
    pub default_namespace: String,
    /// Kinds that the agent may manage.
    pub resources: ResourceRules,
    patterns: (Vec<String>, Vec<String>),
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

impl SourceSpec {
    /// Out of a checked configuration.
    ///
    /// # Errors
    /// For a glob that cannot be understood, which config-fetcher refuses.
    pub fn new(
        agent: AgentId,
        resources: &ResourceRules,
        source: &SourceConfiguration,
    ) -> Result<Self, GlobError> {
        Ok(Self {
            id: source.id,
            agent,
            default_namespace: source.default_namespace.clone(),
            resources: resources.clone(),
            patterns: (source.include.clone(), source.exclude.clone()),
            include: globs(&source.include)?,
            exclude: globs(&source.exclude)?,
        })
    }

    /// Whether two of them give the same bundle of the same commit.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.agent == other.agent
            && self.default_namespace == other.default_namespace
            && self.resources == other.resources
            && self.patterns == other.patterns
    }

    /// Whether the globs take a path.
    #[must_use]
    pub fn takes(&self, path: &str) -> bool {
        self.include.is_match(path) && !self.leaves_out(path)
    }

    /// Whether the globs leave a path out in so many words.
    #[must_use]
    pub fn leaves_out(&self, path: &str) -> bool {
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
