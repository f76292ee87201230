use events::Timestamp;
use serde_json::json;

use super::table::Columns;
use super::*;

const PLAIN: Style = Style { colour: false, now: Timestamp(1_000_000) };
const COLOUR: Style = Style { colour: true, now: Timestamp(1_000_000) };

fn table() -> Table {
    let mut table = Table::new(&["NAME", "STATE", "WHY"]);
    table.row(["shop".into(), Cell::painted("ok", Paint::Good), Cell::or_dash(None)]);
    table.row(["日本".into(), Cell::painted("failed", Paint::Bad), "two\nlines".into()]);
    table
}

#[test]
fn columns_line_up_also_with_wide_letters() {
    assert_eq!(
        table().render(PLAIN, "none"),
        "NAME  STATE   WHY\n\
         shop  ok      -\n\
         日本  failed  two lines\n"
    );
}

#[test]
fn pages_of_a_table_share_headings_and_columns() {
    let page = |name: &str| {
        let mut table = Table::new(&["NAME", "ID"]);
        table.row([name.into(), "1".into()]);
        table
    };
    let mut columns = Columns::default();
    let pages =
        ["longer", "a", "longest of all", "b"].map(|name| page(name).render_page(&mut columns, PLAIN));
    assert_eq!(
        pages,
        ["NAME    ID\nlonger  1\n", "a       1\n", "longest of all  1\n", "b               1\n",]
    );
}

#[test]
fn colour_changes_no_column() {
    let coloured = table().render(COLOUR, "none");
    assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m  two lines"), "{coloured:?}");
    let mut bare = coloured;
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, table().render(PLAIN, "none"));
}

#[test]
fn an_empty_table_says_so() {
    assert_eq!(Table::new(&["NAME"]).render(PLAIN, "no agents"), "no agents");
}

#[test]
fn fields_without_value_are_left_out() {
    let fields = Fields::new().with("Name", "shop").with_some("Reason", None::<Cell>).with("Long name", "x");
    assert_eq!(fields.render(PLAIN), "Name       shop\nLong name  x\n");
}

#[test]
fn what_a_terminal_would_obey_is_taken_out() {
    assert_eq!(one_line("a\u{1b}[2Jb\r\nc\u{9b}31md\te\u{7}"), "a [2Jb c 31md e");
}

#[test]
fn ages_have_one_unit() {
    let now = Timestamp(1_000_000_000);
    for (millis, text) in
        [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (864_000_000, "10d")]
    {
        assert_eq!(age(Timestamp(now.0 - millis), now), text);
    }
    assert_eq!(age(now.plus_millis(300_000), now), "in 5m");
    assert_eq!(at(Timestamp(0), Timestamp(5_000)), "1970-01-01T00:00:00.000Z (5s ago)");
}

#[test]
fn yaml_keeps_what_other_readers_would_turn_into_something_else() {
    let value = json!({
        "on": "no", "commit": "1e10", "short": "0123456789", "time": "2026-01-01", "empty": "", "list": [],
        "certificate": "-----BEGIN\nabc\n", "colon": "a: b", "number": 7, "none": null,
    });
    let text = yaml(&value).unwrap();
    for line in [
        "commit: \"1e10\"",
        "short: \"0123456789\"",
        "time: \"2026-01-01\"",
        "list: []",
        "number: 7",
        "none: null",
    ] {
        assert!(text.replace('\'', "\"").contains(line), "{line} not in:\n{text}");
    }
    assert!(text.contains("certificate: |\n  -----BEGIN\n  abc\n"), "{text}");
    assert!(!text.contains(": no\n"), "{text}");
    let long = "word ".repeat(60) + "end";
    assert_eq!(yaml(&json!({"long": long})).unwrap(), format!("long: {long}\n"));
}
