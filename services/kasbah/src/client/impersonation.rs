//! What an agent has to be allowed so that the cluster sees people and jobs as themselves: the users, groups and further fields of its
//! configuration, and no others.
//!
//! RBAC lists names one by one and knows no beginning of a name. So what cannot be listed (who may come, and each job) stays open for
//! user names, which give nothing by themselves, and never for groups.

use std::collections::{BTreeMap, BTreeSet};

use events::grants::{CiAccessAs, CiGrant, Grants, UserAccessAs};
use events::pass::Impersonated;
use events::requests::authz::{AgentView, GroupView, ProjectView};
use serde_json::{Value, json};

use super::failure::Failure;
use super::manifests::{account_name, bound_role};
use super::print::yaml;

const AUTHENTICATION: &str = "authentication.k8s.io";
/// How the names of service accounts begin; they are no users to Kubernetes' authorization.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Roles that let a person in.
const ROLES: [&str; 3] = ["owner", "maintainer", "developer"];
/// What GitLab knows an environment as.
const TIERS: [&str; 5] = ["production", "staging", "testing", "development", "other"];

/// What stands behind the paths of a configuration.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    /// All that the asker may see.
    pub projects: &'a [ProjectView],
    /// The same of groups.
    pub groups: &'a [GroupView],
}

/// What the rights are made of.
pub struct Impersonation<'a> {
    /// Whose.
    pub agent: &'a AgentView,
    /// Namespace that it runs in.
    pub namespace: &'a str,
    /// Of the configuration that is in force.
    pub grants: &'a Grants,
    /// Ids behind its paths.
    pub directory: Directory<'a>,
    /// Login names of those who may come, if they are known.
    pub users: &'a [String],
    /// Environments of jobs beside those that the configuration names.
    pub environments: BTreeSet<String>,
}

/// Names that may be impersonated.
#[derive(Default)]
struct Names {
    /// Any, beside those that are listed.
    any: bool,
    listed: BTreeSet<String>,
}

/// All that may be impersonated.
#[derive(Default)]
struct Allowed {
    users: Names,
    service_accounts: BTreeSet<String>,
    groups: BTreeSet<String>,
    uids: Names,
    extras: BTreeMap<String, Names>,
}

impl Names {
    fn all() -> Self {
        Self { any: true, listed: BTreeSet::new() }
    }

    fn add(&mut self, other: Self) {
        self.any |= other.any;
        self.listed.extend(other.listed);
    }

    /// The rule for them; none without names.
    fn rule(&self, group: &str, resource: &str) -> Option<Value> {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]});
        match (self.any, self.listed.is_empty()) {
            (false, true) => return None,
            (false, false) => rule.as_object_mut()?.insert("resourceNames".to_owned(), json!(self.listed)),
            (true, _) => None,
        };
        Some(rule)
    }
}

impl From<BTreeSet<String>> for Names {
    fn from(listed: BTreeSet<String>) -> Self {
        Self { any: false, listed }
    }
}

impl Impersonation<'_> {
    /// A ClusterRole and its binding, with what they leave open said above them.
    ///
    /// # Errors
    /// When they cannot be expressed.
    pub fn yaml(&self) -> Result<String, Failure> {
        let allowed = self.allowed();
        let mut text: String = self.remarks(&allowed).iter().map(|line| format!("# {line}\n")).collect();
        for object in self.objects(&allowed.rules()) {
            text.push_str(&format!("---\n{}", yaml(&object)?));
        }
        Ok(text)
    }

    fn objects(&self, rules: &[Value]) -> [Value; 2] {
        let name = format!("kasbah-agent:{}:{}:impersonation", self.namespace, self.agent.name);
        let labels =
            json!({"app.kubernetes.io/name": "kasbah-agent", "app.kubernetes.io/instance": self.agent.name});
        let account = (account_name(&self.agent.name), self.namespace);
        bound_role(&json!({"name": name, "labels": labels}), "ClusterRole", &json!(rules), &account)
    }

    fn remarks(&self, allowed: &Allowed) -> Vec<String> {
        let mut lines = vec![format!(
            "What agent {} may impersonate, by its configuration in force. Print it again when that changes.",
            self.agent.name
        )];
        if allowed.users.any {
            lines.push(
                "Any user name, as RBAC knows no beginning of a name: bind roles to groups, not to users. --user lists people one by one."
                    .to_owned(),
            );
        }
        if self.lets_in_jobs_of_any_environment() {
            lines.push(
                "Jobs of environments that are not listed are refused by the cluster: add them with --environment."
                    .to_owned(),
            );
        }
        lines
    }

    fn allowed(&self) -> Allowed {
        let mut allowed = Allowed::default();
        let grants = self.grants;
        if grants.users_access_as == UserAccessAs::User
            && !(grants.user_projects.is_empty() && grants.user_groups.is_empty())
        {
            self.people(&mut allowed);
        }
        for (grant, is_group) in self.ci_grants() {
            match &grant.access_as {
                CiAccessAs::Agent => {}
                CiAccessAs::CiJob => self.jobs(grant, is_group, &mut allowed),
                CiAccessAs::Impersonate(whom) => named(whom, &mut allowed),
            }
        }
        allowed
    }

    fn ci_grants(&self) -> impl Iterator<Item = (&CiGrant, bool)> {
        let of_projects = self.grants.ci_projects.iter().map(|grant| (grant, false));
        of_projects.chain(self.grants.ci_groups.iter().map(|grant| (grant, true)))
    }

    fn people(&self, allowed: &mut Allowed) {
        let users: BTreeSet<String> = self.users.iter().map(|name| format!("kasbah:user:{name}")).collect();
        allowed.users.add(if users.is_empty() { Names::all() } else { users.into() });
        allowed.uids.add(Names::all());
        allowed.groups.insert("kasbah:user".to_owned());
        let projects = self.grants.user_projects.iter().filter_map(|grant| {
            let project = self.directory.project(&grant.path)?;
            Some(format!("project_role:{}", project.id))
        });
        let groups = self.grants.user_groups.iter().filter_map(|grant| {
            let group = self.directory.group(&grant.path)?;
            Some(format!("group_role:{}", group.id))
        });
        for scope in projects.chain(groups) {
            allowed.groups.extend(ROLES.map(|role| format!("kasbah:{scope}:{role}")));
        }
    }

    fn jobs(&self, grant: &CiGrant, is_group: bool, allowed: &mut Allowed) {
        allowed.users.add(Names::all());
        allowed.uids.add(Names::all());
        allowed.groups.insert("kasbah:ci_job".to_owned());
        let environments = self.environments_of(grant);
        let projects = self.directory.projects.iter().filter(|project| match is_group {
            false => project.path.eq_ignore_ascii_case(&grant.path),
            true => self.directory.group(&grant.path).is_some_and(|group| group.id == project.group),
        });
        let mut ids = BTreeSet::new();
        for project in projects {
            let (id, group) = (project.id, project.group);
            ids.insert(id.to_string());
            allowed.groups.extend([format!("kasbah:project:{id}"), format!("kasbah:group:{group}")]);
            for name in &environments {
                allowed.groups.insert(format!("kasbah:project_env:{id}:{name}"));
            }
            for tier in TIERS {
                allowed.groups.insert(format!("kasbah:project_env_tier:{id}:{tier}"));
                allowed.groups.insert(format!("kasbah:group_env_tier:{group}:{tier}"));
            }
        }
        let agent = BTreeSet::from([self.agent.id.to_string()]);
        let tiers = TIERS.map(str::to_owned).into_iter().collect::<BTreeSet<_>>();
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

    fn lets_in_jobs_of_any_environment(&self) -> bool {
        self.ci_grants().any(|(grant, _)| {
            grant.access_as == CiAccessAs::CiJob
                && (grant.environments.is_empty() || grant.environments.iter().any(|name| name.contains('*')))
        })
    }
}

impl<'a> Directory<'a> {
    fn project(&self, path: &str) -> Option<&'a ProjectView> {
        self.projects.iter().find(|project| project.path.eq_ignore_ascii_case(path))
    }

    fn group(&self, name: &str) -> Option<&'a GroupView> {
        self.groups.iter().find(|group| group.name.eq_ignore_ascii_case(name))
    }
}

/// Somebody whom the configuration names.
fn named(whom: &Impersonated, allowed: &mut Allowed) {
    let account = whom.username.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    match account {
        Some((_, name)) => allowed.service_accounts.insert(name.to_owned()),
        None => allowed.users.listed.insert(whom.username.clone()),
    };
    allowed.groups.extend(whom.groups.iter().cloned());
    if !whom.uid.is_empty() {
        allowed.uids.listed.insert(whom.uid.clone());
    }
    for (key, values) in &whom.extra {
        let names: BTreeSet<String> = values.iter().cloned().collect();
        allowed.extras.entry(key.to_lowercase()).or_default().add(names.into());
    }
}

impl Allowed {
    fn rules(&self) -> Vec<Value> {
        let groups: Names = self.groups.clone().into();
        let accounts: Names = self.service_accounts.clone().into();
        let mut rules = vec![
            self.users.rule("", "users"),
            groups.rule("", "groups"),
            accounts.rule("", "serviceaccounts"),
            self.uids.rule(AUTHENTICATION, "uids"),
        ];
        let of_extra =
            |(key, names): (&String, &Names)| names.rule(AUTHENTICATION, &format!("userextras/{key}"));
        rules.extend(self.extras.iter().map(of_extra));
        rules.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
