use super::*;

/// A file with these rules and no source.
fn rules(lines: &str) -> String {
    format!("sources: []\nhealth:\n  rules:\n{lines}")
}

#[test]
fn rules_are_read_with_all_their_expressions() {
    let text = rules(
        "    - {group: db.example.com, kind: Database, healthy: \"status.phase == 'Ready'\", degraded: \"status.phase == 'Failed'\"}\n    - group: '*.example.com'\n      kind: '*'\n      healthy: >-\n        status.conditions.exists(c, c.type == 'Ready'\n        && c.status == 'True')\n      progressing: 'false'\n      suspended: spec.paused\n      message: status.message\n",
    );
    let checked = check(FILE, text.as_bytes());
    assert_eq!((checked.findings, checked.warnings), (vec![], vec![]));
    let rules = checked.draft.health.rules;
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].degraded.as_deref(), Some("status.phase == 'Failed'"));
    assert_eq!((rules[1].group.as_str(), rules[1].kind.as_str()), ("*.example.com", "*"));
    assert!(rules[1].healthy.contains("&& c.status"), "{rules:?}");
    assert_eq!(
        (rules[1].suspended.as_deref(), rules[1].message.as_deref()),
        (Some("spec.paused"), Some("status.message"))
    );
}

#[test]
fn what_is_wrong_with_a_rule_is_said_at_its_field() {
    for (lines, field, part) in [
        (
            "    - {group: a, kind: B, healthy: 'status.phase =='}\n",
            "health.rules[0].healthy",
            "line 1, column 16",
        ),
        (
            "    - {group: a, kind: B, healthy: 'true', degraded: 'reverse(1)'}\n",
            "health.rules[0].degraded",
            "no function 'reverse'",
        ),
        ("    - {group: a, kind: B}\n", "health.rules[0].healthy", "healthy is missing"),
        ("    - {group: a, kind: B, healthy: true}\n", "health.rules[0].healthy", "write it in quotes"),
        ("    - {kind: B, healthy: 'true'}\n", "health.rules[0].group", "group is missing"),
        (
            "    - {group: a, kind: B, healthy: 'true', failed: 'true'}\n",
            "health.rules[0].failed",
            "unknown key",
        ),
        ("    - {group: '', kind: Secret, healthy: 'true'}\n", "health.rules[0].kind", "metadata alone"),
        (
            "    - {group: a, kind: B, healthy: 'true'}\n    - {group: a, kind: B, healthy: 'false'}\n",
            "health.rules[1]",
            "another rule",
        ),
    ] {
        let found = findings(&rules(lines));
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert_eq!(found[0].2, field, "{found:?}");
        assert!(found[0].3.contains(part), "{found:?}");
    }
    let many = (0..201).map(|number| format!("    - {{group: g{number}, kind: B, healthy: 'true'}}\n"));
    let found = findings(&rules(&many.collect::<String>()));
    assert!(found.len() == 1 && found[0].3.contains("at most 200"), "{found:?}");
}

#[test]
fn imported_rules_are_read_and_what_is_wrong_is_said_at_its_field() {
    let file = |line: &str| format!("sources: []\nhealth:\n  imported:\n{line}");
    let script = "    - group: a\n      kind: B\n      lua: |\n        hs = {}\n        return hs\n";
    let good = check(FILE, file(script).as_bytes());
    assert_eq!((good.findings, good.warnings), (vec![], vec![]));
    assert_eq!(good.draft.health.imported[0].lua, "hs = {}\nreturn hs\n");
    let long = format!("    - {{group: a, kind: B, lua: '{}'}}\n", "-".repeat(20_001));
    for (lines, field, part) in [
        ("    - {group: a, kind: B}\n", "health.imported[0].lua", "lua is missing"),
        ("    - {group: a, lua: 'return {}'}\n", "health.imported[0].kind", "kind is missing"),
        ("    - {group: a, kind: B, lua: ''}\n", "health.imported[0].lua", "empty text"),
        ("    - {group: '', kind: Secret, lua: 'return {}'}\n", "health.imported[0].kind", "metadata alone"),
        (&long, "health.imported[0].lua", "20001 bytes"),
        (&script.repeat(2), "health.imported[1]", "another rule"),
    ] {
        let found = findings(&file(lines));
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].2 == field && found[0].3.contains(part), "{found:?}");
    }
}
