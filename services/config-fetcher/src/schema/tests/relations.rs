use super::*;

#[test]
fn relations_are_read_and_what_is_wrong_is_said_at_its_field() {
    let file = |line: &str| format!("sources: []\nrelations:\n  - {line}\n");
    let kinds = "from: {group: example.com, kind: App}, to: {group: '', kind: Pod}";
    let good =
        check(FILE, file(&format!("{{name: runs, {kinds}, labels: \"{{'a': metadata.name}}\"}}")).as_bytes());
    assert_eq!((good.findings, good.warnings), (vec![], vec![]));
    assert_eq!(good.draft.relations[0].to.kind, "Pod");
    for (line, field, part) in [
        (format!("{{name: runs, {kinds}}}"), "relations[0]", "either 'names' or 'labels'"),
        (
            format!("{{name: runs, {kinds}, names: a, labels: b}}"),
            "relations[0]",
            "either 'names' or 'labels'",
        ),
        (format!("{{name: Runs, {kinds}, names: a}}"), "relations[0].name", "no name of a relation"),
        (format!("{{name: runs, {kinds}, names: 'a +'}}"), "relations[0].names", "no usable expression"),
        (
            "{name: runs, from: {group: a, kind: B}, to: {group: '*', kind: C}, names: a}".to_owned(),
            "relations[0].to",
            "leads to one kind",
        ),
    ] {
        let found = findings(&file(&line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].2 == field && found[0].3.contains(part), "{found:?}");
    }
}
