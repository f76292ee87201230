use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use events::ProjectId;
use events::bundle::{BundlePage, BundleRoot};
use events::configuration::{GitReference, KindPattern, ResourceRules, SourceConfiguration, SyncPolicies};
use gix::objs::tree::{Entry, EntryKind};
use gix::objs::{Kind, Tree, Write};
use proptest::prelude::*;
use uuid::Uuid;

use super::rules::Globs;
use super::*;
use crate::git::Objects;

/// Git objects, written without the git program.
struct Store {
    store: Arc<gix::odb::Store>,
    _folder: tempfile::TempDir,
}

/// Content of a path; a text that begins with `->` is a link, one that begins with `@` a submodule.
type Files = BTreeMap<String, String>;
/// The same, where paths are any bytes.
type RawFiles = BTreeMap<Vec<u8>, String>;

mod unread;

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Self::open(folder.path());
        Self { store, _folder: folder }
    }

    fn open(folder: &Path) -> Arc<gix::odb::Store> {
        let options = gix::odb::store::init::Options::default();
        let kind = gix::hash::Kind::Sha1;
        Arc::new(gix::odb::Store::at_opts(folder.to_owned(), kind, &mut std::iter::empty(), options).unwrap())
    }

    fn reader(&self) -> Reader {
        Objects::new(Arc::clone(&self.store)).reader()
    }

    fn tree(&self, files: &Files) -> ObjectId {
        self.raw_tree(&files.iter().map(|(path, text)| (path.clone().into_bytes(), text.clone())).collect())
    }

    fn raw_tree(&self, files: &RawFiles) -> ObjectId {
        let handle = self.store.to_cache_arc();
        let mut folders: BTreeMap<&[u8], RawFiles> = BTreeMap::new();
        let mut entries = Vec::new();
        for (path, text) in files {
            if let Some(end) = path.iter().position(|byte| *byte == b'/') {
                folders.entry(&path[..end]).or_default().insert(path[end + 1..].to_vec(), text.clone());
                continue;
            }
            let kind = match text.get(..1) {
                Some("-") if text.starts_with("->") => EntryKind::Link,
                Some("@") => EntryKind::Commit,
                _ => EntryKind::Blob,
            };
            let content = text.strip_prefix("->").unwrap_or(text);
            let oid = handle.write_buf(Kind::Blob, content.as_bytes()).unwrap();
            entries.push(Entry { mode: kind.into(), filename: path.as_slice().into(), oid });
        }
        for (folder, files) in folders {
            let oid = self.raw_tree(&files);
            entries.push(Entry { mode: EntryKind::Tree.into(), filename: folder.into(), oid });
        }
        entries.sort();
        handle.write(&Tree { entries }).unwrap()
    }
}

fn files(list: &[(&str, &str)]) -> Files {
    list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: \"{value}\"}}\n")
}

fn rules_with(include: &[&str], exclude: &[&str], resources: &ResourceRules) -> Rules {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let source = SourceConfiguration {
        id: SourceId(Uuid::from_u128(1)),
        name: "shop".into(),
        project: ProjectId(Uuid::from_u128(2)),
        reference: GitReference::Default,
        include: texts(include),
        exclude: texts(exclude),
        interval_seconds: 60,
        default_namespace: "default".into(),
        service_account: None,
        policies: SyncPolicies::default(),
        environment: None,
        line: 1,
    };
    Rules::of(resources, &source)
}

fn rules(include: &[&str]) -> Rules {
    rules_with(include, &[], &ResourceRules::default())
}

/// A source of each.
fn sources(rules: impl IntoIterator<Item = Rules>) -> SourcesByRules {
    let numbered = (1..).zip(rules);
    numbered.map(|(number, rules)| (rules, vec![source(number)])).collect()
}

fn source(number: u128) -> (SourceId, AgentId) {
    (SourceId(Uuid::from_u128(number)), AgentId(Uuid::from_u128(number)))
}

fn build_once(store: &Store, files: &Files, rules: &Rules) -> Built {
    let tree = store.tree(files);
    let (sources, limits) = (sources([rules.clone()]), BuildLimits::default());
    RefBuild::default()
        .build(&mut store.reader(), &mut FileCache::default(), tree, &sources, &limits)
        .unwrap()
}

fn outcome(built: Built) -> Outcome {
    built.outcomes.into_iter().next().unwrap().2
}

fn findings(store: &Store, files: &Files, rules: &Rules) -> Vec<(String, u32, String)> {
    match outcome(build_once(store, files, rules)) {
        Outcome::Bundle { .. } => Vec::new(),
        Outcome::Rejected { findings, .. } => {
            findings.into_iter().map(|finding| (finding.file, finding.line, finding.message)).collect()
        }
    }
}

#[test]
fn globs_take_files_and_folders() {
    let rows: [(&[&str], &[&str], &str, bool); 15] = [
        (&["staging/**"], &[], "staging/a.yaml", true),
        (&["staging/**"], &[], "staging/a/b.yaml", true),
        (&["staging/**"], &[], "production/a.yaml", false),
        (&["staging"], &[], "staging/a/b.yaml", true),
        (&["staging/"], &[], "staging/a.yaml", true),
        (&["staging"], &[], "staging2/a.yaml", false),
        (&["*.yaml"], &[], "a.yaml", true),
        (&["*.yaml"], &[], "a/b.yaml", false),
        (&["**/*.yaml"], &[], "a.yaml", true),
        (&["**/*.yaml"], &[], "a/b/c.yaml", true),
        (&["**"], &["**/draft-*"], "a/draft-x.yaml", false),
        (&["**"], &["**/draft-*"], "a/draft-x/y.yaml", false),
        (&["**"], &["**/draft-*"], "a/x.yaml", true),
        (&["**"], &[], ".kasbah/agents/a/config.yaml", false),
        (&["{a,b}/[cd].yaml"], &[], "b/d.yaml", true),
    ];
    for (include, exclude, path, expected) in rows {
        let globs = Globs::of(&rules_with(include, exclude, &ResourceRules::default())).unwrap();
        assert_eq!(globs.take(path), expected, "{include:?} without {exclude:?} on {path}");
    }
}

#[test]
fn a_bundle_holds_the_objects_of_the_files_that_are_taken() {
    let store = Store::new();
    let two = format!("{}---\n{}", map("two", "2"), map("three", "3"));
    let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "four"}}"#;
    let files = files(&[
        ("a/one.yaml", &map("one", "1")),
        ("a/b/two.yml", &two),
        ("a/four.json", json),
        ("a/README.md", "text"),
        ("a/empty.yaml", "# nothing\n"),
        ("c/one.yaml", "not: ours"),
        ("a/link.yaml", "->one.yaml"),
    ]);
    let built = build_once(&store, &files, &rules(&["a"]));
    assert_eq!(built.statistics, Statistics { paths: 7, parsed: 4, pages: 1 });
    let contents: BTreeMap<Sha256, Bytes> =
        built.contents.iter().map(|bytes| (Sha256::of(bytes), bytes.clone())).collect();
    let Outcome::Bundle { root, objects, warnings, .. } = outcome(built) else { panic!("rejected") };
    assert_eq!(objects, 4);
    let warned: Vec<_> = warnings.iter().map(|finding| finding.file.as_str()).collect();
    assert_eq!(warned, ["a/link.yaml"]);
    let root: BundleRoot = events::decode(&contents[&root]).unwrap();
    let page: BundlePage = events::decode(&contents[&root.pages[0]]).unwrap();
    let mut places: Vec<_> = page.entries.iter().map(|entry| (entry.file.as_str(), entry.line)).collect();
    places.sort_unstable();
    assert_eq!(places, [("a/b/two.yml", 1), ("a/b/two.yml", 6), ("a/four.json", 1), ("a/one.yaml", 1)]);
    for entry in &page.entries {
        let object: serde_json::Value = serde_json::from_slice(&contents[&entry.digest]).unwrap();
        assert_eq!(object["metadata"]["name"], entry.identity.name);
    }
}

#[test]
fn a_small_change_costs_little() {
    let store = Store::new();
    let mut files: Files =
        (0..1000).map(|index| (format!("a/{index}.yaml"), map(&format!("m{index}"), "1"))).collect();
    let sources = sources([rules(&["a/**"]), rules(&["**"])]);
    let (mut build, mut cache) = (RefBuild::default(), FileCache::default());
    let mut step = |files: &Files| {
        let tree = store.tree(files);
        build.build(&mut store.reader(), &mut cache, tree, &sources, &BuildLimits::default()).unwrap()
    };
    let built = step(&files);
    // Two sources of the same files: each file is parsed once.
    assert_eq!(built.statistics, Statistics { paths: 1000, parsed: 1000, pages: 64 });
    files.insert("a/7.yaml".into(), map("m7", "changed"));
    let built = step(&files);
    assert_eq!(built.statistics, Statistics { paths: 1, parsed: 1, pages: 2 });
    // The object once, and page and root of each source.
    assert_eq!(built.contents.len(), 5);
    files.insert("README.md".into(), "text".into());
    let built = step(&files);
    assert_eq!(built.statistics, Statistics { paths: 1, parsed: 0, pages: 0 });
    let built = step(&files);
    assert_eq!(built.statistics, Statistics::default());
    files.remove("a/7.yaml");
    let built = step(&files);
    assert_eq!(built.statistics, Statistics { paths: 1, parsed: 0, pages: 2 });
}

#[test]
fn sources_with_the_same_rules_are_built_once() {
    let store = Store::new();
    let files = files(&[("a.yaml", &map("a", "1"))]);
    let tree = store.tree(&files);
    let all = SourcesByRules::from([
        (rules(&["**"]), (1..=1000).map(source).collect()),
        (rules(&["b"]), vec![source(7000), source(500_000)]),
    ]);
    let (mut build, mut cache) = (RefBuild::default(), FileCache::default());
    let mut step = |tree, sources: &SourcesByRules| {
        build.build(&mut store.reader(), &mut cache, tree, sources, &BuildLimits::default()).unwrap()
    };
    let built = step(tree, &all);
    assert_eq!(built.statistics, Statistics { paths: 1, parsed: 1, pages: 2 });
    assert_eq!(built.contents.len(), 5, "an object, and page and root of each rules");
    let ids: Vec<u128> = built.outcomes.iter().map(|(id, ..)| id.0.as_u128()).collect();
    assert_eq!(ids, (1..=1000).chain([7000, 500_000]).collect::<Vec<_>>());
    let objects = |built: &Built| -> BTreeMap<u128, u32> {
        let of = |outcome: &Outcome| match outcome {
            Outcome::Bundle { objects, .. } => *objects,
            Outcome::Rejected { .. } => panic!("rejected"),
        };
        built.outcomes.iter().map(|(id, _, outcome)| (id.0.as_u128(), of(outcome))).collect()
    };
    assert_eq!([1, 1000, 7000].map(|id| objects(&built)[&id]), [1, 1, 0]);

    // One that comes to known rules costs nothing, one that leaves the others to them neither.
    let moved = SourcesByRules::from([(rules(&["**"]), vec![source(1), source(7000)])]);
    let built = step(tree, &moved);
    assert_eq!(built.statistics, Statistics::default());
    assert_eq!(objects(&built), BTreeMap::from([(1, 1), (7000, 1)]));
}

#[test]
fn what_is_wrong_is_told_with_file_and_line() {
    let store = Store::new();
    let all = rules(&["**"]);
    /// Files, where something is wrong, and a part of what is said.
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, u32)], &'a str);
    let rows: [Row<'_>; 9] = [
        (&[("a.yaml", "\nkind: ConfigMap\nmetadata: {name: a}\n")], &[("a.yaml", 2)], "no apiVersion"),
        (&[("a.yaml", "a: b\n c: d\n")], &[("a.yaml", 2)], ""),
        (&[("a.yaml", "\u{7f}\u{0}")], &[("a.yaml", 1)], ""),
        (
            &[("b.yaml", &map("a", "1")), ("a.yaml", &map("a", "2"))],
            &[("b.yaml", 1)],
            "already in a.yaml line 1",
        ),
        (
            &[(
                "a.yaml",
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {argocd.argoproj.io/hook: Sync}\n",
            )],
            &[("a.yaml", 5)],
            "hooks are not supported yet",
        ),
        (
            &[("k/kustomization.yaml", "{}"), ("k/a.yaml", &map("a", "1"))],
            &[("k/kustomization.yaml", 0)],
            "kustomization",
        ),
        (
            &[("c/Chart.yaml", "{}"), ("c/templates/a.yaml", &map("a", "1"))],
            &[("c/Chart.yaml", 0)],
            "Helm chart",
        ),
        (
            &[("k/Kustomization", "{}"), ("k/sub/a.yaml", &map("a", "1"))],
            &[("k/Kustomization", 0)],
            "kustomization",
        ),
        (
            &[("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n")],
            &[("a.yaml", 3)],
            "metadata.name",
        ),
    ];
    for (list, expected, part) in rows {
        let found = findings(&store, &files(list), &all);
        let places: Vec<_> = found.iter().map(|(file, line, _)| (file.as_str(), *line)).collect();
        assert_eq!(places, expected, "{list:?}: {found:?}");
        assert!(found[0].2.contains(part), "{list:?}: {found:?}");
    }
}

#[test]
fn folders_to_be_rendered_concern_only_sources_that_take_of_them() {
    let store = Store::new();
    let plain = map("a", "1");
    let kustomized = files(&[("kustomization.yaml", "{}"), ("app/a.yaml", &plain)]);
    assert_eq!(findings(&store, &kustomized, &rules(&["app"])), []);
    assert_eq!(findings(&store, &kustomized, &rules(&["**"])).len(), 1);
    let chart = files(&[("c/Chart.yaml", "{}"), ("c/values.yaml", "a: b"), ("d/a.yaml", &plain)]);
    assert_eq!(findings(&store, &chart, &rules(&["d"])), []);
    let without = rules_with(&["**"], &["c/**"], &ResourceRules::default());
    assert_eq!(findings(&store, &chart, &without), []);
    assert!(!findings(&store, &chart, &rules(&["c/values.yaml"])).is_empty());
}

#[test]
fn kinds_outside_the_configuration_are_refused() {
    let store = Store::new();
    let files = files(&[("a.yaml", &map("a", "1"))]);
    let pattern = |group: &str, kind: &str| KindPattern { group: group.into(), kind: kind.into() };
    let only_apps = ResourceRules { include: vec![pattern("apps", "*")], exclude: vec![] };
    let found = findings(&store, &files, &rules_with(&["**"], &[], &only_apps));
    assert_eq!((found[0].0.as_str(), found[0].1), ("a.yaml", 1));
    assert!(found[0].2.contains("ConfigMap of the core group"), "{found:?}");
    let all = ResourceRules { include: vec![pattern("*", "*")], exclude: vec![pattern("", "Secret")] };
    assert_eq!(findings(&store, &files, &rules_with(&["**"], &[], &all)), []);
}

#[test]
fn limits_are_kept() {
    let store = Store::new();
    let files: Files =
        (0..10).map(|index| (format!("{index}.yaml"), map(&format!("m{index}"), "1"))).collect();
    let tree = store.tree(&files);
    let rows = [
        (BuildLimits { agent_bytes: 11_000, ..BuildLimits::default() }, "in an agent, which has 10 KiB"),
        (
            BuildLimits { page_bytes: 100, ..BuildLimits::default() },
            "more than the 100 that are sent to an agent",
        ),
        (BuildLimits { objects: 9, ..BuildLimits::default() }, "10 objects, more than the maximum of 9"),
        (BuildLimits { bytes: 100, ..BuildLimits::default() }, "more than the maximum of 100"),
        (
            BuildLimits { file: FileLimits { bytes: 10, ..FileLimits::default() }, ..BuildLimits::default() },
            "more than the maximum of 10",
        ),
    ];
    for (limits, part) in rows {
        let message = rejection(&store, tree, &limits);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_object_with_more_text_than_is_stored_is_refused() {
    let store = Store::new();
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: runner\n  labels:\n    team: a-team-with-a-long-name\n";
    let tree = store.tree(&files(&[("a.yaml", account)]));
    let file = FileLimits { object_bytes: 40, ..FileLimits::default() };
    let message = rejection(&store, tree, &BuildLimits { file, ..BuildLimits::default() });
    assert!(message.contains("ServiceAccount runner is too large: it has"), "{message}");
}

/// Why a tree is refused within these limits.
fn rejection(store: &Store, tree: ObjectId, limits: &BuildLimits) -> String {
    let built = RefBuild::default().build(
        &mut store.reader(),
        &mut FileCache::default(),
        tree,
        &sources([rules(&["**"])]),
        limits,
    );
    let Outcome::Rejected { findings, .. } = outcome(built.unwrap()) else {
        panic!("not rejected within {limits:?}")
    };
    findings[0].message.clone()
}

#[test]
fn an_object_that_no_api_server_takes_is_named_with_its_file_and_line() {
    let store = Store::new();
    let large = map("large", &"x".repeat((1 << 20) + 1));
    let files = files(&[("a.yaml", &format!("{}---\n{large}", map("small", "1")))]);
    let found = findings(&store, &files, &rules(&["**"]));
    assert_eq!((found[0].0.as_str(), found[0].1), ("a.yaml", 6));
    assert!(found[0].2.starts_with("ConfigMap large is too large: its data has 1048577"), "{found:?}");
}

#[test]
fn what_a_source_takes_in_an_agent_does_not_depend_on_how_it_came_to_be() {
    let store = Store::new();
    let (mut build, mut cache) = (RefBuild::default(), FileCache::default());
    let limits = BuildLimits { agent_bytes: 5_000, ..BuildLimits::default() };
    let sources = sources([rules(&["**"])]);
    let mut step = |count: usize| {
        let files =
            (0..count).map(|index| (format!("{index}.yaml"), map(&format!("m{index}"), "1"))).collect();
        let tree = store.tree(&files);
        let built = build.build(&mut store.reader(), &mut cache, tree, &sources, &limits).unwrap();
        matches!(outcome(built), Outcome::Bundle { .. })
    };
    assert_eq!([3, 10, 3, 5, 0, 3].map(&mut step), [true, false, true, false, true, true]);
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let store = Store::new();
    let files: Files = (0..150).map(|index| (format!("{index:03}.yaml"), "kind: X\n".to_owned())).collect();
    let Outcome::Rejected { findings, more, .. } = outcome(build_once(&store, &files, &rules(&["**"])))
    else {
        panic!("not rejected")
    };
    assert_eq!((findings.len(), more), (100, 50));
    assert_eq!(findings[0].file, "000.yaml");
}

#[test]
fn a_missing_object_is_an_error() {
    let store = Store::new();
    let tree = store.tree(&files(&[("a.yaml", &map("a", "1"))]));
    let other = Store::new();
    let built = RefBuild::default().build(
        &mut other.reader(),
        &mut FileCache::default(),
        tree,
        &sources([rules(&["**"])]),
        &BuildLimits::default(),
    );
    assert_eq!(built.unwrap_err().failure, events::repository::FetchFailure::Broken);
}

/// Files that collide, break, move between folders and become folders.
fn any_files() -> impl Strategy<Value = Files> {
    let path = prop_oneof![
        Just("a.yaml"),
        Just("b.yaml"),
        Just("d/a.yaml"),
        Just("d/b.json"),
        Just("d/kustomization.yaml"),
        Just("d"),
        Just("e/f/a.yaml"),
        Just("e.yaml/a.txt"),
        Just("x/a.yaml")
    ];
    let text = prop_oneof![
        (0..4_u8, 0..3_u8).prop_map(|(name, value)| map(&format!("m{name}"), &value.to_string())),
        (0..4_u8).prop_map(|name| format!("{}---\n{}", map(&format!("m{name}"), "1"), map("both", "1"))),
        Just("kind: [".to_owned()),
        Just("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n".to_owned()),
        Just("->a.yaml".to_owned()),
        Just("->../d".to_owned()),
        Just("->nowhere".to_owned()),
        Just("@".to_owned()),
        Just(String::new()),
    ];
    proptest::collection::btree_map(path.prop_map(str::to_owned), text, 0..7).prop_map(|mut files| {
        // A path is a file or a folder, not both.
        if files.keys().any(|path| path.starts_with("d/")) {
            files.remove("d");
        }
        files
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn building_step_by_step_equals_building_at_once(steps in proptest::collection::vec(any_files(), 1..6)) {
        let store = Store::new();
        let secrets = vec![KindPattern { group: String::new(), kind: "Secret".into() }];
        let sources = sources([
            rules_with(&["**"], &["x"], &ResourceRules { include: vec![], exclude: secrets }),
            rules(&["d", "*.yaml"]),
        ]);
        let (mut build, mut cache) = (RefBuild::default(), FileCache::default());
        let mut stored = std::collections::BTreeSet::new();
        for files in steps {
            let tree = store.tree(&files);
            let limits = BuildLimits::default();
            let stepwise = build.build(&mut store.reader(), &mut cache, tree, &sources, &limits).unwrap();
            let at_once = RefBuild::default()
                .build(&mut store.reader(), &mut FileCache::default(), tree, &sources, &limits)
                .unwrap();
            prop_assert_eq!(&stepwise.outcomes, &at_once.outcomes);
            stored.extend(stepwise.contents.iter().map(|bytes| Sha256::of(bytes)));
            // Everything that a bundle names was handed out at some step.
            if stepwise.outcomes.iter().all(|(.., outcome)| matches!(outcome, Outcome::Bundle { .. })) {
                for bytes in &at_once.contents {
                    prop_assert!(stored.contains(&Sha256::of(bytes)));
                }
            }
        }
    }
}
