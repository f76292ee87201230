use std::collections::BTreeMap;

use events::directory::{ProjectSettings, Role, Scope};
use events::grants::UserGrant;
use events::pass::Narrowing;
use events::requests::authz::{GroupView, UserView};
use events::{AgentId, GroupId, OrganizationId, ProjectId, Timestamp, UserId};
use uuid::Uuid;

use super::*;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn project(number: u128, path: &str, group: u128) -> ProjectView {
    let settings = ProjectSettings {
        repository: "https://git.example/x".to_owned(),
        default_branch: "main".to_owned(),
        credential: None,
        external_id: Some(u64::try_from(number).unwrap() + 100),
    };
    ProjectView { id: ProjectId(id(number)), group: GroupId(id(group)), path: path.to_owned(), settings }
}

fn of_people(path: &str) -> UserGrant {
    UserGrant { path: path.to_owned(), narrowing: Narrowing::default(), line: 1 }
}

fn of_jobs(path: &str, access_as: CiAccessAs, environments: &[&str]) -> CiGrant {
    CiGrant {
        path: path.to_owned(),
        default_namespace: "default".to_owned(),
        access_as,
        environments: environments.iter().map(|name| (*name).to_owned()).collect(),
        protected_branches_only: false,
        narrowing: Narrowing::default(),
        line: 1,
    }
}

/// Impersonation as the configuration and the command line say it.
#[derive(Default)]
struct Asked<'a> {
    grants: Grants,
    users: &'a [&'a str],
    any_user: bool,
    environments: &'a [&'a str],
    tiers: &'a [&'a str],
    /// The asker may not list people.
    sees_no_people: bool,
}

fn user(number: u128, name: &str, role: Role, scope: Scope) -> UserView {
    let name = (!name.is_empty()).then(|| name.to_owned());
    UserView {
        id: UserId(id(number)),
        name,
        roles: vec![(role, scope)],
        accounts: Vec::new(),
        disabled: false,
    }
}

/// Ann of the organization, Bob of the group shop, Cid of shop/front, Dan of the group bank; Eve only looks, and Fay's name was erased.
fn everybody() -> [UserView; 6] {
    let shop = Scope::Group(GroupId(id(11)));
    [
        user(21, "ann", Role::Owner, Scope::Organization(OrganizationId(id(20)))),
        user(22, "bob", Role::Maintainer, shop),
        user(23, "cid", Role::Developer, Scope::Project(ProjectId(id(1)))),
        user(24, "dan", Role::Developer, Scope::Group(GroupId(id(12)))),
        user(25, "eve", Role::Viewer, shop),
        user(26, "", Role::Owner, shop),
    ]
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Asked<'_> {
    fn rights(&self) -> Result<Rights, Failure> {
        let agent = AgentView {
            id: AgentId(id(7)),
            name: "edge".to_owned(),
            project: ProjectId(id(1)),
            project_path: "shop/front".to_owned(),
            group: None,
            registered_at: Timestamp(0),
        };
        let projects =
            [project(1, "shop/front", 11), project(2, "shop/back", 11), project(3, "bank/vault", 12)];
        let groups = [(11, "shop"), (12, "bank")]
            .map(|(number, name)| GroupView { id: GroupId(id(number)), name: name.to_owned() });
        let people = everybody();
        let users = (!self.sees_no_people).then_some(people.as_slice());
        let asked = Impersonation {
            agent: &agent,
            namespace: "kasbah-agent",
            grants: &self.grants,
            directory: Directory { projects: &projects, groups: &groups, users },
            users: &owned(self.users),
            any_user: self.any_user,
            environments: owned(self.environments).into_iter().collect(),
            tiers: owned(self.tiers).into_iter().collect(),
        };
        asked.rights()
    }

    fn printed(&self) -> String {
        self.rights().unwrap().yaml().unwrap()
    }
}

fn of(grants: Grants) -> Asked<'static> {
    Asked { grants, ..Asked::default() }
}

/// The objects of a kind.
fn objects(printed: &str, kind: &str) -> Vec<Value> {
    let documents = printed.split("---\n").skip(1);
    let objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    objects.filter(|object| object["kind"] == kind).collect()
}

/// The rules that hold in the whole cluster.
fn rules(printed: &str) -> Vec<Value> {
    let roles = objects(printed, "ClusterRole");
    assert_eq!(roles.len(), 1, "{printed}");
    roles[0]["rules"].as_array().unwrap().clone()
}

fn names_of(printed: &str, resource: &str) -> Option<Vec<String>> {
    let rules = rules(printed);
    let mut of_it = rules.iter().filter(|rule| rule["resources"] == json!([resource]));
    let rule = of_it.next()?;
    assert!(of_it.next().is_none(), "two rules for {resource}");
    let names = rule.get("resourceNames").map(|names| names.as_array().unwrap().clone());
    Some(names.unwrap_or_default().iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}

fn people_of(projects: &[&str], groups: &[&str]) -> Grants {
    Grants {
        user_projects: projects.iter().map(|path| of_people(path)).collect(),
        user_groups: groups.iter().map(|path| of_people(path)).collect(),
        users_access_as: UserAccessAs::User,
        ..Grants::default()
    }
}

fn jobs_themselves_of(path: &str, environments: &[&str]) -> Grants {
    Grants { ci_projects: vec![of_jobs(path, CiAccessAs::CiJob, environments)], ..Grants::default() }
}

fn as_user(username: &str) -> CiAccessAs {
    CiAccessAs::Impersonate(Impersonated { username: username.to_owned(), ..Impersonated::default() })
}

#[test]
fn whoever_comes_as_the_agent_needs_no_right() {
    let grants = Grants {
        user_projects: vec![of_people("not/there")],
        ci_projects: vec![of_jobs("not/there", CiAccessAs::Agent, &[])],
        ..Grants::default()
    };
    for grants in [grants, Grants::default()] {
        let text = Asked { grants, any_user: true, sees_no_people: true, ..Asked::default() }.printed();
        assert_eq!(rules(&text), Vec::<Value>::new());
    }
}

#[test]
fn people_are_those_whose_roles_let_them_in_and_in_the_groups_of_these_alone() {
    let text = of(people_of(&["shop/front"], &["Bank"])).printed();
    let names = ["kasbah:user:ann", "kasbah:user:bob", "kasbah:user:cid", "kasbah:user:dan"];
    assert_eq!(names_of(&text, "users").unwrap(), names);
    let groups = names_of(&text, "groups").unwrap();
    assert_eq!(groups.len(), 7, "{groups:?}");
    for group in [
        "kasbah:user".to_owned(),
        format!("kasbah:project_role:{}:developer", id(1)),
        format!("kasbah:group_role:{}:owner", id(12)),
    ] {
        assert!(groups.contains(&group), "{group} is not among {groups:?}");
    }
    for (grants, names) in [
        (people_of(&["shop/back"], &[]), &["kasbah:user:ann", "kasbah:user:bob"]),
        (people_of(&[], &["bank"]), &["kasbah:user:ann", "kasbah:user:dan"]),
    ] {
        assert_eq!(names_of(&of(grants).printed(), "users").unwrap(), names);
    }
}

#[test]
fn people_are_those_who_are_named_also_beside_jobs() {
    let grants = Grants {
        ci_projects: vec![of_jobs("shop/front", CiAccessAs::CiJob, &[])],
        ..people_of(&["shop/front"], &[])
    };
    let asked = Asked { grants, users: &["ann", "zoe"], sees_no_people: true, ..Asked::default() };
    assert_eq!(names_of(&asked.printed(), "users").unwrap(), ["kasbah:user:ann", "kasbah:user:zoe"]);
    let unnamed = Asked { users: &[], ..asked };
    let said = unnamed.rights().unwrap_err().to_string();
    assert!(said.starts_with("--user: you may not list the users"), "{said}");
}

#[test]
fn user_names_are_open_only_for_jobs_themselves_and_only_if_asked_for() {
    let asked = of(jobs_themselves_of("shop/front", &[]));
    let text = asked.printed();
    assert_eq!(names_of(&text, "users"), None);
    assert!(text.contains("# The cluster refuses jobs with their own identity (ci_job)"), "{text}");
    let opened = Asked { any_user: true, ..asked }.printed();
    assert_eq!(names_of(&opened, "users"), Some(Vec::new()), "any");
    assert!(opened.contains("# Any user name") && !opened.contains("The cluster refuses jobs"));
    let people = Asked { any_user: true, ..of(people_of(&[], &["bank"])) }.printed();
    assert_eq!(names_of(&people, "users").unwrap(), ["kasbah:user:ann", "kasbah:user:dan"]);
}

#[test]
fn jobs_are_of_their_projects_and_of_the_environments_and_tiers_that_are_named() {
    let grants = Grants {
        ci_groups: vec![of_jobs("bank", CiAccessAs::CiJob, &["vault"])],
        ..jobs_themselves_of("shop/front", &["production", "review/*"])
    };
    let text = Asked { environments: &["review/1"], tiers: &["qa"], ..of(grants) }.printed();
    let groups = names_of(&text, "groups").unwrap();
    for group in [
        "kasbah:ci_job".to_owned(),
        format!("kasbah:project:{}", id(1)),
        format!("kasbah:group:{}", id(12)),
        format!("kasbah:project_env:{}:production", id(1)),
        format!("kasbah:project_env:{}:review/1", id(1)),
        format!("kasbah:project_env:{}:vault", id(3)),
        format!("kasbah:group_env_tier:{}:staging", id(11)),
        format!("kasbah:group_env_tier:{}:qa", id(12)),
        format!("kasbah:project_env_tier:{}:qa", id(1)),
    ] {
        assert!(groups.contains(&group), "{group} is not among {groups:?}");
    }
    assert!(!groups.iter().any(|group| group.contains(&id(2).to_string()) || group.contains('*')));
    assert_eq!(names_of(&text, "userextras/kasbah.dev/agent").unwrap(), [id(7).to_string()]);
    let environments = names_of(&text, "userextras/kasbah.dev/environment").unwrap();
    assert_eq!(environments, ["production", "review/1", "vault"]);
    let tiers = names_of(&text, "userextras/kasbah.dev/environment-tier").unwrap();
    assert!(tiers.contains(&"qa".to_owned()) && tiers.len() == 6, "{tiers:?}");
    assert!(text.contains("--environment") && text.contains("# Jobs of other tiers than"), "{text}");
}

#[test]
fn projects_are_known_by_id_as_well() {
    let by_path = of(jobs_themselves_of("shop/back", &[])).printed();
    for text in [id(2).to_string(), "102".to_owned()] {
        assert_eq!(of(jobs_themselves_of(&text, &[])).printed(), by_path, "{text}");
    }
}

#[test]
fn paths_that_are_not_seen_are_an_error_that_names_them() {
    let grants = Grants {
        ci_projects: vec![
            of_jobs("no/job", CiAccessAs::CiJob, &[]),
            of_jobs("no/agent", CiAccessAs::Agent, &[]),
            of_jobs("no/other", as_user("deployer"), &[]),
        ],
        ci_groups: vec![of_jobs("jobs", CiAccessAs::CiJob, &[])],
        ..people_of(&["no/person", "shop/front"], &["people", "bank"])
    };
    let failure = of(grants).rights().unwrap_err();
    assert!(matches!(&failure, Failure::Refused { refusal, .. } if refusal.kind == RefusalKind::NotFound));
    let said = failure.to_string();
    let named = "to you: project no/job, project no/person, group jobs, group people; run this as an owner";
    assert!(said.contains(named), "{said}");
}

#[test]
fn whoever_may_be_blind_to_projects_of_a_group_is_told() {
    let grants = Grants { ci_groups: vec![of_jobs("bank", CiAccessAs::CiJob, &[])], ..Grants::default() };
    let words = "# Projects of group \"bank\" that you may not see are omitted";
    let asked = of(grants);
    assert!(!asked.printed().contains(words));
    let blind = Asked { sees_no_people: true, ..asked }.printed();
    assert!(blind.contains(words), "{blind}");
}

#[test]
fn somebody_whom_the_configuration_names_is_all_that_is_allowed_of_that() {
    let whom = Impersonated {
        username: "deployer".to_owned(),
        groups: owned(&["deployers", "system:serviceaccounts:ci"]),
        uid: "u-1".to_owned(),
        extra: BTreeMap::from([("example.com/Team".to_owned(), vec!["blue".to_owned()])]),
    };
    let grants = Grants {
        ci_projects: vec![of_jobs("shop/front", CiAccessAs::Impersonate(whom), &[])],
        ..Grants::default()
    };
    let text = of(grants).printed();
    for (resource, names) in [
        ("users", &["deployer"][..]),
        ("groups", &["deployers", "system:serviceaccounts:ci"]),
        ("uids", &["u-1"]),
        ("userextras/example.com/team", &["blue"]),
    ] {
        assert_eq!(names_of(&text, resource).unwrap(), names, "{resource}");
    }
    assert_eq!(rules(&text).len(), 4);
}

#[test]
fn service_accounts_are_allowed_in_their_own_namespaces_alone() {
    let names =
        ["ci:default", "ci:builder.v1", "web:default", "ci", "ci:", ":default", "a:b:c", "CI:a", "ci:A"];
    let of_name = |name: &&str| of_jobs("shop/front", as_user(&format!("system:serviceaccount:{name}")), &[]);
    let grants = Grants { ci_projects: names.iter().map(of_name).collect(), ..Grants::default() };
    let text = of(grants).printed();
    assert_eq!(names_of(&text, "serviceaccounts"), None, "in every namespace");
    let users = [":default", "CI:a", "a:b:c", "ci", "ci:", "ci:A"];
    let users = users.map(|name| format!("system:serviceaccount:{name}"));
    assert_eq!(names_of(&text, "users").unwrap(), users);

    let account = json!({"kind": "ServiceAccount", "name": "kasbah-agent-edge", "namespace": "kasbah-agent"});
    let (roles, bindings) = (objects(&text, "Role"), objects(&text, "RoleBinding"));
    let expected = [("ci", json!(["builder.v1", "default"])), ("web", json!(["default"]))];
    assert_eq!((roles.len(), bindings.len()), (2, 2), "{text}");
    for ((role, binding), (namespace, names)) in roles.iter().zip(&bindings).zip(expected) {
        let rule = json!({
            "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": names,
        });
        assert_eq!(role["rules"], json!([rule]));
        assert_eq!(role["metadata"]["namespace"], namespace);
        assert_eq!(binding["metadata"]["namespace"], namespace);
        assert_eq!(binding["roleRef"]["kind"], "Role");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["subjects"], json!([account]));
    }
}
