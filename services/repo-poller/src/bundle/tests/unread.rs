//! What cannot be read rejects the commit, and takes no object away.

use events::bundle::BundleEntry;

use super::*;

fn build(build: &mut RefBuild, store: &Store, files: &Files, rules: &Rules) -> Outcome {
    let (tree, sources) = (store.tree(files), sources([rules.clone()]));
    let (mut cache, limits) = (FileCache::default(), BuildLimits::default());
    outcome(build.build(&mut store.reader(), &mut cache, tree, &sources, &limits).unwrap())
}

/// Where something is wrong, and where something is odd.
fn judged(store: &Store, list: &[(&str, &str)], rules: &Rules) -> (Vec<String>, Vec<String>) {
    let of = |findings: Vec<FileFinding>| findings.into_iter().map(|finding| finding.file).collect();
    match outcome(build_once(store, &files(list), rules)) {
        Outcome::Bundle { warnings, .. } => (Vec::new(), of(warnings)),
        Outcome::Rejected { findings, warnings, .. } => (of(findings), of(warnings)),
    }
}

/// Files; what is wrong; what is odd.
type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str]);

#[test]
fn a_link_is_wrong_unless_what_it_leads_to_is_read_anyway() {
    let store = Store::new();
    let rules = rules_with(&["a/**"], &["a/left-out/**"], &ResourceRules::default());
    let (one, two) = (map("one", "1"), map("two", "2"));
    let (one, two) = (one.as_str(), two.as_str());
    let rows: [Row<'_>; 17] = [
        (&[("a/one.yaml", one), ("a/l.yaml", "->one.yaml")], &[], &["a/l.yaml"]),
        (&[("a/one.yaml", one), ("a/l.yaml", "->./../a//one.yaml")], &[], &["a/l.yaml"]),
        (
            &[("a/one.yaml", one), ("a/l.yaml", "->m.yaml"), ("a/m.yaml", "->one.yaml")],
            &[],
            &["a/l.yaml", "a/m.yaml"],
        ),
        (&[("a/one.yaml", one), ("b/one.yaml", two), ("a/l.yaml", "->../b/one.yaml")], &["a/l.yaml"], &[]),
        (
            &[("a/one.yaml", one), ("a/left-out/x.yaml", two), ("a/l.yaml", "->left-out/x.yaml")],
            &["a/l.yaml"],
            &[],
        ),
        (&[("a/one.yaml", one), ("a/l.yaml", "->l.yaml")], &["a/l.yaml"], &[]),
        (&[("a/one.yaml", one), ("a/l.yaml", "->gone.yaml")], &["a/l.yaml"], &[]),
        (&[("a/one.yaml", one), ("a/l.yaml", "->/etc/passwd")], &["a/l.yaml"], &[]),
        (&[("a/one.yaml", one), ("a/l", "->../../..")], &["a/l"], &[]),
        (&[("a/one.yaml", one), ("a/l.yaml", "->one.yaml/x")], &["a/l.yaml"], &[]),
        // Folders.
        (&[("a/f/one.yaml", one), ("a/l", "->f")], &[], &["a/l"]),
        (&[("a/one.yaml", one), ("b/two.yaml", two), ("a/l", "->../b")], &["a/l"], &[]),
        (&[("a/one.yaml", one), ("b/two.yaml", two), ("a/v1.2", "->../b")], &["a/v1.2"], &[]),
        (&[("a/one.yaml", one), ("b/text.md", "x"), ("a/l", "->../b")], &[], &[]),
        // The folder itself, which the glob enters.
        (&[("b/one.yaml", one), ("a", "->b")], &["a"], &[""]),
        // What never was a manifest.
        (&[("a/one.yaml", one), ("README.md", "x"), ("a/README.md", "->../README.md")], &[], &[]),
        (&[("a/one.yaml", one), ("c/l.yaml", "->/etc/passwd"), ("a/left-out/l.yaml", "->/etc")], &[], &[]),
    ];
    for (list, wrong, odd) in rows {
        let (found, warned) = judged(&store, list, &rules);
        assert_eq!(
            (found.as_slice(), warned.as_slice()),
            (owned(wrong).as_slice(), owned(odd).as_slice()),
            "{list:?}"
        );
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn submodules_and_folders_with_the_name_of_a_manifest_are_wrong() {
    let store = Store::new();
    let one = map("one", "1");
    let rows: [Row<'_>; 5] = [
        (&[("a/one.yaml", &one), ("a/sub", "@")], &["a/sub"], &[]),
        (&[("a/one.yaml", &one), ("b/sub", "@")], &[], &[]),
        (&[("a", "@")], &["a"], &[""]),
        (
            &[
                ("a/one.yaml", &one),
                ("a/two.yaml/text.txt", "x"),
                ("a/two.yaml/three.yaml", &map("three", "1")),
            ],
            &["a/two.yaml"],
            &[],
        ),
        (&[("a/one.yaml", &one), ("b/two.yaml/text.txt", "x")], &[], &[]),
    ];
    for (list, wrong, odd) in rows {
        let (found, warned) = judged(&store, list, &rules(&["a/**"]));
        assert_eq!((found, warned), (owned(wrong), owned(odd)), "{list:?}");
    }
}

#[test]
fn what_a_glob_enters_is_known_without_taking_more() {
    let rows = [
        ("a/b/*.yaml", "a", true),
        ("a/b/*.yaml", "a/b", true),
        ("a/b/*.yaml", "a/c", false),
        ("a/b/*.yaml", "a/b/c", false),
        ("a/**/x.yaml", "a/b/c", true),
        ("**/x.yaml", "q", true),
        ("a*/b", "ab", true),
        ("a*/b", "b", false),
        ("{a/b,c}/d/*.yaml", "a", true),
        ("{a,c}/d/*.yaml", "c", true),
        ("{a,c}/d/*.yaml", "d", false),
        ("a[/]b/c", "a", true),
        (r"\{a/b/c", "{a", true),
    ];
    for (include, path, expected) in rows {
        let globs = Globs::of(&rules(&[include])).unwrap();
        assert_eq!(globs.take_or_enter(path), expected, "{include} at {path}");
    }
}

#[test]
fn paths_that_are_not_utf8_are_wrong_each_by_itself() {
    let store = Store::new();
    let raw = |list: &[(&[u8], &str)]| -> RawFiles {
        list.iter().map(|(path, text)| (path.to_vec(), (*text).to_owned())).collect()
    };
    let (one, two) = (map("one", "1"), map("two", "2"));
    let steps: [(RawFiles, &[&str]); 4] = [
        (raw(&[(b"a/caf\xe9.yaml", &one), (b"a/x.yaml", &map("x", "1"))]), &[r"a/caf\xE9.yaml"]),
        (
            raw(&[
                (b"a/caf\xe9.yaml", &one),
                (b"a/caf\xe8.yaml", &two),
                (br"a/caf\xE9.yaml", &map("x", "1")),
            ]),
            &[r"a/caf\xE8.yaml", r"a/caf\xE9.yaml"],
        ),
        (raw(&[(b"a/d\xe9/\xe9.yaml", &one), (b"a/\xe9", "@")]), &[r"a/\xE9", r"a/d\xE9/\xE9.yaml"]),
        (raw(&[(b"a/caf\xe9.txt", "x"), (b"b/caf\xe9.yaml", &one), (b"a/x.yaml", &two)]), &[]),
    ];
    let (mut stepwise, mut cache) = (RefBuild::default(), FileCache::default());
    let (sources, limits) = (sources([rules(&["a/**"])]), BuildLimits::default());
    for (files, expected) in steps {
        let tree = store.raw_tree(&files);
        let built = stepwise.build(&mut store.reader(), &mut cache, tree, &sources, &limits).unwrap();
        let found = match outcome(built) {
            Outcome::Bundle { .. } => Vec::new(),
            Outcome::Rejected { findings, .. } => findings,
        };
        let found: Vec<_> = found.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_link_to_what_is_read_anyway_does_not_take_away_what_its_file_had() {
    let store = Store::new();
    let rules = rules(&["**"]);
    let (a, b) = (map("a", "1"), map("b", "1"));
    let mut stepwise = RefBuild::default();
    let before = [("d/a.yaml", a.as_str()), ("b.yaml", b.as_str())];
    assert!(matches!(build(&mut stepwise, &store, &files(&before), &rules), Outcome::Bundle { .. }));
    let entry = |name: &str, file: &str| BundleEntry {
        identity: events::ObjectIdentity {
            group: String::new(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: String::new(),
            name: name.into(),
        },
        digest: Sha256::default(),
        file: file.into(),
        line: 1,
    };
    let last = [entry("a", "d/a.yaml"), entry("b", "b.yaml")];
    let lost = |build: &RefBuild| -> Vec<String> {
        build.with(&rules).unwrap().lost(&last).into_iter().map(|finding| finding.file).collect()
    };
    for (after, expected) in [
        (vec![("d/a.yaml", "->../b.yaml"), ("b.yaml", &b)], vec!["d/a.yaml"]),
        (vec![("d", "->e"), ("e/x.yaml", "# none"), ("b.yaml", &b)], vec!["d"]),
        // It moved.
        (vec![("d/a.yaml", "->../c.yaml"), ("c.yaml", &a), ("b.yaml", &b)], vec![]),
        (vec![("b.yaml", b.as_str())], vec![]),
        (vec![("d/a.yaml.bak", "->../b.yaml"), ("b.yaml", &b)], vec![]),
    ] {
        assert!(
            matches!(build(&mut stepwise, &store, &files(&after), &rules), Outcome::Bundle { .. }),
            "{after:?}"
        );
        assert_eq!(lost(&stepwise), expected, "{after:?}");
    }
}

#[test]
fn a_source_that_takes_no_file_says_so() {
    let store = Store::new();
    for (list, expected) in [
        (vec![], true),
        (vec![("b/one.yaml", "x"), ("a/README.md", "x")], true),
        (vec![("a/empty.yaml", "# nothing\n")], false),
    ] {
        let Outcome::Bundle { takes_no_file, warnings, objects, .. } = outcome(build_once(
            &store,
            &files(&list),
            &rules_with(&["a/**"], &["a/x"], &ResourceRules::default()),
        )) else {
            panic!("rejected")
        };
        assert_eq!(
            (takes_no_file, warnings.len(), objects),
            (expected, usize::from(expected), 0),
            "{list:?}"
        );
        for warning in warnings {
            assert!(
                warning.message.ends_with("taken by include [a/**] without exclude [a/x]"),
                "{}",
                warning.message
            );
        }
    }
}
