//! Who may use the cluster's API.

use super::*;

#[test]
fn the_grants_of_gitlabs_documentation_are_understood() {
    let grants = granted(
        "ci_access:
  projects:
    - id: Shop/Web
    - id: shop/deploy
      default_namespace: staging
      access_as: {ci_job: {}}
      environments: [staging, 'review/*']
      protected_branches_only: true
  groups:
    - id: shop/team
      access_as:
        impersonate:
          username: deployer
          groups: ['team:shop']
          uid: '17'
          extra: [{key: Example.org/Scope, val: [a, b]}]
user_access:
  access_as: {user: {}}
  projects:
    - id: shop/deploy
      namespaces: [shop, staging]
      verbs: [get, list, watch]
      resources: [pods, pods/log, '*.apps']
  groups:
    - {id: shop}
",
    );
    let [plain, job] = grants.ci_projects.as_slice() else { panic!("{grants:?}") };
    assert_eq!((plain.path.as_str(), plain.default_namespace.as_str()), ("shop/web", "default"));
    assert_eq!((&plain.access_as, plain.protected_branches_only), (&CiAccessAs::CiJob, false));
    assert_eq!((job.default_namespace.as_str(), &job.access_as), ("staging", &CiAccessAs::CiJob));
    assert_eq!(job.environments, ["staging", "review/*"]);
    assert!(job.protected_branches_only && job.narrowing.is_empty());
    assert_eq!((plain.line, job.line), (4, 5));
    let CiAccessAs::Impersonate(impersonated) = &grants.ci_groups[0].access_as else { panic!("{grants:?}") };
    assert_eq!((impersonated.username.as_str(), impersonated.uid.as_str()), ("deployer", "17"));
    assert_eq!(impersonated.groups, ["team:shop"]);
    assert_eq!(impersonated.extra["example.org/scope"], ["a", "b"]);
    assert_eq!(grants.users_access_as, UserAccessAs::User);
    let narrowing = &grants.user_projects[0].narrowing;
    assert_eq!(narrowing.namespaces, ["shop", "staging"]);
    assert_eq!((narrowing.verbs.len(), narrowing.resources.len()), (3, 3));
    assert_eq!(grants.user_groups[0].path, "shop");
    let first = granted("ci_access: {projects: [{id: a/b, namespaces: [shop, test]}]}\n");
    assert_eq!(first.ci_projects[0].default_namespace, "shop", "the first that is granted");
    assert!(granted("").is_empty());
}

#[test]
fn nobody_is_let_in_as_the_agent_of_a_whole_cluster_unless_the_file_allows_it_by_name() {
    let people = "user_access: {projects: [{id: a/b}]}\n";
    let jobs = "ci_access: {groups: [{id: a}]}\n";
    assert_eq!(granted(people).users_access_as, UserAccessAs::User);
    assert_eq!(granted(jobs).ci_groups[0].access_as, CiAccessAs::CiJob);
    let allowed = "allow_agent_identity: true\n";
    assert_eq!(granted(&format!("{allowed}{people}")).users_access_as, UserAccessAs::User);
    let namespaced = "mode: namespaced\n";
    assert_eq!(granted(&format!("{namespaced}{people}")).users_access_as, UserAccessAs::Agent);
    assert_eq!(granted(&format!("{namespaced}{jobs}")).ci_groups[0].access_as, CiAccessAs::Agent);

    let people = "user_access: {access_as: {agent: {}}, projects: [{id: a/b}]}\n";
    let jobs = "ci_access: {groups: [{id: a, access_as: {agent: {}}}]}\n";
    for head in [allowed, namespaced] {
        assert_eq!(granted(&format!("{head}{people}")).users_access_as, UserAccessAs::Agent);
        assert_eq!(granted(&format!("{head}{jobs}")).ci_groups[0].access_as, CiAccessAs::Agent);
    }
    for (text, field, instead) in [
        (people, "user_access.access_as.agent", "{user: {}}"),
        (jobs, "ci_access.groups[0].access_as.agent", "{ci_job: {}}"),
    ] {
        for head in ["", "allow_agent_identity: false\n", "mode: cluster\n"] {
            let found = findings(&format!("sources: []\n{head}{text}"));
            let [(_, _, told, message)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(told, field);
            assert!(message.contains("allow_agent_identity: true") && message.contains(instead), "{message}");
        }
    }
    let found = findings("sources: []\nallow_agent_identity: maybe\n");
    assert!(found[0].3.contains("true or false"), "{found:?}");
    assert!(
        !check(FILE, b"sources: []\n").draft.implicit_rights,
        "jobs of the agent's own project need an entry"
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn wrong_grants_are_told_with_their_field() {
    let rows = [
        ("ci_access: all\n", "ci_access", "text where a mapping is expected"),
        ("ci_access: {projects: {}}\n", "ci_access.projects", "where a list is expected"),
        ("ci_access: {projects: [a/b]}\n", "ci_access.projects[0]", "where a mapping is expected"),
        ("ci_access: {projects: [{}]}\n", "ci_access.projects[0].id", "id is missing"),
        ("ci_access: {projects: [{id: 7}]}\n", "ci_access.projects[0].id", "write it in quotes"),
        ("ci_access: {groups: [{id: 'https://git/a'}]}\n", "ci_access.groups[0].id", "never a URL"),
        ("ci_access: {groups: [{id: a/}]}\n", "ci_access.groups[0].id", "is not a path"),
        (
            "ci_access: {projects: [{id: a/b}, {id: A/b}]}\n",
            "ci_access.projects[1].id",
            "already has an entry in line 2",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {agent: {}, ci_job: {}}}]}\n",
            "ci_access.projects[0].access_as.ci_job",
            "agent is given as well",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {}}]}\n",
            "ci_access.projects[0].access_as",
            "write one of",
        ),
        ("user_access: {access_as: user}\n", "user_access.access_as", "where a mapping is expected"),
        (
            "ci_access: {projects: [{id: a/b, access_as: {impersonate: {}}}]}\n",
            "ci_access.projects[0].access_as.impersonate.username",
            "username is missing",
        ),
        (
            "ci_access: {projects: [{id: a/b, access_as: {impersonate: {username: a, groups: ['system:masters']}}}]}\n",
            "ci_access.projects[0].access_as.impersonate.groups[0]",
            "one of the cluster's own",
        ),
        (
            "user_access: {groups: [{id: a, namespaces: []}]}\n",
            "user_access.groups[0].namespaces",
            "permits nothing",
        ),
        (
            "user_access: {groups: [{id: a, namespaces: [A]}]}\n",
            "user_access.groups[0].namespaces[0]",
            "is no namespace",
        ),
        (
            "user_access: {groups: [{id: a, verbs: [read]}]}\n",
            "user_access.groups[0].verbs[0]",
            "'read' is not one of get",
        ),
        (
            "user_access: {groups: [{id: a, resources: [Pod]}]}\n",
            "user_access.groups[0].resources[0]",
            "in lower case",
        ),
        (
            "ci_access: {projects: [{id: a/b, namespaces: [shop], default_namespace: test}]}\n",
            "ci_access.projects[0].default_namespace",
            "not among the namespaces",
        ),
    ];
    for (text, field, part) in rows {
        let found = findings(&format!("sources: []\n{text}"));
        let [(2, _, told, message)] = found.as_slice() else { panic!("{text}: {found:?}") };
        assert!(told == field && message.contains(part), "{text}: {found:?}");
    }
    let many: String = (0..501).map(|number| format!("    - {{id: a/p{number}}}\n")).collect();
    let found = findings(&format!("sources: []\nci_access:\n  projects:\n{many}"));
    assert!(found[0].3.contains("501 entries; at most 500"), "{found:?}");
}

#[test]
fn a_grant_that_says_less_than_was_meant_is_refused() {
    let rows = [
        ("{id: a/b, namespace: [shop]}", "namespace", "did you mean 'namespaces'?"),
        ("{id: a/b, acces_as: {ci_job: {}}}", "acces_as", "did you mean 'access_as'?"),
        ("{id: a/b, environments: []}", "environments", "permits nothing"),
        (
            "{id: a/b, access_as: {impersonate: {username: ' system:admin'}}}",
            "access_as.impersonate.username",
            "without spaces at its ends",
        ),
        (
            "{id: a/b, access_as: {impersonate: {username: 'kasbah:user:ann'}}}",
            "access_as.impersonate.username",
            "of Kasbah's",
        ),
        (
            "{id: a/b, access_as: {impersonate: {username: u, extra: [{key: K, val: [a]}, {key: k, val: [b]}]}}}",
            "access_as.impersonate.extra[1].key",
            "is given already",
        ),
    ];
    for (entry, field, part) in rows {
        let found = findings(&format!("sources: []\nci_access: {{projects: [{entry}]}}\n"));
        let [(2, _, told, message)] = found.as_slice() else { panic!("{entry}: {found:?}") };
        assert!(*told == format!("ci_access.projects[0].{field}") && message.contains(part), "{found:?}");
    }
}
