use super::*;

fn parse(text: &str) -> Result<Vec<Manifest>, ManifestError> {
    parse_manifests("shop/web.yaml", text, &Limits::default())
}

fn names(text: &str) -> Vec<String> {
    parse(text)
        .unwrap_or_else(|error| panic!("{error}"))
        .iter()
        .map(|m| format!("{} {}", m.line, m.identity))
        .collect()
}

#[test]
fn objects_are_found_with_their_lines() {
    let rows = [
        ("", vec![]),
        ("# x\n---\n", vec![]),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", vec!["1 v1 ConfigMap a"]),
        (
            "# x\n---\n\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: shop}\n---\n---\nkind: Namespace\napiVersion: v1\nmetadata: {name: shop}\n",
            vec!["4 apps/v1 Deployment shop/a", "9 v1 Namespace shop"],
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: a}\n- kind: Pod\n  apiVersion: v1\n  metadata: {name: b}\n",
            vec!["4 v1 Secret a", "7 v1 Pod b"],
        ),
        ("apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n", vec!["4 v1 Pod a"]),
        ("apiVersion: v1\nkind: List\nitems: []\n", vec![]),
        ("apiVersion: v1\nkind: List\nitems:\n", vec![]),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: }\n", vec!["1 v1 A a"]),
    ];
    for (text, expected) in rows {
        assert_eq!(names(text), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let rows = [
        ("- a\n", "1:1", "a list at the top"),
        ("text\n", "1:1", "text where an object"),
        ("kind: A\nmetadata: {name: a}\n", "1:1", "no apiVersion"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "1:1", "no kind"),
        ("apiVersion: v1\nkind:\n", "2:", "kind is empty"),
        ("apiVersion: 1\nkind: A\n", "1:13", "apiVersion must be text, this is an integer"),
        ("apiVersion: a/b/c\nkind: A\n", "1:13", "'a/b/c' is not of the form"),
        ("apiVersion: v1\nkind: A\n", "1:1", "no metadata.name"),
        ("apiVersion: v1\nkind: A\nmetadata: x\n", "3:11", "metadata must be a mapping"),
        ("apiVersion: v1\nkind: A\nmetadata:\n  labels: {}\n", "4:3", "no metadata.name"),
        ("apiVersion: v1\nkind: A\nmetadata:\n  name: 12\n", "4:9", "must be text, this is an integer"),
        ("apiVersion: v1\nkind: A\nmetadata:\n  name: ''\n", "4:9", "metadata.name is empty"),
        ("apiVersion: v1\nkind: A\nmetadata:\n  name: a/../b\n", "4:9", "metadata.name must not"),
        (
            "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  namespace: ..\n",
            "5:14",
            "metadata.namespace must not",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  namespace: 5\n",
            "5:14",
            "metadata.namespace must be text",
        ),
        ("apiVersion: v1\nkind: A\nmetadata:\n  generateName: a-\n", "4:3", "generateName"),
        (
            "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  annotations:\n    helm.sh/hook: pre-install\n",
            "6:5",
            "hooks are not supported yet",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  annotations:\n    argocd.argoproj.io/hook: Sync\n",
            "6:5",
            "hooks are not supported yet",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  annotations:\n    kasbah.dev/prune: maybe\n",
            "6:5",
            "allowed: enabled, disabled",
        ),
        ("apiVersion: v1\nkind: List\nitems: {}\n", "3:8", "must be a list"),
        ("apiVersion: v1\nkind: List\nitems: [x]\n", "3:9", "text where an object"),
        ("apiVersion: v1\nkind: List\nitems:\n- kind: List\n  items: []\n", "4:3", "a list inside a list"),
        ("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  metadata: {name: a}\n", "4:3", "no kind"),
        ("a: b: c\n", "1:", "not valid YAML"),
    ];
    for (text, place, fragment) in rows {
        let error = parse(text).expect_err(text);
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("shop/web.yaml:{place}")), "{text}: {shown}");
        assert!(shown.contains(fragment), "{text}: {shown}");
    }
}

#[test]
fn the_object_is_canonical_and_its_digest_covers_it() {
    let one =
        &parse("kind: A\napiVersion: v1\nmetadata: {name: a}\nspec: {b: 1.0, a: yes}\n").expect("good")[0];
    let other = &parse(
        "{\"spec\":{\"a\":true,\"b\":1},\"metadata\":{\"name\":\"a\"},\"kind\":\"A\",\"apiVersion\":\"v1\"}",
    )
    .expect("good")[0];
    let text = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"spec":{"a":true,"b":1}}"#;
    assert_eq!(one.object.to_string(), text);
    assert_eq!(one.digest, other.digest);
    assert_eq!(one.digest, Sha256::of(text.as_bytes()));
    let from_list =
        &parse("apiVersion: v1\nkind: AList\nitems:\n- metadata: {name: a}\n  spec: {a: yes, b: 1}\n")
            .expect("good")[0];
    assert_eq!(from_list.digest, one.digest);
}

#[test]
fn warnings_stand_at_their_object() {
    let text = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: A\nmetadata:\n  name: b\n  labels:\n    kasbah.dev/source: x\n";
    let manifests = parse(text).expect("good");
    assert_eq!(manifests[0].warnings, []);
    let lines: Vec<u32> = manifests[1].warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(lines, [10]);
}

/// An object of that name, whose last line ends so.
fn ending(name: &str, end: &str) -> String {
    format!("apiVersion: v1\nkind: A\nmetadata:\n  name: {name}\ndata:\n  x: y{end}")
}

#[test]
fn what_would_be_lost_is_refused_at_its_line() {
    let next = ending("b", "\n");
    let rows = [
        (ending("a", "\n  x: z\n"), "7:3", "the key 'x' is already in data, in line 6"),
        (ending("a", "\nspec:\n- {b: 1, b: 2}\n"), "8:10", "is already in spec[0], in line 8"),
        ("{\"apiVersion\": \"v1\",\n\"kind\": \"A\",\n\"kind\": \"B\"}\n".to_owned(), "3:1", "the key 'kind' is already in the object"),
        (ending("a", &format!("---\n{next}")), "7:1", "line 6 ends in '---'"),
        (ending("a", &format!("---  # x\n{next}")), "7:1", "line 6 ends in '---'"),
        (ending("a", &format!("\n   ---\n{next}")), "8:1", "line 6 ends in '---'"),
        (ending("a", &format!("\n{next}")), "7:1", "two objects need a line '---'"),
        (ending("a", &format!("\n# ---\n{next}")), "8:1", "two objects need a line '---'"),
        (ending("a", &format!("\n#---\n{next}")), "8:1", "two objects need a line '---'"),
        (ending("a", "---\n"), "6:6", "text that ends in '---'"),
        (ending("a", "\n  z: ---\n"), "7:6", "text that ends in '---'"),
        (ending("a", &format!("\n ---\n{next}")), "", "not valid YAML"),
        (ending("a", &format!("\n----\n{next}")), "7:4", "after the document separator"),
        (ending("a", &format!("\n--\n{next}")), "", "not valid YAML"),
        (ending("a", &format!("\n---apiVersion: v1\n{next}")), "7:4", "after the document separator"),
        (ending("a", &format!("\n\u{feff}---\n{next}")), "", "after the end of the document"),
        (ending("a", &format!("\n\u{2014}-\n{next}")), "", "not valid YAML"),
        (ending("a", &format!("\n...\n{next}")), "8:1", "after the end of the document"),
        (ending("a", &format!("\r---\r{next}")), "", ""),
        (ending("a", &format!("\n===\n{next}")), "", "not valid YAML"),
        ("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n  metadata: {name: a}\n  kind: B\n".to_owned(), "7:3", "items[0]"),
    ];
    for (text, place, fragment) in rows {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.starts_with(&format!("shop/web.yaml:{place}")), "{text}: {error}");
        assert!(error.contains(fragment), "{text}: {error}");
    }
}

#[test]
fn dashes_that_separate_nothing_are_text() {
    for end in [
        "\n  z: '---'\n",
        "\n  z: \"a---\"\n",
        "\n  z: -----BEGIN CERTIFICATE-----\n",
        "\n  z: a--\n",
        "\n  z: ----\n",
        "\n  z: |\n    a---\n    ---\n    kind: A\n    kind: B\n",
        "\n  z: a---b\n",
        "\n---\n",
        "\n--- # the end\n",
    ] {
        assert_eq!(parse(&ending("a", end)).unwrap_or_else(|error| panic!("{error}")).len(), 1);
    }
}

/// The files of case 01, where they are.
#[test]
fn a_separator_that_sticks_to_the_line_before_it_is_refused() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/cases/01-glued-separator/commits");
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    for file in ["rbac.yaml", "settings.yaml"] {
        let text = |commit: &str| std::fs::read_to_string(folder.join(commit).join(file)).expect("a file");
        assert!(parse_manifests(file, &text("1"), &Limits::default()).is_ok());
        let error = parse_manifests(file, &text("2"), &Limits::default()).expect_err(file);
        assert_eq!((error.file.as_str(), error.line), (file, 7), "{error}");
    }
}

#[test]
fn duplicates_are_paired_whatever_their_version() {
    let text = "apiVersion: apps/v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: apps/v1beta1\nkind: A\nmetadata: {name: a, namespace: shop}\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: apps/v1\nkind: A\nmetadata: {name: a, namespace: other}\n---\napiVersion: apps/v1\nkind: A\nmetadata: {name: a}\n";
    let manifests = parse(text).expect("good");
    assert_eq!(find_duplicates(&manifests, "shop"), [(0, 1), (0, 4)]);
    assert_eq!(find_duplicates(&manifests, "other"), [(0, 3), (0, 4)]);
}

#[test]
fn folders_that_need_rendering_are_told_by_their_files() {
    for name in ["kustomization.yaml", "kustomization.yml", "Kustomization", "Chart.yaml"] {
        assert!(refused_folder(name).is_some_and(|message| message.contains("not supported yet")), "{name}");
    }
    for name in ["kustomization.json", "chart.yaml", "web.yaml", ""] {
        assert_eq!(refused_folder(name), None, "{name}");
    }
}
