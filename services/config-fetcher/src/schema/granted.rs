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
    let of_jobs = [
        (
            GrantTarget::Project,
            "ci_access.projects",
            places(&grants.ci_projects, |grant| (&grant.path, grant.line)),
        ),
        (
            GrantTarget::Group,
            "ci_access.groups",
            places(&grants.ci_groups, |grant| (&grant.path, grant.line)),
        ),
    ];
    let of_users = [
        (
            GrantTarget::Project,
            "user_access.projects",
            places(&grants.user_projects, |grant| (&grant.path, grant.line)),
        ),
        (
            GrantTarget::Group,
            "user_access.groups",
            places(&grants.user_groups, |grant| (&grant.path, grant.line)),
        ),
    ];
    let lists = of_jobs.into_iter().chain(of_users);
    lists
        .flat_map(|(what, list, places)| {
            let numbered = places.into_iter().enumerate();
            numbered.map(move |(index, (path, line))| Granted { what, path, list, index, line })
        })
        .collect()
}

/// Paths and lines of a list's entries.
fn places<T>(grants: &[T], place: impl Fn(&T) -> (&String, u32)) -> Vec<(&str, u32)> {
    grants.iter().map(place).map(|(path, line)| (path.as_str(), line)).collect()
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
