use super::super::{Draft, additions, check};
use super::*;

const FILE: &str = ".kasbah/agents/edge/config.yaml";
const OWN: &str = "shop/config";

/// The file with all lines added, as a person would.
fn with(text: &str, additions: &[Addition]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let place = |number: usize| u32::try_from(number).unwrap();
    for (number, line) in std::iter::once("").chain(text.lines()).enumerate() {
        lines.extend((number > 0).then(|| line.to_owned()));
        let here = additions.iter().filter(|addition| addition.after_line == Some(place(number)));
        lines.extend(here.flat_map(|addition| addition.lines.clone()));
    }
    lines.join("\n") + "\n"
}

/// What a file says but for where it says it.
fn meaning(mut draft: Draft) -> Draft {
    draft.sources.iter_mut().for_each(|source| source.line = 0);
    draft.grants.ci_projects.iter_mut().chain(&mut draft.grants.ci_groups).for_each(|grant| grant.line = 0);
    draft
        .grants
        .user_projects
        .iter_mut()
        .chain(&mut draft.grants.user_groups)
        .for_each(|grant| grant.line = 0);
    draft
}

const OF_GITLAB: &str = "# What the agent may do.
ci_access:
  projects:
    - id: shop/web
      default_namespace: web   # of the team
    # Those who deploy.
    - environments:
        - staging
        - review/*
      id: shop/deploy
  groups:
  - id: shop
  - id: bank
    access_as: {ci_job: {}}
user_access:
  access_as:
    agent: {}
  projects:
    - id: shop/web
";

#[test]
fn the_lines_that_are_printed_give_a_file_of_gitlab_the_meaning_that_it_has_there() {
    let added = additions(OF_GITLAB.as_bytes(), Some(OWN));
    assert!(added.iter().all(|addition| addition.after_line.is_some()), "{added:#?}");
    let text = with(OF_GITLAB, &added);
    let checked = check(FILE, text.as_bytes());
    assert_eq!((checked.findings, checked.warnings), (vec![], vec![]), "{text}");
    let former = check(FILE, format!("sources: []\n{OF_GITLAB}").as_bytes()).former.unwrap().draft;
    let own = format!("sources: []\nci_access: {{projects: [{{id: {OWN}}}]}}\n");
    let own = check(FILE, own.as_bytes()).former.unwrap().draft.grants.ci_projects.remove(0);
    let mut expected = Draft { implicit_rights: false, ..former };
    expected.grants.ci_projects.insert(0, own);
    assert_eq!(meaning(checked.draft), meaning(expected), "{text}");
    assert!(additions(text.as_bytes(), Some(OWN)).is_empty(), "all is said");
}

#[test]
fn people_who_came_as_the_agent_because_nothing_was_said_do_so_with_the_lines_that_are_printed() {
    for text in [
        "sources: []\nuser_access:\n  projects:\n    - id: shop/web\n",
        "sources: []\nci_access:\n  groups:\n    - id: shop\nuser_access:\n\n  # All of them.\n  groups:\n    - id: shop\n",
        "---\nsources: []\nci_access:\n  projects:\n    - id: Shop/Config\n",
        "mode: namespaced\nsources: []\nuser_access:\n  projects:\n    - id: shop/web\n",
    ] {
        let added = additions(text.as_bytes(), Some(OWN));
        let changed = with(text, &added);
        let checked = check(FILE, changed.as_bytes());
        assert_eq!((checked.findings, checked.warnings), (vec![], vec![]), "{changed}");
        let former = check(FILE, text.as_bytes()).former.unwrap().draft;
        let grants = |draft: Draft| meaning(draft).grants;
        let (mut now, then) = (grants(checked.draft), grants(former));
        assert_eq!(now.users_access_as, then.users_access_as, "{changed}");
        now.ci_projects.retain(|grant| grant.path != OWN || then.ci_projects.contains(grant));
        assert_eq!(now, then, "{changed}");
    }
}

#[test]
fn what_is_written_in_one_line_is_named_and_a_file_that_takes_a_stand_needs_nothing() {
    let text = "sources: []\nci_access: {projects: [{id: a/b}]}\n";
    let added = additions(text.as_bytes(), None);
    let places: Vec<_> = added.iter().map(|one| (one.after_line, one.place.as_str())).collect();
    assert_eq!(places, [(Some(0), ""), (None, "ci_access.projects[0]"), (None, "ci_access.projects")]);
    assert_eq!(added[2].lines[0], format!("- id: {OWN_PROJECT}"));
    for stand in ["true", "false"] {
        let text = format!("allow_agent_identity: {stand}\n{text}");
        assert_eq!(additions(text.as_bytes(), None), []);
        assert_eq!(check(FILE, text.as_bytes()).former, None);
    }
    assert_eq!(additions(b"- a\n", None), []);
    for wrong in ["sources: []\nsources: []\n", "sources: []\n---\nsources: []\n", "sources: 7\n"] {
        assert_eq!(check(FILE, wrong.as_bytes()).former, None, "what is wrong in any reading: {wrong}");
    }
}

#[test]
fn a_file_that_came_into_force_formerly_is_told_where_it_stands_on_that() {
    let warned = |text: &str| {
        let warnings = check(FILE, text.as_bytes()).former.unwrap().warnings;
        warnings.into_iter().map(|found| (found.line, found.field)).collect::<Vec<_>>()
    };
    assert_eq!(warned("sources: []\n"), [(1, "ci_access".to_owned())]);
    let found = warned(&format!("sources: []\n{OF_GITLAB}"));
    let fields: Vec<&str> = found.iter().map(|(_, field)| field.as_str()).collect();
    let expected = [
        "ci_access",
        "ci_access.projects[0].access_as",
        "ci_access.projects[1].access_as",
        "ci_access.groups[0].access_as",
        "user_access.access_as.agent",
    ];
    assert_eq!(fields, expected);
    assert_eq!(warned("mode: namespaced\nsources: []\nuser_access: {groups: [{id: a}]}\n").len(), 1);
}
