//! Who may use a cluster's API: what the agent's configuration grants, to those who have a role there.

use events::attributes::Attributes;
use events::configuration::{ConfigurationEvent, file_of};
use events::directory::{Role, Scope};
use events::grants::{Grants, UserAccessAs, UserGrant};
use events::{AgentId, Commit, OrganizationId, UserId};
use objects::narrowing;

use super::access::word;
use super::{Agent, Directory};

/// Roles that a grant for people is given to, greatest first. As with GitLab, who only looks is not let in.
const LET_IN: [Role; 3] = [Role::Owner, Role::Maintainer, Role::Developer];

/// The answer to "may this user do this with that cluster's API".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// An entry grants it.
    Granted {
        /// As whom the cluster sees them.
        access_as: UserAccessAs,
        /// The user's roles by which entries grant this, each with where it holds: those of other entries would reach further.
        roles: Vec<(Role, Scope)>,
        /// Which entry.
        reason: String,
    },
    /// None does.
    Withheld {
        /// What is missing.
        reason: String,
    },
}

/// An entry of `user_access` that lets a user in.
struct Entry<'a> {
    grant: &'a UserGrant,
    list: &'static str,
    role: Role,
    scope: Scope,
}

impl Directory {
    /// Keeps the grants of an agent's configuration. What cannot be read grants nothing.
    pub(super) fn apply_configuration(&mut self, commit: &Commit) {
        for event in &commit.events {
            match ConfigurationEvent::decode(&event.body) {
                Ok(ConfigurationEvent::ConfigurationChanged(changed))
                    if changed.configuration.grants.is_empty() =>
                {
                    self.grants.remove(&changed.agent);
                }
                Ok(ConfigurationEvent::ConfigurationChanged(changed)) => {
                    self.grants.insert(changed.agent, changed.configuration.grants);
                }
                Ok(ConfigurationEvent::ConfigurationRejected(_)) => {}
                Err(error) => {
                    tracing::warn!(aggregate = %commit.aggregate, %error, "configuration is not readable, it grants nothing");
                    if let Ok(agent) = commit.aggregate.id.parse::<AgentId>() {
                        self.grants.remove(&agent);
                    }
                }
            }
        }
    }

    /// Whether a user may do this with the API of an agent's cluster.
    #[must_use]
    pub fn decide_use(&self, id: AgentId, user: UserId, attributes: &Attributes) -> Use {
        let withheld = |reason: String| Use::Withheld { reason };
        let Some(agent) = self.agents.get(&id).filter(|agent| !agent.deleted) else {
            return withheld("there is no such agent".to_owned());
        };
        let file = file_of(&agent.name);
        let no_grants = Grants::default();
        let grants = self.grants.get(&id).unwrap_or(&no_grants);
        if grants.user_projects.is_empty() && grants.user_groups.is_empty() {
            return withheld(format!("{file} lets no person use the cluster's API; add user_access to it"));
        }
        let entries = self.entries_for(agent, grants, user);
        if entries.is_empty() {
            let roles = LET_IN.map(word).join(", ");
            return withheld(format!(
                "the user has none of the roles {roles} in a project or group of user_access in {file}"
            ));
        }
        let (mut granting, mut missing) = (Vec::new(), Vec::new());
        for entry in &entries {
            match narrowing::leaves(&entry.grant.narrowing, attributes) {
                Ok(()) => granting.push(entry),
                Err(error) => missing.push(format!("{}: {error}", entry.place(&file))),
            }
        }
        let Some(first) = granting.first() else { return withheld(missing.join("; ")) };
        Use::Granted {
            access_as: grants.users_access_as,
            reason: format!("{} as {}", first.place(&file), word(first.role)),
            roles: granting.iter().map(|entry| (entry.role, entry.scope)).collect(),
        }
    }

    /// The entries that let a user in, those of projects first.
    fn entries_for<'a>(&self, agent: &Agent, grants: &'a Grants, user: UserId) -> Vec<Entry<'a>> {
        let organization = agent.organization;
        let projects = grants.user_projects.iter().map(|grant| {
            let found = self.find_project(organization, &grant.path).map(|(id, _)| Scope::Project(id));
            (grant, "projects", found)
        });
        let groups = grants
            .user_groups
            .iter()
            .map(|grant| (grant, "groups", self.group_named(organization, &grant.path).map(Scope::Group)));
        projects
            .chain(groups)
            .filter_map(|(grant, list, scope)| {
                let scope = scope?;
                let role = self.role_of(organization, user, scope)?;
                Some(Entry { grant, list, role, scope })
            })
            .collect()
    }

    /// The greatest role of those who are let in that a user has in a scope.
    fn role_of(&self, organization: OrganizationId, user: UserId, scope: Scope) -> Option<Role> {
        let user = self.users.get(&user).filter(|user| user.organization == organization)?;
        let chain = self.chain(organization, scope)?;
        let holds = |role: &Role| user.roles.iter().any(|(held, at)| held == role && chain.contains(at));
        LET_IN.into_iter().find(holds)
    }
}

impl Entry<'_> {
    fn place(&self, file: &str) -> String {
        format!("{file}:{} user_access.{} {}", self.grant.line, self.list, self.grant.path)
    }
}

#[cfg(test)]
mod tests {
    use events::Actor;
    use events::attributes::{ResourceTarget, Target};
    use events::pass::Narrowing;

    use super::super::Asker;
    use super::super::given::Given;
    use super::*;

    fn attributes(verb: &str, resource: &str, namespace: &str) -> Attributes {
        let target = ResourceTarget {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            ..ResourceTarget::default()
        };
        Attributes { verb: verb.to_owned(), target: Target::Resource(target) }
    }

    fn grant(path: &str, line: u32, namespaces: &[&str], verbs: &[&str]) -> UserGrant {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let narrowing =
            Narrowing { namespaces: texts(namespaces), verbs: texts(verbs), resources: Vec::new() };
        UserGrant { path: path.to_owned(), narrowing, line }
    }

    /// An organization with `shop/front` and `bank/vault`, and an agent of the first.
    struct Scene {
        given: Given,
        organization: OrganizationId,
        agent: AgentId,
        shop: Scope,
        front: Scope,
        vault: Scope,
    }

    fn scene() -> Scene {
        let mut given = Given::default();
        let organization = given.organization("acme");
        let owner = given.owner(organization);
        let (shop, bank) = (given.group(&owner, "shop"), given.group(&owner, "bank"));
        let (front, vault) = (given.project(&owner, shop, "front"), given.project(&owner, bank, "vault"));
        let agent = given.agent(&owner, front, "cluster");
        let (shop, front, vault) = (Scope::Group(shop), Scope::Project(front), Scope::Project(vault));
        Scene { given, organization, agent, shop, front, vault }
    }

    impl Scene {
        fn user(&mut self, roles: &[(Role, Scope)]) -> UserId {
            match self.given.user(self.organization, roles) {
                Asker { actor: Actor::User(id), .. } => id,
                other => panic!("{other:?}"),
            }
        }

        fn configured(&mut self, grants: Grants) {
            self.given.configured(self.organization, self.agent, grants);
        }

        fn asked(&self, user: UserId, attributes: &Attributes) -> Result<String, String> {
            match self.given.directory.decide_use(self.agent, user, attributes) {
                Use::Granted { reason, .. } => Ok(reason),
                Use::Withheld { reason } => Err(reason),
            }
        }
    }

    #[test]
    fn only_those_with_a_role_in_a_named_project_or_group_are_let_in() {
        let mut scene = scene();
        let list = attributes("list", "pods", "a");
        let roles = [
            (Role::Owner, true),
            (Role::Maintainer, true),
            (Role::Developer, true),
            (Role::Viewer, false),
            (Role::Job, false),
            (Role::Operator, false),
        ];
        let users: Vec<(UserId, bool)> =
            roles.map(|(role, expected)| (scene.user(&[(role, scene.front)]), expected)).to_vec();
        let above = scene.user(&[(Role::Developer, scene.shop)]);
        let elsewhere = scene.user(&[(Role::Owner, scene.vault)]);
        for (user, _) in &users {
            let said = scene.asked(*user, &list).unwrap_err();
            assert!(said.contains(".kasbah/agents/cluster/config.yaml lets no person"), "{said}");
        }
        scene.configured(Grants {
            user_projects: vec![grant("shop/front", 7, &[], &[]), grant("shop/gone", 8, &[], &[])],
            ..Grants::default()
        });
        for (user, expected) in users {
            assert_eq!(scene.asked(user, &list).is_ok(), expected);
        }
        let said = scene.asked(above, &list).unwrap();
        assert_eq!(said, ".kasbah/agents/cluster/config.yaml:7 user_access.projects shop/front as developer");
        let said = scene.asked(elsewhere, &list).unwrap_err();
        assert!(said.contains("none of the roles owner, maintainer, developer"), "{said}");
        let stranger = scene.given.organization("other");
        let stranger = match scene.given.owner(stranger).actor {
            Actor::User(id) => id,
            other => panic!("{other:?}"),
        };
        assert!(scene.asked(stranger, &list).is_err(), "another organization's owner");
    }

    #[test]
    fn any_entry_that_leaves_it_grants_it_and_all_say_what_is_missing() {
        let mut scene = scene();
        let user = scene.user(&[(Role::Maintainer, scene.shop)]);
        scene.configured(Grants {
            user_projects: vec![grant("shop/front", 3, &["a"], &[])],
            user_groups: vec![grant("shop", 5, &[], &["get", "list"])],
            users_access_as: UserAccessAs::User,
            ..Grants::default()
        });
        assert!(
            scene
                .asked(user, &attributes("delete", "pods", "a"))
                .unwrap()
                .contains(":3 user_access.projects")
        );
        assert!(
            scene
                .asked(user, &attributes("list", "pods", ""))
                .unwrap()
                .contains(":5 user_access.groups shop")
        );
        let said = scene.asked(user, &attributes("delete", "pods", "b")).unwrap_err();
        assert!(said.contains(":3 ") && said.contains("in namespace b"), "{said}");
        assert!(said.contains("; ") && said.contains(":5 ") && said.contains("this is delete"), "{said}");
        let found = scene.given.directory.decide_use(scene.agent, user, &attributes("get", "pods", "a"));
        let Use::Granted { access_as, roles, .. } = found else { panic!("{found:?}") };
        assert_eq!(access_as, UserAccessAs::User);
        assert_eq!(roles, [(Role::Maintainer, scene.front), (Role::Maintainer, scene.shop)]);
        let found = scene.given.directory.decide_use(scene.agent, user, &attributes("list", "pods", ""));
        let Use::Granted { roles, .. } = found else { panic!("{found:?}") };
        assert_eq!(roles, [(Role::Maintainer, scene.shop)], "an entry that withholds it lends no group");
    }

    #[test]
    fn what_leaves_the_configuration_or_cannot_be_read_grants_nothing_any_more() {
        let mut scene = scene();
        let user = scene.user(&[(Role::Owner, scene.shop)]);
        let list = attributes("list", "pods", "a");
        let grants = Grants { user_groups: vec![grant("shop", 1, &[], &[])], ..Grants::default() };
        let mut granted = |grants: Option<Grants>| {
            match grants {
                Some(grants) => scene.configured(grants),
                None => scene.given.configured_by_a_newer_version(scene.organization, scene.agent),
            }
            scene.asked(user, &list).is_ok()
        };
        assert!(granted(Some(grants.clone())));
        assert!(!granted(Some(Grants::default())));
        assert!(granted(Some(grants.clone())));
        assert!(!granted(None), "written by a newer version");
        assert!(granted(Some(grants)));
        let key = scene.given.key();
        let owner = Asker { actor: Actor::User(user), organization: scene.organization };
        let deleted = scene.given.directory.delete_agent(&owner, "cluster");
        scene.given.then(key, deleted);
        assert!(scene.asked(user, &list).is_err(), "deleted");
    }
}
