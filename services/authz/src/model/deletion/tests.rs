use events::configuration::{
    AgentConfiguration, ConfigurationChanged, ConfigurationEvent, GitReference, HealthSettings, Mode,
    ObserveRules, ResourceRules, SourceConfiguration, SyncPolicies,
};
use events::directory::Role;
use events::{Actor, SourceId};

use super::super::given::{Given, NOW};
use super::*;

fn reads(given: &mut Given, asker: &Asker, agent: AgentId, project: ProjectId) {
    let source = SourceConfiguration {
        id: SourceId::derive(agent, "web"),
        name: "web".to_owned(),
        project,
        reference: GitReference::Default,
        include: vec!["a".to_owned()],
        exclude: Vec::new(),
        interval_seconds: 60,
        default_namespace: "default".to_owned(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 3,
    };
    let configuration = AgentConfiguration {
        mode: Mode::Cluster,
        resources: ResourceRules::default(),
        observe: ObserveRules::default(),
        health: HealthSettings::default(),
        relations: Vec::new(),
        actions: Vec::new(),
        sources: vec![source],
        lockdown: false,
        implicit_rights: false,
        grants: events::grants::Grants::default(),
    };
    let changed = ConfigurationChanged { agent, commit: "0".to_owned(), configuration, warnings: Vec::new() };
    let body = ConfigurationEvent::ConfigurationChanged(changed).encode().unwrap();
    given.configured_by(asker.organization, agent, body);
}

#[test]
fn what_hangs_on_a_project_or_group_keeps_it_and_is_named() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let [front, back] = ["front", "back"].map(|name| given.project(&owner, group, name));
    let agent = given.agent(&owner, front, "edge");
    reads(&mut given, &owner, agent, back);
    let kept = |refusal: Refusal| {
        assert_eq!(refusal.kind, RefusalKind::Conflict, "{refusal}");
        refusal.message
    };
    let said = kept(given.directory.delete_project(&owner, front).unwrap_err());
    assert!(said.contains("depend on it: agent edge;"), "{said}");
    let said = kept(given.directory.delete_project(&owner, back).unwrap_err());
    assert!(said.contains("source web of agent shop/front:edge"), "{said}");
    let said = kept(given.directory.delete_group(&owner, group).unwrap_err());
    assert!(
        said.contains("project shop/back, project shop/front")
            || said.contains("project shop/front, project shop/back"),
        "{said}"
    );
    let narrow = given.user(organization, &[(Role::Maintainer, Scope::Project(back))]);
    let said = kept(given.directory.delete_project(&narrow, back).unwrap_err());
    assert!(!said.contains("edge") && said.contains("may not see"), "{said}");
    assert!(given.directory.delete_group(&narrow, group).is_err());
    assert_eq!(
        given.directory.project_to_delete(&narrow, "shop/front").unwrap_err().kind,
        RefusalKind::NotFound
    );

    let (key, decided) = (given.key(), given.directory.delete_agent(&owner, "edge"));
    given.then(key, decided);
    for project in [front, back] {
        let (key, decided) = (given.key(), given.directory.delete_project(&owner, project));
        given.then(key, decided);
        assert_eq!(given.directory.delete_project(&owner, project).unwrap().draft, None, "asked again");
    }
    let (key, decided) = (given.key(), given.directory.delete_group(&owner, group));
    given.then(key, decided);
    assert_eq!(
        given.directory.projects_for(&owner, None).count() + given.directory.groups_for(&owner, None).count(),
        0
    );
    let Actor::User(id) = narrow.actor else { panic!("a user") };
    assert!(given.directory.user_view(id).unwrap().0.roles.is_empty(), "roles in it end with it");
    let again = given.group(&owner, "shop");
    assert_ne!(again, group, "the name is free, and what takes it is another thing");
    assert_ne!(given.project(&owner, again, "front"), front);
}

#[test]
fn what_comes_to_a_project_at_the_moment_of_its_deletion_goes_with_it() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let before = given.directory.clone();
    let deleted = before.delete_project(&owner, project).unwrap().draft.unwrap();
    let key = given.key();
    given.fold(key, deleted);
    let agent = AgentId(given.id());
    let token = given.token(TokenHolder::Agent(agent), "edge", None);
    let registered = events::directory::AgentRegistered {
        agent,
        name: "edge".to_owned(),
        project,
        group: None,
        replaces: Vec::new(),
    };
    let draft = before.register_agent(&owner, registered, token.clone(), key).unwrap().draft.unwrap();
    let key = given.key();
    given.fold(key, draft);
    assert!(given.directory.holder_of(token.hash, NOW).is_err());
    assert!(given.directory.visible_agent(&owner, &agent.to_string()).is_err());
}
