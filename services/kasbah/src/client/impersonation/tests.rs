use events::directory::ProjectSettings;
use events::grants::UserGrant;
use events::pass::Narrowing;
use events::{AgentId, GroupId, ProjectId, Timestamp};
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
        external_id: None,
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

/// The rights of an agent of these grants, with these people and environments.
fn printed(grants: &Grants, users: &[&str], environments: &[&str]) -> String {
    let agent = AgentView {
        id: AgentId(id(7)),
        name: "edge".to_owned(),
        project: ProjectId(id(1)),
        project_path: "shop/front".to_owned(),
        registered_at: Timestamp(0),
    };
    let projects = [project(1, "shop/front", 11), project(2, "shop/back", 11), project(3, "bank/vault", 12)];
    let groups = [
        GroupView { id: GroupId(id(11)), name: "shop".to_owned() },
        GroupView { id: GroupId(id(12)), name: "bank".to_owned() },
    ];
    let users: Vec<String> = users.iter().map(|name| (*name).to_owned()).collect();
    let rights = Impersonation {
        agent: &agent,
        namespace: "kasbah-agent",
        grants,
        directory: Directory { projects: &projects, groups: &groups },
        users: &users,
        environments: environments.iter().map(|name| (*name).to_owned()).collect(),
    };
    rights.yaml().unwrap()
}

/// The rules for a resource.
fn rules(printed: &str) -> Vec<Value> {
    let text = printed.split("---\n").nth(1).unwrap();
    let role: Value = serde_saphyr::from_str(text).unwrap();
    role["rules"].as_array().unwrap().clone()
}

fn names_of(printed: &str, resource: &str) -> Option<Vec<String>> {
    let rules = rules(printed);
    let mut of_it = rules.iter().filter(|rule| rule["resources"] == json!([resource]));
    let rule = of_it.next()?;
    assert!(of_it.next().is_none(), "two rules for {resource}");
    let names = rule.get("resourceNames").map(|names| names.as_array().unwrap().clone());
    Some(names.unwrap_or_default().iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}

#[test]
fn whoever_comes_as_the_agent_needs_no_right() {
    let grants = Grants {
        user_projects: vec![of_people("shop/front")],
        ci_projects: vec![of_jobs("shop/front", CiAccessAs::Agent, &[])],
        ..Grants::default()
    };
    for grants in [grants, Grants::default()] {
        assert_eq!(rules(&printed(&grants, &[], &[])), Vec::<Value>::new());
    }
}

#[test]
fn people_may_be_anybody_in_the_groups_of_their_roles_alone() {
    let grants = Grants {
        user_projects: vec![of_people("shop/front"), of_people("not/there")],
        user_groups: vec![of_people("Bank")],
        users_access_as: UserAccessAs::User,
        ..Grants::default()
    };
    let text = printed(&grants, &[], &[]);
    assert_eq!(names_of(&text, "users"), Some(Vec::new()), "any");
    let groups = names_of(&text, "groups").unwrap();
    assert_eq!(groups.len(), 7, "{groups:?}");
    for group in [
        "kasbah:user".to_owned(),
        format!("kasbah:project_role:{}:developer", id(1)),
        format!("kasbah:group_role:{}:owner", id(12)),
    ] {
        assert!(groups.contains(&group), "{group} is not among {groups:?}");
    }
    assert!(text.contains("# Any user name"), "{text}");
    let listed = printed(&grants, &["ann", "bob"], &[]);
    assert_eq!(names_of(&listed, "users").unwrap(), ["kasbah:user:ann", "kasbah:user:bob"]);
    assert!(!listed.contains("# Any user name"), "{listed}");
}

#[test]
fn jobs_are_of_their_projects_and_of_the_environments_that_are_named() {
    let grants = Grants {
        ci_projects: vec![of_jobs("shop/front", CiAccessAs::CiJob, &["production", "review/*"])],
        ci_groups: vec![of_jobs("bank", CiAccessAs::CiJob, &["vault"])],
        ..Grants::default()
    };
    let text = printed(&grants, &[], &["review/1"]);
    let groups = names_of(&text, "groups").unwrap();
    for group in [
        "kasbah:ci_job".to_owned(),
        format!("kasbah:project:{}", id(1)),
        format!("kasbah:group:{}", id(12)),
        format!("kasbah:project_env:{}:production", id(1)),
        format!("kasbah:project_env:{}:review/1", id(1)),
        format!("kasbah:project_env:{}:vault", id(3)),
        format!("kasbah:group_env_tier:{}:staging", id(11)),
    ] {
        assert!(groups.contains(&group), "{group} is not among {groups:?}");
    }
    assert!(!groups.iter().any(|group| group.contains(&id(2).to_string()) || group.contains('*')));
    assert_eq!(names_of(&text, "userextras/kasbah.dev/agent").unwrap(), [id(7).to_string()]);
    let environments = names_of(&text, "userextras/kasbah.dev/environment").unwrap();
    assert_eq!(environments, ["production", "review/1", "vault"]);
    assert!(text.contains("--environment"), "{text}");
}

#[test]
fn somebody_whom_the_configuration_names_is_all_that_is_allowed_of_that() {
    let whom = Impersonated {
        username: "deployer".to_owned(),
        groups: vec!["deployers".to_owned()],
        uid: "u-1".to_owned(),
        extra: BTreeMap::from([("example.com/Team".to_owned(), vec!["blue".to_owned()])]),
    };
    let account =
        Impersonated { username: "system:serviceaccount:ci:builder".to_owned(), ..Impersonated::default() };
    let grants = Grants {
        ci_projects: vec![
            of_jobs("shop/front", CiAccessAs::Impersonate(whom), &[]),
            of_jobs("shop/back", CiAccessAs::Impersonate(account), &[]),
        ],
        ..Grants::default()
    };
    let text = printed(&grants, &[], &[]);
    for (resource, names) in [
        ("users", ["deployer"]),
        ("groups", ["deployers"]),
        ("serviceaccounts", ["builder"]),
        ("uids", ["u-1"]),
        ("userextras/example.com/team", ["blue"]),
    ] {
        assert_eq!(names_of(&text, resource).unwrap(), names, "{resource}");
    }
}
