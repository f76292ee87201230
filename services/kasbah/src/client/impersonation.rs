//! What an agent has to be allowed so that the cluster sees people and jobs as themselves: the users, groups and further fields of its
//! configuration, and no others.
//!
//! RBAC lists names one by one and knows no beginning of a name. Clusters bind their own controllers and administrators by user name, so
//! open user names are as good as all rights for whoever takes over the agent: people are listed one by one, and the names of jobs that
//! come as themselves, which nobody knows before they run, are opened only if asked for. Groups are never open. What stays open are
//! uids, and the fields that only tell jobs apart: clusters bind no role to these.

mod allowed;
mod directory;

use std::collections::BTreeSet;

use events::grants::{CiAccessAs, CiGrant, Grants, UserAccessAs};
use events::pass::Impersonated;
use events::requests::authz::{AgentView, ProjectView};
use events::{Refusal, RefusalKind};
use serde_json::{Value, json};

use self::allowed::{Allowed, Names};
use super::failure::Failure;
use super::manifests::{account_name, bound_role};
use super::names::role_name;
use super::print::yaml;

pub use self::directory::Directory;

/// What GitLab knows an environment as.
const TIERS: [&str; 5] = ["production", "staging", "testing", "development", "other"];

/// What the rights are made of.
pub struct Impersonation<'a> {
    /// Whose.
    pub agent: &'a AgentView,
    /// Namespace that it runs in.
    pub namespace: &'a str,
    /// Of the configuration that is in force.
    pub grants: &'a Grants,
    /// What stands behind its paths.
    pub directory: Directory<'a>,
    /// Login names of those who may come; those who have a role for it if empty.
    pub users: &'a [String],
    /// User names are open if jobs come as themselves.
    pub any_user: bool,
    /// Environments of jobs beside those that the configuration names.
    pub environments: BTreeSet<String>,
    /// Tiers of environments beside those that are usual.
    pub tiers: BTreeSet<String>,
}

/// Rights to impersonate, as they are printed.
#[derive(Debug)]
pub struct Rights {
    /// What they open, and whom they leave out.
    pub remarks: Vec<String>,
    /// Roles and their bindings.
    pub objects: Vec<Value>,
}

impl Rights {
    /// The objects, with the remarks above them.
    ///
    /// # Errors
    /// When they cannot be expressed.
    pub fn yaml(&self) -> Result<String, Failure> {
        let mut text: String = self.remarks.iter().map(|line| format!("# {line}\n")).collect();
        for object in &self.objects {
            text.push_str(&format!("---\n{}", yaml(object)?));
        }
        Ok(text)
    }
}

impl Impersonation<'_> {
    /// The rights.
    ///
    /// # Errors
    /// When the asker sees too little to say which they are: what is left out would be taken away.
    pub fn rights(&self) -> Result<Rights, Failure> {
        let missing = self.directory.missing(self.grants);
        if !missing.is_empty() {
            let message = format!(
                "the configuration names projects or groups that do not exist, or are not visible to you: {}; run this as an owner of the organization, and remove deleted ones from the configuration: rights without them would refuse users that it permits",
                missing.join(", ")
            );
            return Err(Failure::Refused {
                refusal: Refusal::new(RefusalKind::NotFound, message),
                retry_after: None,
            });
        }
        let people = self.people()?;
        let allowed = self.allowed(people.as_ref());
        Ok(Rights { remarks: self.remarks(people.as_ref()), objects: self.objects(&allowed) })
    }

    /// A ClusterRole and its binding, and a Role and its binding wherever service accounts are.
    fn objects(&self, allowed: &Allowed) -> Vec<Value> {
        let name = format!("kasbah-agent:{}:{}:impersonation", self.namespace, self.agent.name);
        let labels =
            json!({"app.kubernetes.io/name": "kasbah-agent", "app.kubernetes.io/instance": self.agent.name});
        let account = (account_name(&self.agent.name), self.namespace);
        let metadata = json!({"name": name, "labels": labels});
        let mut objects = bound_role(&metadata, "ClusterRole", &json!(allowed.rules()), &account).to_vec();
        for (namespace, rules) in allowed.rules_of_namespaces() {
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
            objects.extend(bound_role(&metadata, "Role", &json!(rules), &account));
        }
        objects
    }

    /// User names of the people who may come; `None` when nobody comes as themselves.
    fn people(&self) -> Result<Option<BTreeSet<String>>, Failure> {
        if !people_come_as_themselves(self.grants) {
            return Ok(None);
        }
        let logins: BTreeSet<String> = match self.users {
            [] => self.directory.logins(self.grants).ok_or_else(|| {
                let message = "you may not list the users of the organization; name the users to impersonate, or run this as an owner or maintainer of the organization";
                Failure::usage("--user", message)
            })?,
            named => named.iter().cloned().collect(),
        };
        Ok(Some(logins.iter().map(|login| format!("kasbah:user:{login}")).collect()))
    }

    fn allowed(&self, people: Option<&BTreeSet<String>>) -> Allowed {
        let mut allowed = Allowed::default();
        if let Some(people) = people {
            allowed.users.add(people.clone().into());
            allowed.uids.add(Names::all());
            allowed.groups.insert("kasbah:user".to_owned());
            allowed.groups.extend(self.groups_of_people());
        }
        for (grant, is_group) in ci_grants(self.grants) {
            match &grant.access_as {
                CiAccessAs::Agent => {}
                CiAccessAs::CiJob => self.jobs(grant, is_group, &mut allowed),
                CiAccessAs::Impersonate(whom) => allowed.add(whom),
            }
        }
        allowed
    }

    fn groups_of_people(&self) -> BTreeSet<String> {
        let projects = self.grants.user_projects.iter().filter_map(|grant| {
            let project = self.directory.project(&grant.path)?;
            Some(format!("project_role:{}", project.id))
        });
        let groups = self.grants.user_groups.iter().filter_map(|grant| {
            let group = self.directory.group(&grant.path)?;
            Some(format!("group_role:{}", group.id))
        });
        let roles = directory::LET_IN.map(role_name);
        let of_scope = |scope: String| roles.map(|role| format!("kasbah:{scope}:{role}"));
        projects.chain(groups).flat_map(of_scope).collect()
    }

    fn jobs(&self, grant: &CiGrant, is_group: bool, allowed: &mut Allowed) {
        if self.any_user {
            allowed.users.add(Names::all());
        }
        allowed.uids.add(Names::all());
        allowed.groups.insert("kasbah:ci_job".to_owned());
        let (environments, tiers) = (self.environments_of(grant), self.tiers());
        let mut ids = BTreeSet::new();
        for project in self.directory.projects_of(grant, is_group) {
            ids.insert(project.id.to_string());
            allowed.groups.extend(groups_of_jobs(project, &environments, &tiers));
        }
        let agent = BTreeSet::from([self.agent.id.to_string()]);
        for (key, names) in [
            (Impersonated::AGENT, agent.into()),
            (Impersonated::PROJECT, ids.into()),
            (Impersonated::CI_JOB, Names::all()),
            (Impersonated::CI_PIPELINE, Names::all()),
            (Impersonated::ENVIRONMENT, environments.into()),
            (Impersonated::ENVIRONMENT_TIER, tiers.into()),
        ] {
            allowed.extras.entry(key.to_owned()).or_default().add(names);
        }
    }

    fn environments_of(&self, grant: &CiGrant) -> BTreeSet<String> {
        let named = grant.environments.iter().filter(|name| !name.contains('*')).cloned();
        named.chain(self.environments.iter().cloned()).collect()
    }

    fn tiers(&self) -> BTreeSet<String> {
        TIERS.map(str::to_owned).into_iter().chain(self.tiers.iter().cloned()).collect()
    }

    fn remarks(&self, people: Option<&BTreeSet<String>>) -> Vec<String> {
        let mut lines = vec![format!(
            "What agent {} may impersonate, by its configuration in force. Print it again when the configuration, a role of a user or a project of a group changes.",
            self.agent.name
        )];
        if people.is_some_and(BTreeSet::is_empty) {
            lines.push("No user has a role that permits requests as themselves.".to_owned());
        }
        if ci_grants(self.grants).any(|(grant, _)| grant.access_as == CiAccessAs::CiJob) {
            lines.extend(self.remarks_on_jobs());
        }
        lines
    }

    fn remarks_on_jobs(&self) -> Vec<String> {
        let mut lines = vec![self.remark_on_names_of_jobs().to_owned()];
        if self.lets_in_jobs_of_any_environment() {
            lines.push(
                "Jobs of environments that are not listed are refused by the cluster: add them with --environment."
                    .to_owned(),
            );
        }
        let tiers: Vec<String> = self.tiers().into_iter().collect();
        lines.push(format!(
            "Jobs of other tiers than {} are refused by the cluster: add them with --tier.",
            tiers.join(", ")
        ));
        // Who may not list people may be blind to projects as well.
        if self.directory.users.is_none() {
            let of_groups = ci_grants(self.grants)
                .filter(|(grant, is_group)| *is_group && grant.access_as == CiAccessAs::CiJob);
            lines.extend(of_groups.map(|(grant, _)| {
                format!("Projects of group \"{}\" that you may not see are omitted, and the cluster refuses their jobs: an owner of the organization sees all.", grant.path)
            }));
        }
        lines
    }

    fn remark_on_names_of_jobs(&self) -> &'static str {
        if self.any_user {
            "Any user name, because the names of jobs cannot be listed: an attacker who takes over the agent can act as any user to whom this cluster binds a role, including its controllers and administrators."
        } else {
            "The cluster refuses jobs with their own identity (ci_job): each has its own user name, and RBAC cannot list future names. Map them to a fixed name instead (access_as: {impersonate: {username: …}}) or as the agent ({agent: {}}). --any-user permits all user names, which makes an attacker who takes over the agent an administrator of the cluster."
        }
    }

    fn lets_in_jobs_of_any_environment(&self) -> bool {
        ci_grants(self.grants).any(|(grant, _)| {
            grant.access_as == CiAccessAs::CiJob
                && (grant.environments.is_empty() || grant.environments.iter().any(|name| name.contains('*')))
        })
    }
}

/// Entries for jobs, and whether they are for those of a group.
fn ci_grants(grants: &Grants) -> impl Iterator<Item = (&CiGrant, bool)> {
    let of_projects = grants.ci_projects.iter().map(|grant| (grant, false));
    of_projects.chain(grants.ci_groups.iter().map(|grant| (grant, true)))
}

fn people_come_as_themselves(grants: &Grants) -> bool {
    grants.users_access_as == UserAccessAs::User
        && !(grants.user_projects.is_empty() && grants.user_groups.is_empty())
}

/// The groups of a project's jobs, beside that of all.
fn groups_of_jobs(
    project: &ProjectView,
    environments: &BTreeSet<String>,
    tiers: &BTreeSet<String>,
) -> Vec<String> {
    let (id, group) = (project.id, project.group);
    let mut groups = vec![format!("kasbah:project:{id}"), format!("kasbah:group:{group}")];
    groups.extend(environments.iter().map(|name| format!("kasbah:project_env:{id}:{name}")));
    for tier in tiers {
        groups.push(format!("kasbah:project_env_tier:{id}:{tier}"));
        groups.push(format!("kasbah:group_env_tier:{group}:{tier}"));
    }
    groups
}

#[cfg(test)]
mod tests;
