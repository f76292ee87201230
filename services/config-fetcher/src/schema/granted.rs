//! What the grants of a file name, and where.

use events::configuration::FileFinding;
use events::grants::Grants;

use super::report::finding;

/// What a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantTarget {
    /// A project.
    Project,
    /// A group.
    Group,
}

/// A project or group that a grant names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted<'a> {
    /// Which of the two.
    pub what: GrantTarget,
    /// Its path.
    pub path: &'a str,
    list: &'static str,
    index: usize,
    line: u32,
}

/// All projects and groups that grants name.
#[must_use]
pub fn granted(grants: &Grants) -> Vec<Granted<'_>> {
    let mut all = Vec::new();
    for (what, list, grants) in [
        (GrantTarget::Project, "ci_access.projects", &grants.ci_projects),
        (GrantTarget::Group, "ci_access.groups", &grants.ci_groups),
    ] {
        let numbered = grants.iter().enumerate();
        all.extend(numbered.map(|(index, grant)| Granted {
            what,
            path: &grant.path,
            list,
            index,
            line: grant.line,
        }));
    }
    for (what, list, grants) in [
        (GrantTarget::Project, "user_access.projects", &grants.user_projects),
        (GrantTarget::Group, "user_access.groups", &grants.user_groups),
    ] {
        let numbered = grants.iter().enumerate();
        all.extend(numbered.map(|(index, grant)| Granted {
            what,
            path: &grant.path,
            list,
            index,
            line: grant.line,
        }));
    }
    all
}

impl Granted<'_> {
    /// That there is no such project or group.
    #[must_use]
    pub fn missing(&self, file: &str) -> FileFinding {
        let what = match self.what {
            GrantTarget::Project => "project",
            GrantTarget::Group => "group",
        };
        let message = format!(
            "the agent's organization has no {what} '{}', so this entry permits nothing; create the {what}, or remove the entry",
            self.path
        );
        finding(file, self.line, 0, &format!("{}[{}].id", self.list, self.index), message)
    }
}
