//! Which environments a request means, of those that the asker may see.

use std::collections::BTreeSet;

use events::environment::Tier;
use events::{EnvironmentId, Refusal, RefusalKind};
use objects::kinds::glob;

use super::groups::Group;
use super::view::View;

/// Projects that a refusal names.
const NAMED: usize = 10;

/// What a request says of environments; all of it holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'r> {
    /// A name, a pattern, `group/project:name`, or an id.
    pub env: Option<&'r str>,
    /// The tier.
    pub tier: Option<Tier>,
    /// The project: `group/name` or id.
    pub project: Option<&'r str>,
}

impl Asked<'_> {
    /// The environments that are meant; `None` where nothing is said of any.
    ///
    /// # Errors
    /// The field that means none, or a name that several projects have. What the asker may not see is as what is not there.
    pub fn meant<'v>(&self, view: &'v View<'_>) -> Result<Option<Vec<&'v Group>>, Refusal> {
        if self.env.is_none() && self.tier.is_none() && self.project.is_none() {
            return Ok(None);
        }
        let mut found: Vec<&Group> = view.environments().collect();
        if let Some(project) = self.project {
            found.retain(|group| is_project(view, group, project));
            none_is_missing(&found, "project", project)?;
        }
        if let Some(tier) = self.tier {
            found.retain(|group| group.resource.tier == tier);
        }
        let Some(env) = self.env else { return Ok(Some(found)) };
        let name = Name::read(env);
        found.retain(|group| name.means(view, group));
        none_is_missing(&found, "env", env)?;
        match found.as_slice() {
            [_] => Ok(Some(found)),
            _ if name.is_pattern() => Ok(Some(found)),
            several => Err(several_projects(view, env, several)),
        }
    }

    /// The ids of the same.
    ///
    /// # Errors
    /// See [`Asked::meant`].
    pub fn ids(&self, view: &View<'_>) -> Result<Option<BTreeSet<EnvironmentId>>, Refusal> {
        let meant = self.meant(view)?;
        Ok(meant.map(|found| found.into_iter().map(|group| group.resource.environment).collect()))
    }
}

/// How an environment is named.
struct Name<'r> {
    id: Option<EnvironmentId>,
    project: Option<&'r str>,
    pattern: &'r str,
}

impl<'r> Name<'r> {
    fn read(text: &'r str) -> Self {
        // No name of an environment has a colon.
        let (project, pattern) = match text.rsplit_once(':') {
            Some((project, pattern)) => (Some(project), pattern),
            None => (None, text),
        };
        Self { id: text.parse().ok(), project, pattern }
    }

    fn is_pattern(&self) -> bool {
        self.pattern.contains('*')
    }

    fn means(&self, view: &View<'_>, group: &Group) -> bool {
        if let Some(id) = self.id {
            return group.resource.environment == id;
        }
        glob(self.pattern, &group.resource.name)
            && self.project.is_none_or(|project| is_project(view, group, project))
    }
}

fn is_project(view: &View<'_>, group: &Group, project: &str) -> bool {
    group.resource.project.to_string() == project || view.path_of(group.resource.project) == project
}

fn none_is_missing(found: &[&Group], field: &str, text: &str) -> Result<(), Refusal> {
    if !found.is_empty() {
        return Ok(());
    }
    let message = match field {
        "project" => format!("environments of project {text:?} into which something was deployed"),
        _ => format!("environment {text:?} into which something was deployed"),
    };
    Err(Refusal { field: Some(field.to_owned()), ..Refusal::not_found(message) })
}

fn several_projects(view: &View<'_>, env: &str, several: &[&Group]) -> Refusal {
    let named = |group: &&Group| format!("{}:{}", view.path_of(group.resource.project), group.resource.name);
    let mut names: Vec<String> = several.iter().map(named).collect();
    names.sort();
    names.truncate(NAMED);
    let message = format!("several projects have an environment {env:?}: use one of {}", names.join(", "));
    Refusal { field: Some("env".to_owned()), ..Refusal::new(RefusalKind::Conflict, message) }
}
