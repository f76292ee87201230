//! Who may use a cluster's API: what the agent's configuration grants, to those who have a role there.

use std::collections::BTreeSet;
use std::ops::Bound;

use events::audit::AuditMode;
use events::configuration::{AgentConfiguration, ConfigurationEvent, file_of};
use events::directory::{Role, Scope};
use events::grants::{CiAccessAs, Grants, UserAccessAs, UserGrant};
use events::pass::PassGrant;
use events::recording::RecordSessions;
use events::requests::authz::UsableAgent;
use events::{Actor, AgentId, Commit, Event, OrganizationId, Sha256, UserId};
use serde::Serialize;

use super::access::word;
use super::{Agent, Directory};

/// Roles that a grant for people is given to, greatest first. As with GitLab, who only looks is not let in.
const LET_IN: [Role; 3] = [Role::Owner, Role::Maintainer, Role::Developer];

/// What an agent's configuration grants to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// In which organization.
    pub organization: OrganizationId,
    /// As whom the cluster sees them.
    pub access_as: UserAccessAs,
    /// What each entry lets through, those of projects first; as themselves with the user's roles there as groups.
    pub grants: Vec<PassGrant>,
    /// What becomes of requests that cannot be recorded.
    pub audit: AuditMode,
    /// What of sessions is kept.
    pub record_sessions: RecordSessions,
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
    pub(super) fn apply_configuration(
        &mut self,
        commit: &Commit,
        events: impl Iterator<Item = Event>,
        is_incomplete: bool,
    ) {
        for event in events {
            if let Event::Configuration(ConfigurationEvent::ConfigurationChanged(changed)) = event {
                let (agent, configuration) = (changed.agent, changed.configuration);
                self.forget_grants(agent);
                if configuration.implicit_rights {
                    self.implicit_rights.insert(agent);
                }
                self.note_readers(agent, &configuration);
                if !configuration.grants.is_empty() {
                    self.grants.insert(agent, configuration.grants);
                }
            }
        }
        if is_incomplete && let Ok(agent) = commit.aggregate.id.parse::<AgentId>() {
            self.forget_grants(agent);
        }
    }

    fn note_readers(&mut self, agent: AgentId, configuration: &AgentConfiguration) {
        let own = self.agents.get(&agent).map(|agent| agent.project);
        let others = configuration.sources.iter().filter(|source| own != Some(source.project));
        let reads: BTreeSet<_> = others.map(|source| (source.project, source.name.clone())).collect();
        if !reads.is_empty() {
            self.readers.insert(agent, reads);
        }
    }

    /// Nobody uses the API of an agent's cluster.
    pub(super) fn forget_grants(&mut self, agent: AgentId) {
        self.readers.remove(&agent);
        self.grants.remove(&agent);
        self.implicit_rights.remove(&agent);
    }

    /// What lets a user use the API of an agent's cluster.
    ///
    /// # Errors
    /// What is missing, when nothing does.
    pub fn use_granted(&self, id: AgentId, user: UserId) -> Result<Granted, String> {
        let agent = self.agents.get(&id).filter(|agent| !agent.deleted);
        let agent = agent.ok_or_else(|| "there is no such agent".to_owned())?;
        let file = file_of(&agent.name);
        let no_grants = Grants::default();
        let grants = self.grants.get(&id).unwrap_or(&no_grants);
        if grants.user_projects.is_empty() && grants.user_groups.is_empty() {
            return Err(format!("{file} permits no user to use the cluster's API; add user_access to it"));
        }
        let entries = self.entries_for(agent, grants, user);
        if entries.is_empty() {
            let roles = LET_IN.map(word).join(", ");
            return Err(format!(
                "the user has none of the roles {roles} in a project or group of user_access in {file}"
            ));
        }
        let mut merged: Vec<PassGrant> = Vec::new();
        for entry in &entries {
            let group = (grants.users_access_as == UserAccessAs::User).then(|| entry.group()).flatten();
            match merged.iter_mut().find(|grant| grant.narrowing == entry.grant.narrowing) {
                Some(grant) => grant.groups.extend(group),
                None => merged.push(PassGrant {
                    narrowing: entry.grant.narrowing.clone(),
                    groups: group.into_iter().collect(),
                    place: format!("{} as {}", entry.place(&file), word(entry.role)),
                }),
            }
        }
        Ok(Granted {
            organization: agent.organization,
            access_as: grants.users_access_as,
            grants: merged,
            audit: grants.audit,
            record_sessions: grants.record_sessions,
        })
    }

    /// The agents of an organization whose clusters' APIs a user or a job may use, in the order of their ids.
    pub fn usable_agents<'a>(
        &'a self,
        organization: OrganizationId,
        actor: &'a Actor,
        after: Option<AgentId>,
    ) -> impl Iterator<Item = UsableAgent> + 'a {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let agents = self.agents.range((from, Bound::Unbounded));
        let own = agents.filter(move |(_, agent)| !agent.deleted && agent.organization == organization);
        own.filter_map(move |(id, _)| {
            let (access_as, grants, identity) = match actor {
                Actor::User(user) => {
                    let granted = self.use_granted(*id, *user).ok()?;
                    let identity = identity(&granted.grants);
                    (granted.access_as, granted.grants, identity)
                }
                Actor::Job(job) => {
                    let granted = self.granted_to_job(*id, *job).ok()?;
                    let as_agent = granted.access_as == CiAccessAs::Agent;
                    let access_as = if as_agent { UserAccessAs::Agent } else { UserAccessAs::User };
                    let identity = identity(&(granted.access_as, &granted.grant));
                    (access_as, vec![granted.grant], identity)
                }
                Actor::Agent(_) | Actor::Service(_) => return None,
            };
            let identity = identity.filter(|_| access_as == UserAccessAs::User);
            let grants = grants.into_iter().map(|grant| grant.narrowing).collect();
            Some(UsableAgent { agent: *id, access_as, grants, identity })
        })
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
        let user = self
            .users
            .get(&user)
            .filter(|user| user.organization == organization && user.disabled.is_none())?;
        let chain = self.chain(organization, scope)?;
        let holds = |role: &Role| user.roles.iter().any(|(held, at)| held == role && chain.contains(at));
        LET_IN.into_iter().find(holds)
    }
}

/// What of an identity in a cluster may become another: name, uid and environment of a user or job stay as they are.
fn identity<T: Serialize>(lent: &T) -> Option<Sha256> {
    events::encode(lent).ok().map(|encoded| Sha256::of(&encoded))
}

impl Entry<'_> {
    /// The group that whoever is let in by it is in, for the cluster's own authorization.
    fn group(&self) -> Option<String> {
        let role = word(self.role);
        match self.scope {
            Scope::Project(id) => Some(format!("kasbah:project_role:{id}:{role}")),
            Scope::Group(id) => Some(format!("kasbah:group_role:{id}:{role}")),
            Scope::Organization(_) | Scope::Agent(_) => None,
        }
    }

    fn place(&self, file: &str) -> String {
        format!("{file}:{} user_access.{} {}", self.grant.line, self.list, self.grant.path)
    }
}

#[cfg(test)]
mod tests {
    use events::Timestamp;
    use events::attributes::{Attributes, ResourceTarget, Target};
    use events::pass::{AccessAs, Impersonated, Narrowing, Pass};
    use objects::pass::check_pass;

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
            self.let_through(user, attributes).map(|(place, _)| place)
        }

        /// By which entry a request is let through, and with which groups.
        fn let_through(
            &self,
            user: UserId,
            attributes: &Attributes,
        ) -> Result<(String, Vec<String>), String> {
            let Granted { organization, access_as, grants, audit, record_sessions } =
                self.given.directory.use_granted(self.agent, user)?;
            let access_as = match access_as {
                UserAccessAs::Agent => AccessAs::Agent,
                UserAccessAs::User => AccessAs::Impersonated(Impersonated::default()),
            };
            let (issued_at, expires_at) = (Timestamp(0), Timestamp(1));
            let (agent, holder) = (self.agent, Actor::User(user));
            let pass = Pass {
                organization,
                agent,
                holder,
                access_as,
                grants,
                audit,
                record_sessions,
                issued_at,
                expires_at,
            };
            let through = check_pass(&pass, attributes).map_err(|error| error.to_string())?;
            let groups = match through.access_as {
                AccessAs::Agent => Vec::new(),
                AccessAs::Impersonated(whom) => whom.groups,
            };
            Ok((through.place.to_owned(), groups))
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
            assert!(said.contains(".kasbah/agents/cluster/config.yaml permits no user"), "{said}");
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
        let group = |kind: &str, scope: Scope| match scope {
            Scope::Project(id) => format!("kasbah:{kind}_role:{id}:maintainer"),
            Scope::Group(id) => format!("kasbah:{kind}_role:{id}:maintainer"),
            other => panic!("{other:?}"),
        };
        let (front, shop) = (group("project", scene.front), group("group", scene.shop));
        let (_, groups) = scene.let_through(user, &attributes("get", "pods", "a")).unwrap();
        assert_eq!(groups, [front, shop.clone()]);
        let (_, groups) = scene.let_through(user, &attributes("list", "pods", "")).unwrap();
        assert_eq!(groups, [shop], "an entry that withholds it lends no group");
    }

    #[test]
    fn entries_that_let_the_same_through_are_one_and_as_the_agent_there_are_no_groups() {
        let mut scene = scene();
        let user = scene.user(&[(Role::Owner, scene.shop)]);
        let mut granted = |users_access_as| {
            scene.configured(Grants {
                user_projects: vec![grant("shop/front", 3, &[], &[])],
                user_groups: vec![grant("shop", 5, &[], &[])],
                users_access_as,
                ..Grants::default()
            });
            let granted = scene.given.directory.use_granted(scene.agent, user).unwrap();
            let [only] = granted.grants.as_slice() else { panic!("{granted:?}") };
            only.groups.len()
        };
        assert_eq!((granted(UserAccessAs::User), granted(UserAccessAs::Agent)), (2, 0));
    }

    #[test]
    fn the_agents_that_somebody_may_use_are_listed_with_what_is_left_of_them_and_no_others() {
        let mut scene = scene();
        let (inside, outside) =
            (scene.user(&[(Role::Developer, scene.shop)]), scene.user(&[(Role::Owner, scene.vault)]));
        let grants = |users_access_as| Grants {
            user_projects: vec![grant("shop/front", 3, &["a"], &[])],
            users_access_as,
            ..Grants::default()
        };
        let listed = |scene: &Scene, actor: Actor, organization| -> Vec<UsableAgent> {
            scene.given.directory.usable_agents(organization, &actor, None).collect()
        };
        assert!(listed(&scene, Actor::User(inside), scene.organization).is_empty(), "nothing is granted");
        for access_as in [UserAccessAs::Agent, UserAccessAs::User] {
            scene.configured(grants(access_as));
            let narrowing = Narrowing { namespaces: vec!["a".to_owned()], ..Narrowing::default() };
            let [usable] = &listed(&scene, Actor::User(inside), scene.organization)[..] else { panic!() };
            assert_eq!((usable.agent, usable.access_as), (scene.agent, access_as));
            assert_eq!(
                (&usable.grants, usable.identity.is_some()),
                (&vec![narrowing], access_as == UserAccessAs::User)
            );
        }
        let actor = Actor::User(inside);
        let behind = scene.given.directory.usable_agents(scene.organization, &actor, Some(scene.agent));
        assert_eq!(behind.count(), 0, "a page goes on behind the last one");
        assert!(listed(&scene, Actor::User(outside), scene.organization).is_empty());
        assert!(listed(&scene, Actor::service("console"), scene.organization).is_empty());
        let other = scene.given.organization("other");
        assert!(listed(&scene, Actor::User(inside), other).is_empty(), "asked in another organization");
    }

    #[test]
    fn with_another_role_somebody_is_another_one_to_the_cluster() {
        let mut scene = scene();
        let shop = scene.shop;
        let [developer, other, maintainer] = [Role::Developer, Role::Developer, Role::Maintainer]
            .map(|role| Actor::User(scene.user(&[(role, shop)])));
        scene.configured(Grants {
            user_groups: vec![grant("shop", 1, &[], &[])],
            users_access_as: UserAccessAs::User,
            ..Grants::default()
        });
        let identity = |actor: &Actor| {
            let usable = scene.given.directory.usable_agents(scene.organization, actor, None).next();
            usable.unwrap().identity.unwrap()
        };
        assert_eq!(identity(&developer), identity(&other), "the user is known anyway");
        assert_ne!(identity(&developer), identity(&maintainer));
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
