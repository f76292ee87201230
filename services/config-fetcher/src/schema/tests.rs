use events::audit::AuditMode;
use events::configuration::{
    Adoption, Conflicts, GitReference, ObservePattern, OnRemoval, ServiceAccount, SyncPolicies,
};
use events::grants::{CiAccessAs, Grants, UserAccessAs};
use events::recording::RecordSessions;
use proptest::prelude::*;
use world_free_ids::{agent, project};

use super::*;

mod actions;
mod definitions;
mod environment;
mod grants;
mod health;
mod relations;

/// Ids without a world.
mod world_free_ids {
    use std::str::FromStr;

    use events::{AgentId, ProjectId};

    pub(super) fn agent() -> AgentId {
        AgentId::from_str("00000000-0000-0000-0000-000000000001").unwrap()
    }

    pub(super) fn project(number: u8) -> ProjectId {
        ProjectId::from_str(&format!("00000000-0000-0000-0000-0000000001{number:02}")).unwrap()
    }
}

const FILE: &str = ".kasbah/agents/staging/config.yaml";

fn findings(text: &str) -> Vec<(u32, u32, String, String)> {
    let place = |finding: FileFinding| (finding.line, finding.column, finding.field, finding.message);
    check(FILE, text.as_bytes()).findings.into_iter().map(place).collect()
}

fn warnings(text: &str) -> Vec<(u32, u32, String, String)> {
    let checked = check(FILE, text.as_bytes());
    assert_eq!(checked.findings, [], "{text}");
    let place = |finding: FileFinding| (finding.line, finding.column, finding.field, finding.message);
    checked.warnings.into_iter().map(place).collect()
}

/// A file with one good source, and one more line in it.
fn with(line: &str) -> String {
    format!("sources:\n  - name: shop\n    include: ['**']\n    {line}\n")
}

/// The complete example of the documentation.
const EXAMPLE: &str = include_str!("../../../../docs/agent-configuration.md");

fn example() -> &'static str {
    let (_, rest) = EXAMPLE.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_documented_example_is_good() {
    let checked = check(FILE, example().as_bytes());
    assert_eq!((checked.findings, checked.warnings), (vec![], vec![]));
    let configuration = checked.draft.resolve(agent(), &[project(1), project(2)], &BTreeMap::new());
    assert_eq!(configuration.mode, Mode::Cluster);
    assert!(!configuration.lockdown);
    assert_eq!(configuration.resources.include, [KindPattern { group: "*".into(), kind: "*".into() }]);
    assert_eq!(
        configuration.resources.exclude,
        [KindPattern { group: String::new(), kind: "Secret".into() }]
    );
    let pattern = |group: &str, kind: &str, namespace: &str| {
        let [group, kind, namespace] = [group, kind, namespace].map(str::to_owned);
        ObservePattern { group, kind, namespace }
    };
    assert_eq!(configuration.observe.include, []);
    assert_eq!(
        configuration.observe.exclude,
        [pattern("*.example.com", "*", "*"), pattern("", "Secret", "kube-*")]
    );
    let [full, short] = configuration.sources.as_slice() else { panic!("{configuration:?}") };
    assert_eq!(full.id, SourceId::derive(agent(), "shop-staging"));
    assert_eq!((full.project, short.project), (project(1), project(2)));
    assert_eq!(full.reference, GitReference::Branch("main".into()));
    assert_eq!(
        (full.include.as_slice(), full.exclude.as_slice()),
        (["staging/**".to_owned()].as_slice(), ["**/draft-*".to_owned()].as_slice())
    );
    assert_eq!((full.interval_seconds, full.default_namespace.as_str()), (60, "shop-staging"));
    let account = ServiceAccount { namespace: "shop-staging".into(), name: "deployer".into() };
    assert_eq!(full.service_account, Some(account));
    assert_eq!(
        full.policies,
        SyncPolicies {
            adoption: Adoption::AdoptIfNoInventory,
            conflicts: Conflicts::Force,
            prune: true,
            prune_adopted: false,
            on_removal: OnRemoval::Keep,
            correct_drift: true,
            strict: false,
            strict_managers: Vec::new(),
            health_timeout_seconds: 300,
        }
    );
    assert_eq!(
        (short.reference.clone(), short.default_namespace.as_str()),
        (GitReference::Default, "default")
    );
    assert_eq!(short.policies, SyncPolicies::default());
}

#[test]
fn drift_may_be_corrected_strictly() {
    let policies = |text: &str| {
        let checked = check(FILE, with(&format!("policies: {text}")).as_bytes());
        assert_eq!(checked.findings, [], "{text}");
        checked.draft.resolve(agent(), &[project(1)], &BTreeMap::new()).sources[0].policies.clone()
    };
    let strict = policies("{correct_drift: strict, strict_managers: [rival]}");
    assert_eq!((strict.correct_drift, strict.strict), (true, true));
    assert_eq!(strict.strict_managers, ["rival"]);
    let off = policies("{correct_drift: false}");
    assert_eq!((off.correct_drift, off.strict), (false, false));
    for (wrong, words) in [
        ("{correct_drift: often}", "text where true, false or strict is expected"),
        ("{strict_managers: [rival]}", "only with 'correct_drift: strict'"),
        ("{correct_drift: strict, strict_managers: [kasbah]}", "cannot be the name of another field manager"),
    ] {
        let told = findings(&with(&format!("policies: {wrong}")));
        assert!(told.iter().any(|(.., message)| message.contains(words)), "{told:?}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn wrong_values_are_told_with_line_column_field_and_what_is_allowed() {
    let rows = [
        ("mode: both\nsources: []\n", 1, 7, "mode", "'both' is not one of cluster, namespaced"),
        ("mode: [cluster]\nsources: []\n", 1, 7, "mode", "a list is not one of cluster, namespaced"),
        ("lockdown: maybe\nsources: []\n", 1, 11, "lockdown", "text where true or false is expected"),
        ("lockdown: 'yes'\nsources: []\n", 1, 11, "lockdown", "text where true or false is expected"),
        ("audit: closed\nsources: []\n", 1, 8, "audit", "'closed' is not one of fail_open, fail_closed"),
        ("record_sessions: yes\nsources: []\n", 1, 18, "record_sessions", "is not one of none, output, all"),
        ("audit: true\nsources: []\n", 1, 8, "audit", "is not one of fail_open, fail_closed"),
        ("sources: shop\n", 1, 10, "sources", "text where a list is expected"),
        ("sources:\n", 1, 8, "sources", "nothing where a list is expected"),
        ("sources:\n  - shop\n", 2, 5, "sources[0]", "text where a mapping is expected"),
        ("sources:\n  - include: ['**']\n", 2, 5, "sources[0].name", "name is missing"),
        ("sources:\n  - name: shop\n", 2, 5, "sources[0].include", "include is missing"),
        ("sources:\n  - {name: Shop, include: [a]}\n", 2, 12, "sources[0].name", "lower-case letters"),
        (
            "sources:\n  - {name: 7, include: [a]}\n",
            2,
            12,
            "sources[0].name",
            "an integer where text is expected",
        ),
        (
            "sources:\n  - {name: a, include: a}\n",
            2,
            24,
            "sources[0].include",
            "text where a list is expected",
        ),
        ("sources:\n  - {name: a, include: []}\n", 2, 24, "sources[0].include", "at least one glob"),
        (
            "sources:\n  - {name: a, include: [b, 7]}\n",
            2,
            28,
            "sources[0].include[1]",
            "an integer where text",
        ),
        (
            "sources:\n  - {name: a, include: ['/a']}\n",
            2,
            25,
            "sources[0].include[0]",
            "without '/' in front",
        ),
        ("sources:\n  - {name: a, include: ['../a']}\n", 2, 25, "sources[0].include[0]", "'..'"),
        ("sources:\n  - {name: a, include: ['[a']}\n", 2, 25, "sources[0].include[0]", "is not a valid glob"),
        ("resources: all\nsources: []\n", 1, 12, "resources", "its keys are include, exclude"),
        (
            "resources:\n  include: [{kind: Pod}]\nsources: []\n",
            2,
            13,
            "resources.include[0].group",
            "'' for the core",
        ),
        (
            "resources:\n  include: [{group: ''}]\nsources: []\n",
            2,
            13,
            "resources.include[0].kind",
            "kind is missing",
        ),
        (
            "resources:\n  exclude: [{group: 1, kind: x}]\nsources: []\n",
            2,
            21,
            "resources.exclude[0].group",
            "in quotes",
        ),
        ("observe: all\nsources: []\n", 1, 10, "observe", "its keys are include, exclude"),
        (
            "observe:\n  include: [{group: '', kind: Pod, namespace: 1}]\nsources: []\n",
            2,
            47,
            "observe.include[0].namespace",
            "in quotes",
        ),
        ("- a\n", 1, 1, "", "a list where a mapping is expected"),
        ("mode: cluster\n", 1, 1, "sources", "write 'sources: []'"),
        ("sources: []\n---\nsources: []\n", 3, 1, "", "a second document"),
        ("sources: []\nmode: cluster\nmode: namespaced\n", 3, 1, "mode", "stands in line 2 already"),
        ("sources: [\n", 2, 1, "", ""),
        (
            "lockdown: true\nsources:\n  - {name: a, include: [b]}\n",
            3,
            5,
            "sources[0].service_account",
            "lockdown",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, line, column, field, part) in rows {
        let found = findings(text);
        let fits = |(found_line, found_column, found_field, message): &(u32, u32, String, String)| {
            (*found_line, *found_column, found_field.as_str()) == (line, column, field)
                && message.contains(part)
        };
        if found.len() != 1 || !found.iter().all(fits) {
            wrong.push(format!("{text:?}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn wrong_fields_of_a_source_are_told() {
    let rows = [
        ("project: deploy", 14, "project", "write group/name"),
        ("project: https://example.com/a/b.git", 14, "project", "never a URL"),
        ("project: a/", 14, "project", "write group/name"),
        ("branch: refs/heads/main", 13, "branch", "without refs/"),
        ("branch: 'a b'", 13, "branch", "cannot be the name"),
        ("branch: a..b", 13, "branch", "cannot be the name"),
        ("branch: 1.0", 13, "branch", "a number where text is expected; write it in quotes"),
        ("tag: ''", 10, "tag", "empty text"),
        ("commit: abc", 13, "commit", "all 40 hexadecimal digits"),
        ("interval: 5s", 15, "interval", "from 10s to 24h"),
        ("interval: often", 15, "interval", "such as 90s, 5m or 1h"),
        ("interval: 9999999999h", 15, "interval", "from 10s to 24h"),
        ("interval: [60]", 15, "interval", "a list is not a time"),
        ("namespace: Shop", 16, "namespace", "is no namespace"),
        ("namespace: a/b", 16, "namespace", "is no namespace"),
        ("service_account: deployer", 22, "service_account", "write namespace/name"),
        ("service_account: a/B", 22, "service_account", "write namespace/name"),
        ("exclude: x", 14, "exclude", "text where a list is expected"),
        (
            "policies: {adoption: all}",
            26,
            "policies.adoption",
            "must_match, adopt_if_no_inventory, adopt_all",
        ),
        ("policies: {conflicts: win}", 27, "policies.conflicts", "force, refuse"),
        ("policies: {on_removal: delete}", 28, "policies.on_removal", "keep, prune"),
        ("policies: {prune: 1}", 23, "policies.prune", "an integer where true or false is expected"),
        ("policies: {health_timeout: 0s}", 32, "policies.health_timeout", "from 1s to 24h"),
        ("policies: none", 15, "policies", "its keys are adoption"),
    ];
    let mut wrong = Vec::new();
    for (text, column, field, part) in rows {
        let found = findings(&with(text));
        let field = format!("sources[0].{field}");
        let fits = |(found_line, found_column, found_field, message): &(u32, u32, String, String)| {
            (*found_line, *found_column, found_field) == (4, column, &field) && message.contains(part)
        };
        if found.len() != 1 || !found.iter().all(fits) {
            wrong.push(format!("{text:?}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let found = findings(&with("branch: main\n    tag: v1"));
    assert_eq!((found[0].0, found[0].2.as_str()), (5, "sources[0].tag"));
}

#[test]
fn good_fields_of_a_source_are_taken() {
    let source = |line: &str| {
        let checked = check(FILE, with(line).as_bytes());
        assert_eq!(checked.findings, [], "{line}");
        checked.draft.sources.into_iter().next().unwrap()
    };
    assert_eq!(source("interval: 90").interval_seconds, 90);
    assert_eq!(source("interval: 5m").interval_seconds, 300);
    assert_eq!(source("interval: 1h").interval_seconds, 3600);
    assert_eq!(source("tag: v1.2.3").reference, GitReference::Tag("v1.2.3".into()));
    assert_eq!(source("branch: feature/one").reference, GitReference::Branch("feature/one".into()));
    let id = "0123456789abcdef0123456789ABCDEF01234567";
    assert_eq!(source(&format!("commit: '{id}'")).reference, GitReference::Commit(id.to_lowercase()));
    assert_eq!(source("project: shop/deploy").project, Some(("shop/deploy".into(), 4, 14)));
    assert_eq!(source("interval: 60s").line, 2);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_in_order() {
    let text = "sources:\n  - name: a\n    include: []\n    interval: 1s\n  - name: a\n    include: [b]\nmode: x\nlockdown: 3\n";
    let places: Vec<_> = findings(text).into_iter().map(|(line, _, field, _)| (line, field)).collect();
    let expected = [
        (3, "sources[0].include"),
        (4, "sources[0].interval"),
        (5, "sources[1].name"),
        (7, "mode"),
        (8, "lockdown"),
    ];
    assert_eq!(places, expected.map(|(line, field)| (line, field.to_owned())));
    let message = &findings(text)[2].3;
    assert!(message.contains("the source of line 2"), "{message}");
}

#[test]
fn unknown_keys_are_warned_of_with_the_nearest_known_one() {
    let rows = [
        (with("intervall: 60s"), 4, 5, "sources[0].intervall", "did you mean 'interval'?"),
        (with("paths: [a]"), 4, 5, "sources[0].paths", "known keys are name, project"),
        ("user_acess: {}\nsources: []\n".to_owned(), 1, 1, "user_acess", "did you mean 'user_access'?"),
        ("gitops: {}\nsources: []\n".to_owned(), 1, 1, "gitops", "known keys are mode"),
    ];
    for (text, line, column, field, part) in rows {
        let found = warnings(&text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert_eq!((found[0].0, found[0].1, found[0].2.as_str()), (line, column, field), "{text:?}");
        assert!(found[0].3.contains(part), "{text:?}: {}", found[0].3);
    }
}

#[test]
fn an_unknown_key_that_may_have_been_meant_as_a_bound_is_refused() {
    let top = |line: &str| format!("{line}\nsources: []\n");
    let rows = [
        (top("lokdown: true"), 1, 1, "lokdown", "write 'lockdown'"),
        (top("lock_down: true"), 1, 1, "lock_down", "write 'lockdown'"),
        (top("Lockdown: true"), 1, 1, "Lockdown", "write 'lockdown'"),
        (top("modes: namespaced"), 1, 1, "modes", "write 'mode'"),
        (top("mdoe: namespaced"), 1, 1, "mdoe", "write 'mode'"),
        (top("resorces: {}"), 1, 1, "resorces", "write 'resources'"),
        (
            top("service_account: a/b"),
            1,
            1,
            "service_account",
            "looks like 'service_account', which has no meaning here",
        ),
        (top("policies: {}"), 1, 1, "policies", "has no meaning here"),
        (top("obsreve: {}"), 1, 1, "obsreve", "write 'observe'"),
        (
            top("observe: {exclude: [{group: '', kind: Pod, names: x}]}"),
            1,
            44,
            "observe.exclude[0].names",
            "'namespace'",
        ),
        (top("resources: {exlude: []}"), 1, 13, "resources.exlude", "did you mean 'exclude'?"),
        (top("resources: {whatever: []}"), 1, 13, "resources.whatever", "known keys are include, exclude"),
        (
            top("resources: {exclude: [{group: '', kind: Secret, name: x}]}"),
            1,
            49,
            "resources.exclude[0].name",
            "known keys are group, kind",
        ),
        (with("serviceAccount: a/b"), 4, 5, "sources[0].serviceAccount", "write 'service_account'"),
        (with("service-acount: a/b"), 4, 5, "sources[0].service-acount", "write 'service_account'"),
        (with("namespaces: shop"), 4, 5, "sources[0].namespaces", "write 'namespace'"),
        (with("polices: {prune: false}"), 4, 5, "sources[0].polices", "write 'policies'"),
        (with("lockdown: true"), 4, 5, "sources[0].lockdown", "has no meaning here"),
        (with("policies: {purne: false}"), 4, 16, "sources[0].policies.purne", "did you mean 'prune'?"),
        (with("policies: {something: 1}"), 4, 16, "sources[0].policies.something", "known keys are adoption"),
    ];
    for (text, line, column, field, part) in rows {
        let found = findings(&text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert_eq!((found[0].0, found[0].1, found[0].2.as_str()), (line, column, field), "{text:?}");
        assert!(found[0].3.contains(part), "{text:?}: {}", found[0].3);
    }
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    for text in ["", "# nothing\n", "---\n", "null\n"] {
        let found = findings(text);
        assert_eq!((found[0].0, found[0].1), (0, 0), "{text:?}: {found:?}");
        assert!(found[0].3.contains("the file is empty"), "{text:?}");
    }
    let found = check(FILE, b"sources: [\xff]").findings;
    assert_eq!(found[0].message, "the file is not UTF-8");
    assert_eq!(found[0].file, FILE);
}

#[test]
fn limits_are_kept() {
    let large = format!("# {}\nsources: []\n", "x".repeat(300_000));
    assert!(findings(&large)[0].3.contains("more than the maximum of 262144"), "{:?}", findings(&large));
    let deep = format!("sources: {}{}\n", "[".repeat(40), "]".repeat(40));
    assert_eq!(findings(&deep).len(), 1);
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nsources: []\n";
    assert_eq!(findings(bomb).len(), 1, "{:?}", findings(bomb));
    let many: String = (0..501).map(|index| format!("  - {{name: s{index}, include: [a]}}\n")).collect();
    assert!(findings(&format!("sources:\n{many}"))[0].3.contains("at most 500"));
    let wrong: String = (0..200).map(|_| "  - 7\n").collect();
    assert_eq!(findings(&format!("sources:\n{wrong}")).len(), 100);
}

proptest! {
    #[test]
    fn any_text_is_checked_without_a_panic(text in "[a-z:\\-\\[\\]{} \n'&*]{0,200}") {
        let checked = check(FILE, text.as_bytes());
        prop_assert!(checked.findings.iter().all(|finding| finding.file == FILE));
    }
}

/// A file with grants and no source.
fn granted(text: &str) -> Grants {
    let checked = check(FILE, format!("sources: []\n{text}").as_bytes());
    assert_eq!(checked.findings, [], "{text}");
    assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
    checked.draft.grants
}

#[test]
fn requests_that_cannot_be_recorded_go_on_unless_the_file_says_that_they_do_not() {
    for (text, audit) in [
        ("", AuditMode::FailOpen),
        ("audit: fail_open\n", AuditMode::FailOpen),
        ("audit: fail_closed\n", AuditMode::FailClosed),
    ] {
        assert_eq!(granted(text).audit, audit, "{text}");
    }
}

#[test]
fn nothing_of_sessions_is_kept_unless_the_file_says_so() {
    for (text, recorded) in [
        ("", RecordSessions::None),
        ("record_sessions: none\n", RecordSessions::None),
        ("record_sessions: output\n", RecordSessions::Output),
        ("record_sessions: all\n", RecordSessions::All),
    ] {
        assert_eq!(granted(text).record_sessions, recorded, "{text}");
    }
}
