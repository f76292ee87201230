use objects::health::rule_for;

use super::*;

const SHARED: &str = "platform/charts:kasbah.yaml";

/// An agent's file with this line as its definitions.
fn file(line: &str) -> String {
    format!("sources: []\ndefinitions: {line}\n")
}

fn rule(group: &str, kind: &str, healthy: &str) -> String {
    format!("{{group: '{group}', kind: '{kind}', healthy: \"'{healthy}' == ''\"}}")
}

fn read(text: &str) -> Definitions {
    definitions(SHARED, text.as_bytes()).unwrap()
}

#[test]
fn files_are_named_with_or_without_a_project() {
    let text = "sources: []\ndefinitions:\n  - path: definitions/databases.yaml\n  - project: platform/charts\n    path: charts/database/kasbah.yaml\n";
    let checked = check(FILE, text.as_bytes());
    assert_eq!((checked.findings, checked.warnings), (vec![], vec![]));
    let DraftDefinitions { files, place } = checked.draft.definitions;
    let names: Vec<String> = files.iter().map(DefinitionsFile::name).collect();
    assert_eq!(names, ["definitions/databases.yaml", "platform/charts:charts/database/kasbah.yaml"]);
    assert_eq!((place, files[0].place), ((3, 3), (3, 11)));
    assert_eq!(files[1].project, Some(("platform/charts".to_owned(), 4, 14)));
    let of_project = files[1].wrong_entry(FILE, "not found".to_owned());
    assert_eq!((of_project.line, of_project.field.as_str()), (4, "definitions[1].project"));
    let missing = files[1].wrong("there is no such file");
    assert_eq!((missing.file.as_str(), missing.line), ("platform/charts:charts/database/kasbah.yaml", 0));
    assert!(missing.message.contains("definitions[1] of the agent's file"), "{missing:?}");
    assert_eq!(check(FILE, b"sources: []\n").draft.definitions, DraftDefinitions::default());
}

#[test]
fn what_is_wrong_with_the_key_is_told_at_its_field() {
    let long = format!("[{{path: {}}}]", "a".repeat(1_025));
    let rows = [
        ("all", 14, "definitions", "text where a list is expected"),
        ("[all]", 15, "definitions[0]", "text where a mapping is expected"),
        ("[{}]", 15, "definitions[0].path", "path is missing"),
        ("[{path: ''}]", 22, "definitions[0].path", "empty text"),
        ("[{path: 7}]", 22, "definitions[0].path", "an integer where text is expected"),
        ("[{path: /a.yaml}]", 22, "definitions[0].path", "is not the path of a file"),
        ("[{path: ../a.yaml}]", 22, "definitions[0].path", "is not the path of a file"),
        ("[{path: a/../b.yaml}]", 22, "definitions[0].path", "is not the path of a file"),
        ("[{path: ./b.yaml}]", 22, "definitions[0].path", "is not the path of a file"),
        ("[{path: a//b.yaml}]", 22, "definitions[0].path", "is not the path of a file"),
        ("[{path: a/}]", 22, "definitions[0].path", "is not the path of a file"),
        (long.as_str(), 22, "definitions[0].path", "1025 bytes; at most 1024"),
        ("[{path: a, project: charts}]", 34, "definitions[0].project", "write group/name"),
        ("[{path: a, branch: main}]", 25, "definitions[0].branch", "unknown key 'branch'"),
        ("[{path: a}, {path: a}]", 33, "definitions[1].path", "definitions[0] names this file already"),
        (
            "[{project: a/b, path: a}, {project: A/b, path: a}]",
            61,
            "definitions[1].path",
            "definitions[0] names this file already",
        ),
    ];
    for (line, column, field, part) in rows {
        let found = findings(&file(line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert_eq!((found[0].0, found[0].1, found[0].2.as_str()), (2, column, field), "{line}: {found:?}");
        assert!(found[0].3.contains(part), "{line}: {found:?}");
    }
    assert!(findings(&file("[{path: a}, {project: a/b, path: a}]")).is_empty());
    let many: Vec<String> = (0..=MAXIMUM_FILES).map(|number| format!("{{path: f{number}}}")).collect();
    let found = findings(&file(&format!("[{}]", many.join(", "))));
    assert!(found.len() == 1 && found[0].3 == "21 files of definitions; at most 20 are allowed", "{found:?}");
}

#[test]
fn a_file_has_what_an_agents_file_has_and_tests() {
    let text = "health:\n  rules:\n    - {group: a, kind: B, healthy: status.ok}\n  imported:\n    - {group: a, kind: C, lua: 'return {}'}\nrelations:\n  - {name: uses, from: {group: a, kind: B}, to: {group: a, kind: C}, names: spec.c}\nactions:\n  - {name: stop, group: a, kind: B, text: Stops it., merge: {spec: {stopped: true}}}\ntests:\n  - {object: {apiVersion: a/v1, kind: B, status: {ok: true}}, state: healthy}\n";
    let Definitions { health, relations, actions } = read(text);
    assert_eq!((health.rules.len(), health.imported.len(), relations.len(), actions.len()), (1, 1, 1, 1));
    assert_eq!(read("health: {}\n"), Definitions::default());
    let tested = rule_tests(SHARED, text.as_bytes()).unwrap();
    assert_eq!(tested.tests.len(), 1);
    assert_eq!(tested.rules, RuleFrom::Here(TestedRules { health, actions }));
}

#[test]
fn the_documented_file_is_good() {
    let blocks = EXAMPLE.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let example = blocks.into_iter().find(|block| block.contains("\ntests:\n")).unwrap();
    let Definitions { health, relations, actions } = read(example);
    assert_eq!((health.rules.len(), relations.len(), actions.len()), (1, 1, 1));
    assert_eq!(rule_tests(SHARED, example.as_bytes()).unwrap().tests.len(), 1);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_name_line_column_and_field() {
    let large = format!("# {}\n", "x".repeat(300_000));
    let deep = format!("tests: {}{}\n", "[".repeat(40), "]".repeat(40));
    for (text, line, column, field, part) in [
        ("", 0, 0, "", "the file is empty; write 'health', 'relations' or 'actions'"),
        ("health: [\n", 2, 1, "", ""),
        (large.as_str(), 1, 1, "", "more than the maximum of 262144"),
        (deep.as_str(), 1, 39, "", ""),
        ("- a\n", 1, 1, "", "its keys are health, relations, actions, tests"),
        ("sources: []\n", 1, 1, "sources", "unknown key 'sources'"),
        ("rules: []\n", 1, 1, "rules", "unknown key 'rules'"),
        ("health: {}\n---\nhealth: {}\n", 3, 1, "", "a second document"),
        (
            "health:\n  rules:\n    - {group: a, kind: B, healthy: 'status.x =='}\n",
            3,
            36,
            "health.rules[0].healthy",
            "no usable expression",
        ),
        ("health: {rules: [{group: a, kind: B}]}\n", 1, 18, "health.rules[0].healthy", "healthy is missing"),
        ("relations: [{name: X}]\n", 1, 20, "relations[0].name", "no name of a relation"),
        ("actions: [{name: X}]\n", 1, 18, "actions[0].name", "no name of an action"),
        ("tests: [{object: {}, state: fine}]\n", 1, 29, "tests[0].state", "is not one of healthy"),
    ] {
        let found = definitions(SHARED, text.as_bytes()).unwrap_err();
        let fits = |found: &FileFinding| {
            (found.file.as_str(), found.line, found.column, found.field.as_str())
                == (SHARED, line, column, field)
                && found.message.contains(part)
        };
        assert!(found.iter().any(fits), "{text:.100}: {found:?}");
    }
}

#[test]
fn of_the_same_the_first_counts_and_the_agents_own_is_the_first() {
    let action = |name: &str, text: &str| {
        format!("{{name: {name}, group: a, kind: B, text: {text}, merge: {{spec: {{x: 1}}}}}}")
    };
    let relation = |name: &str, kind: &str| {
        format!(
            "{{name: {name}, from: {{group: a, kind: {kind}}}, to: {{group: a, kind: C}}, names: spec.c}}"
        )
    };
    let lua = |kind: &str, text: &str| format!("{{group: a, kind: {kind}, lua: {text}}}");
    let own = format!(
        "sources: []\nhealth: {{rules: [{}], imported: [{}]}}\nrelations: [{}]\nactions: [{}]\n",
        rule("a", "B", "own"),
        lua("B", "own"),
        relation("uses", "B"),
        action("stop", "own"),
    );
    let shared = |who: &str| {
        read(&format!(
            "health: {{rules: [{}, {}], imported: [{}, {}]}}\nrelations: [{}, {}, {}]\nactions: [{}, {}]\n",
            rule("a", "B", who),
            rule("a", "D", who),
            lua("B", who),
            lua("D", who),
            relation("uses", "D"),
            relation("needs", "D"),
            relation("needs", "E"),
            action("stop", who),
            action("start", who),
        ))
    };
    let mut checked = check(FILE, own.as_bytes());
    checked.take_in(FILE, &[shared("first"), shared("second")], Vec::new());
    assert_eq!(checked.findings, []);
    let Draft { health, relations, actions, .. } = &checked.draft;
    let rules: Vec<&str> = health.rules.iter().map(|rule| rule.healthy.as_str()).collect();
    assert_eq!(rules, ["'own' == ''", "'first' == ''"]);
    let scripts: Vec<&str> = health.imported.iter().map(|rule| rule.lua.as_str()).collect();
    assert_eq!(scripts, ["own", "first"]);
    // A file may have several relations of one name, such as from several kinds; they come together.
    let related: Vec<(&str, &str)> =
        relations.iter().map(|one| (one.name.as_str(), one.from.kind.as_str())).collect();
    assert_eq!(related, [("uses", "B"), ("needs", "D"), ("needs", "E")]);
    let texts: Vec<&str> = actions.iter().map(|action| action.text.as_str()).collect();
    assert_eq!(texts, ["own", "first"]);
    let former = checked.former.unwrap().draft;
    assert_eq!(
        (&former.health, &former.relations, &former.actions),
        (&checked.draft.health, &checked.draft.relations, &checked.draft.actions),
        "as it was read formerly it has the same"
    );
}

#[test]
fn a_rule_that_names_a_kind_comes_before_patterns_of_files_before_it() {
    let rules = |rules: &[String]| format!("health: {{rules: [{}]}}\n", rules.join(", "));
    let own = format!("sources: []\n{}", rules(&[rule("*.example", "*", "own")]));
    let first = read(&rules(&[rule("*", "Dock", "first"), rule("sea.example", "Pier", "first")]));
    let second = read(&rules(&[rule("*", "*", "second"), rule("*.example", "*", "second")]));
    let mut checked = check(FILE, own.as_bytes());
    checked.take_in(FILE, &[first, second], Vec::new());
    for (group, kind, from) in [
        ("sea.example", "Pier", "first"),
        ("sea.example", "Dock", "own"),
        ("sea", "Dock", "first"),
        ("sea", "Pier", "second"),
    ] {
        let found = rule_for(&checked.draft.health.rules, (group, kind), |rule| (&rule.group, &rule.kind));
        assert_eq!(found.unwrap().healthy, format!("'{from}' == ''"), "{group}/{kind}");
    }
}

#[test]
fn limits_hold_for_the_sum() {
    let rules = |from: usize, to: usize| -> String {
        let rules: Vec<String> = (from..to).map(|number| rule("a", &format!("K{number}"), "")).collect();
        format!("health: {{rules: [{}]}}\n", rules.join(", "))
    };
    let taken = |own: &str, shared: &[Definitions]| {
        let mut checked = check(FILE, format!("{own}sources: []\ndefinitions: [{{path: a}}]\n").as_bytes());
        checked.take_in(FILE, shared, Vec::new());
        assert_eq!(checked.former.is_some(), checked.findings.is_empty());
        checked.findings
    };
    // Those that do not count are not counted.
    assert_eq!(taken(&rules(0, 100), &[read(&rules(50, 200))]), []);
    let found = taken(&rules(0, 100), &[read(&rules(50, 201))]);
    assert_eq!((found.len(), found[0].file.as_str(), found[0].field.as_str()), (1, FILE, "definitions"));
    let message = "201 health rules in this file and its files of definitions; at most 200 are allowed";
    assert_eq!((found[0].line, found[0].message.as_str()), (3, message));

    let relations = |from: usize, to: usize| {
        let relation = |number| {
            format!(
                "{{name: r{number}, from: {{group: a, kind: B}}, to: {{group: a, kind: C}}, names: spec.c}}"
            )
        };
        let relations: Vec<String> = (from..to).map(relation).collect();
        read(&format!("relations: [{}]\n", relations.join(", ")))
    };
    let found = taken("", &[relations(0, 60), relations(60, 101)]);
    assert!(found.len() == 1 && found[0].message.starts_with("101 relations "), "{found:?}");
    let actions = |from: usize, to: usize| {
        let action =
            |number| format!("{{name: a{number}, group: a, kind: B, text: a, merge: {{spec: {{x: 1}}}}}}");
        let actions: Vec<String> = (from..to).map(action).collect();
        read(&format!("actions: [{}]\n", actions.join(", ")))
    };
    let found = taken("", &[actions(0, 60), actions(60, 101)]);
    assert!(found.len() == 1 && found[0].message.starts_with("101 actions "), "{found:?}");
    let scripts = |from: usize, to: usize| {
        let script = |number| format!("{{group: a, kind: K{number}, lua: '{}'}}", "x".repeat(15_000));
        let scripts: Vec<String> = (from..to).map(script).collect();
        read(&format!("health: {{imported: [{}]}}\n", scripts.join(", ")))
    };
    let found = taken("", &[scripts(0, 10), scripts(10, 20)]);
    assert!(found.len() == 1 && found[0].message.contains("at most 262144 are allowed"), "{found:?}");
}

#[test]
fn what_is_wrong_in_a_file_leaves_nothing_to_put_into_force() {
    let mut checked = check(FILE, file("[{path: a}]").as_bytes());
    assert!(checked.former.is_some());
    let wrong = checked.draft.definitions.files[0].wrong("there is no such file");
    checked.take_in(FILE, &[], vec![wrong.clone()]);
    assert_eq!((checked.findings, checked.former), (vec![wrong], None));
}

#[test]
fn a_configuration_with_definitions_fits_into_the_log() {
    let source = |number| format!("  - {{name: s{number}, include: ['{}']}}\n", "x".repeat(400));
    let sources: String = (0..500).map(source).collect();
    let scripts = |bytes: usize| {
        let script = |number| format!("{{group: a, kind: K{number}, lua: '{}'}}", "x".repeat(bytes));
        let scripts: Vec<String> = (0..10).map(script).collect();
        read(&format!("health: {{imported: [{}]}}\n", scripts.join(", ")))
    };
    for (key, bytes, fits) in [
        ("definitions: [{path: a}]\n", 1_000, true),
        ("definitions: [{path: a}]\n", 20_000, false),
        ("", 20_000, true),
    ] {
        let mut checked = check(FILE, format!("{key}sources:\n{sources}").as_bytes());
        checked.take_in(FILE, &[scripts(bytes)], Vec::new());
        assert_eq!(checked.findings, []);
        let definitions = checked.draft.definitions.clone();
        let projects = vec![project(1); 500];
        let configuration = checked.draft.resolve(agent(), &projects, &BTreeMap::new());
        let found = definitions.too_large(FILE, &configuration);
        assert_eq!(found.is_none(), fits, "{bytes}: {found:?}");
        assert!(found.is_none_or(|found| found.message.contains("at most 458752 are allowed")));
    }
}
