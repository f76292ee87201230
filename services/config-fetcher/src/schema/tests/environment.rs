//! The environment that a source deploys into.

use events::environment::Tier;

use super::*;

#[test]
fn a_source_names_its_environment() {
    let text = with("environment: {name: review/login, tier: testing, project: shop/front}");
    let checked = check(FILE, text.as_bytes());
    assert_eq!((checked.findings, checked.warnings), (vec![], vec![]));
    let of_environments = BTreeMap::from([("shop/front".to_owned(), project(7))]);
    let configuration = checked.draft.resolve(agent(), &[project(1)], &of_environments);
    let environment = configuration.sources[0].environment.clone().unwrap();
    assert_eq!(
        (environment.name.as_str(), environment.tier, environment.project),
        ("review/login", Some(Tier::Testing), Some(project(7)))
    );
}

#[test]
fn the_environment_of_the_agents_own_project_needs_only_a_name() {
    let checked = check(FILE, with("environment: {name: production}").as_bytes());
    assert_eq!(checked.findings, []);
    let configuration = checked.draft.resolve(agent(), &[project(1)], &BTreeMap::new());
    let environment = configuration.sources[0].environment.clone().unwrap();
    assert_eq!((environment.tier, environment.project), (None, None));
}

#[test]
fn what_is_wrong_with_an_environment_is_said_of_its_field() {
    for (line, field, part) in [
        ("environment: production", "sources[0].environment", "a mapping is expected"),
        ("environment: {tier: staging}", "sources[0].environment.name", "name is missing"),
        ("environment: {name: a*}", "sources[0].environment.name", "must be 1 to 255"),
        ("environment: {name: /a}", "sources[0].environment.name", "must not begin or end"),
        ("environment: {name: a, tier: prod}", "sources[0].environment.tier", "not one of production"),
        ("environment: {name: a, project: front}", "sources[0].environment.project", "write group/name"),
        ("environment: {name: a, teir: other}", "sources[0].environment.teir", "did you mean 'tier'?"),
    ] {
        let found = findings(&with(line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert_eq!(found[0].2, field, "{line}");
        assert!(found[0].3.contains(part), "{line}: {}", found[0].3);
    }
}
