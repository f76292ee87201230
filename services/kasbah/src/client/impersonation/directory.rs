//! What stands behind the paths of a configuration, as far as the asker sees it.

use std::collections::BTreeSet;

use events::directory::{Role, Scope};
use events::grants::{CiAccessAs, CiGrant, Grants};
use events::requests::authz::{GroupView, ProjectView, UserView};

use super::{ci_grants, people_come_as_themselves};

/// Roles that let a person in.
pub(super) const LET_IN: [Role; 3] = [Role::Owner, Role::Maintainer, Role::Developer];

/// What the asker sees of the organization.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    /// Projects.
    pub projects: &'a [ProjectView],
    /// Groups.
    pub groups: &'a [GroupView],
    /// Everybody; `None` when the asker may not list them. Who may has a role that sees all projects and groups, too.
    pub users: Option<&'a [UserView]>,
}

impl<'a> Directory<'a> {
    /// By path, id or external id, as the server finds it.
    pub(super) fn project(self, text: &str) -> Option<&'a ProjectView> {
        let is_meant = |project: &&ProjectView| {
            project.path.eq_ignore_ascii_case(text)
                || project.id.to_string() == text
                || project.settings.external_id.is_some_and(|id| text.parse() == Ok(id))
        };
        self.projects.iter().find(is_meant)
    }

    pub(super) fn group(self, name: &str) -> Option<&'a GroupView> {
        self.groups.iter().find(|group| group.name.eq_ignore_ascii_case(name))
    }

    /// The projects whose jobs an entry means.
    pub(super) fn projects_of(self, grant: &CiGrant, is_group: bool) -> Vec<&'a ProjectView> {
        if !is_group {
            return self.project(&grant.path).into_iter().collect();
        }
        let Some(group) = self.group(&grant.path) else { return Vec::new() };
        self.projects.iter().filter(|project| project.group == group.id).collect()
    }

    /// What the rights need of the configuration's paths and the asker does not see.
    pub(super) fn missing(self, grants: &Grants) -> Vec<String> {
        let mut needed: BTreeSet<(bool, &str)> = BTreeSet::new();
        if people_come_as_themselves(grants) {
            needed.extend(grants.user_projects.iter().map(|grant| (false, grant.path.as_str())));
            needed.extend(grants.user_groups.iter().map(|grant| (true, grant.path.as_str())));
        }
        let of_jobs = ci_grants(grants).filter(|(grant, _)| grant.access_as == CiAccessAs::CiJob);
        needed.extend(of_jobs.map(|(grant, is_group)| (is_group, grant.path.as_str())));
        let of_missing = |(is_group, path): (bool, &str)| match is_group {
            false => self.project(path).is_none().then(|| format!("project {path}")),
            true => self.group(path).is_none().then(|| format!("group {path}")),
        };
        needed.into_iter().filter_map(of_missing).collect()
    }

    /// Login names of those whose roles let them in; `None` when the asker may not list people.
    pub(super) fn logins(self, grants: &Grants) -> Option<BTreeSet<String>> {
        let projects = grants.user_projects.iter().filter_map(|grant| self.project(&grant.path));
        let of_project = |project: &ProjectView| [Scope::Project(project.id), Scope::Group(project.group)];
        let groups = grants.user_groups.iter().filter_map(|grant| self.group(&grant.path));
        let mut scopes: BTreeSet<Scope> = projects.flat_map(of_project).collect();
        scopes.extend(groups.map(|group| Scope::Group(group.id)));
        let lets_in = |(role, scope): &(Role, Scope)| {
            LET_IN.contains(role) && (matches!(scope, Scope::Organization(_)) || scopes.contains(scope))
        };
        let let_in = self.users?.iter().filter(|user| user.roles.iter().any(lets_in));
        Some(let_in.filter_map(|user| user.name.clone()).collect())
    }
}
