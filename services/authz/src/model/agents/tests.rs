use events::directory::Role;
use events::requests::authz::{Decide, DecideFetch};

use super::super::given::{Given, NOW};
use super::*;

/// `shop/front` and `shop/back`, `bank/vault`, and an agent of the group `shop` that `shop/front` configures.
struct Scene {
    given: Given,
    organization: OrganizationId,
    owner: Asker,
    shop: GroupId,
    bank: GroupId,
    front: ProjectId,
    back: ProjectId,
    vault: ProjectId,
    agent: AgentId,
}

fn scene() -> Scene {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let (shop, bank) = (given.group(&owner, "shop"), given.group(&owner, "bank"));
    let (front, back) = (given.project(&owner, shop, "front"), given.project(&owner, shop, "back"));
    let vault = given.project(&owner, bank, "vault");
    let agent = given.agent_of(&owner, (front, Some(shop)), "edge");
    Scene { given, organization, owner, shop, bank, front, back, vault, agent }
}

impl Scene {
    fn user(&mut self, role: Role, scope: Scope) -> Asker {
        self.given.user(self.organization, &[(role, scope)])
    }

    fn place(&self, asker: &Asker, project: &str, group: Option<&str>) -> Result<(), Refusal> {
        self.given.directory.place_for_agent(asker, project, group).map(|_| ())
    }
}

#[test]
fn roles_in_the_group_hold_for_its_agent_and_roles_in_its_projects_do_not() {
    let mut scene = scene();
    let users = [
        (Scope::Group(scene.shop), true),
        (Scope::Agent(scene.agent), true),
        (Scope::Organization(scene.organization), true),
        (Scope::Project(scene.front), false),
        (Scope::Project(scene.back), false),
        (Scope::Group(scene.bank), false),
    ]
    .map(|(scope, expected)| (scene.user(Role::Maintainer, scope), scope, expected));
    let directory = &scene.given.directory;
    for (user, scope, expected) in users {
        for action in [Action::ReadAgent, Action::SyncSource, Action::IssueAgentToken, Action::DeleteAgent] {
            let (actor, organization) = (user.actor.clone(), user.organization);
            let asked = Decide { actor, organization, action, scope: Scope::Agent(scene.agent) };
            let decision = directory.decide_access(&asked);
            assert_eq!((decision.allowed, decision.visible), (expected, expected), "{action:?} by {scope:?}");
        }
        assert_eq!(directory.agents_for(&user, None).count(), usize::from(expected), "{scope:?}");
        assert_eq!(directory.visible_agent(&user, "shop/front:edge").is_ok(), expected, "{scope:?}");
    }
    let view = directory.agent_view(scene.agent).unwrap();
    assert_eq!((view.group.unwrap().name.as_str(), view.project_path.as_str()), ("shop", "shop/front"));
}

#[test]
fn who_may_register_in_the_group_registers_with_one_of_its_projects() {
    let mut scene = scene();
    let of_group = scene.user(Role::Maintainer, Scope::Group(scene.shop));
    let of_project = scene.user(Role::Owner, Scope::Project(scene.front));
    let developer = scene.user(Role::Developer, Scope::Group(scene.shop));
    for asker in [&scene.owner, &of_group] {
        scene.place(asker, "shop/back", Some("shop")).unwrap();
        scene.place(asker, &scene.back.to_string(), Some(&scene.shop.to_string())).unwrap();
        scene.place(asker, "shop/back", None).unwrap();
    }
    scene.place(&of_project, "shop/front", None).unwrap();
    let refused = |asker: &Asker, project: &str, group: &str| {
        let refusal = scene.place(asker, project, Some(group)).unwrap_err();
        (refusal.kind, refusal.field)
    };
    let denied = (RefusalKind::Denied, None);
    assert_eq!(refused(&of_project, "shop/front", "shop"), denied);
    assert_eq!(refused(&developer, "shop/front", "shop"), denied);
    assert_eq!(
        refused(&scene.owner, "bank/vault", "shop"),
        (RefusalKind::Invalid, Some("project".to_owned()))
    );
    let missing = |field: &str| (RefusalKind::NotFound, Some(field.to_owned()));
    assert_eq!(refused(&scene.owner, "shop/none", "shop"), missing("project"));
    assert_eq!(refused(&scene.owner, "shop/front", "none"), missing("group"));
    assert_eq!(refused(&of_group, "bank/vault", "bank").0, RefusalKind::NotFound, "they see nothing of it");
}

#[test]
fn a_decision_to_register_is_made_on_the_group_and_its_project_as_they_are_then() {
    let mut scene = scene();
    let decided = |given: &mut Given, asker: &Asker, project, group| {
        let agent = AgentId(given.id());
        let token = given.token(events::directory::TokenHolder::Agent(agent), "t", None);
        let (name, replaces) = ("late".to_owned(), Vec::new());
        let registered = AgentRegistered { agent, name, project, group, replaces };
        given
            .directory
            .register_agent(asker, registered, token, CommitId(agent.0))
            .map(|_| ())
            .map_err(|error| error.kind)
    };
    let of_project = scene.user(Role::Owner, Scope::Project(scene.front));
    let (shop, owner) = (Some(scene.shop), scene.owner.clone());
    assert_eq!(decided(&mut scene.given, &owner, scene.back, shop), Ok(()));
    assert_eq!(decided(&mut scene.given, &of_project, scene.front, shop), Err(RefusalKind::Denied));
    assert_eq!(decided(&mut scene.given, &owner, scene.vault, shop), Err(RefusalKind::NotFound));
    let key = scene.given.key();
    let deleted = scene.given.directory.delete_project(&scene.owner, scene.back);
    scene.given.then(key, deleted);
    assert_eq!(decided(&mut scene.given, &owner, scene.back, shop), Err(RefusalKind::NotFound));
}

#[test]
fn a_groups_agent_reads_what_its_configuration_project_reads() {
    let scene = scene();
    for (project, expected) in [(scene.front, true), (scene.back, true), (scene.vault, false)] {
        let asked = DecideFetch { agents: vec![scene.agent], project };
        let decision = scene.given.directory.decide_fetch(scene.organization, &asked, NOW);
        assert_eq!(decision.of(scene.agent).is_ok(), expected, "{decision:?}");
    }
    let refusal = scene.given.directory.delete_project(&scene.owner, scene.front).unwrap_err();
    assert!(refusal.message.contains("agent edge"), "{refusal}");
}

#[test]
fn objects_are_handed_up_to_the_group_and_never_down_to_one_of_its_projects() {
    let mut scene = scene();
    let organization = scene.organization;
    let former = |scene: &Scene, group| {
        scene.given.directory.former_agents(organization, (scene.front, group), "edge")
    };
    let (key, of_group) = (scene.given.key(), scene.agent);
    let deleted = scene.given.directory.delete_agent(&scene.owner, "edge");
    scene.given.then(key, deleted);
    let shop = Some(scene.shop);
    assert_eq!((former(&scene, shop), former(&scene, None)), (vec![of_group], vec![]));
    let of_project = scene.given.agent(&scene.owner.clone(), scene.front, "edge");
    let key = scene.given.key();
    let deleted = scene.given.directory.delete_agent(&scene.owner, "edge");
    scene.given.then(key, deleted);
    assert_eq!(former(&scene, None), [of_project]);
    assert_eq!(former(&scene, shop).len(), 2);
}
