//! `kasbah rule …`.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use config_fetcher::schema::{Expected, RuleFrom, RuleTest, declared_rules, rule_tests};
use events::Timestamp;
use events::configuration::{DeclaredAction, FileFinding};
use events::requests::index::ObjectHealth;
use objects::action::{Offer, Seen, of_kind, offer};
use objects::health::{HealthOptions, RuleSet};
use objects::identity::split_api_version;
use resource_indexer::imported::Imported;
use resource_indexer::model::{ImportedRules, Kind, Verdict, own_verdict};
use serde::Serialize;
use serde_json::Value;
use world::World;

use super::finding;
use super::objects::text::word;
use crate::client::failure::Failure;
use crate::client::print::{Cell, Paint, Printer, Style, Table};

/// What to do with rules and actions.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Judge the objects in a file by its rules, and try its actions on them, without a server; exits with 1 if something is otherwise than
    /// expected
    Test(Test),
}

/// Which file.
#[derive(Debug, clap::Args)]
pub struct Test {
    /// A file with rules and actions, or of definitions, with objects and what is expected of them
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// What came of one test.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Outcome {
    name: String,
    line: u32,
    passed: bool,
    #[serde(flatten)]
    what: Found,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Found {
    Health {
        expected_state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_message: Option<String>,
        state: &'static str,
        message: String,
        /// Which rule judged.
        rule: String,
    },
    Action {
        action: String,
        expected_offered: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_patch: Option<Value>,
        offered: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch: Option<Value>,
        /// Why it is not offered, where it should be known.
        #[serde(skip_serializing_if = "String::is_empty")]
        reason: String,
    },
}

/// What came of a file.
#[derive(Debug, Serialize)]
struct Tested {
    rule_set: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    imported_rule_set: String,
    tests: Vec<Outcome>,
}

/// Runs it. What was found is an answer; that a test fails is a failure as well.
///
/// # Errors
/// When a test fails, or the file is wrong or cannot be read.
pub fn run(command: Command, printer: Printer, world: &World) -> Result<(), Failure> {
    let Command::Test(Test { file }) = command;
    let tested = test(world, &file)?;
    printer.show(&tested, text)?;
    match tested.tests.iter().filter(|one| !one.passed).count() {
        0 => Ok(()),
        failed => Err(Failure::Unsuccessful(format!("{failed} of {} tests failed", tested.tests.len()))),
    }
}

fn test(world: &World, file: &Path) -> Result<Tested, Failure> {
    let tests = rule_tests(&file.display().to_string(), &read(world, file)?).map_err(wrong)?;
    let declared = match tests.rules {
        RuleFrom::Here(rules) => rules,
        RuleFrom::Configuration(path) => {
            let path = file.parent().unwrap_or_else(|| Path::new("")).join(path);
            declared_rules(&path.display().to_string(), &read(world, &path)?).map_err(wrong)?
        }
    };
    let health = &declared.health;
    let (rules, imported) = (RuleSet::new(&health.rules), ImportedRules::new(&health.imported));
    let (rule_set, imported_rule_set) = (rules.version().to_owned(), imported.version().to_owned());
    let options = HealthOptions { rules: rules.into(), ..HealthOptions::default() };
    let now = Timestamp(world.clock.now_millis());
    let judge = Judge { options, imported, asking: Imported::new(world), now, actions: declared.actions };
    let tests = tests.tests.into_iter().map(|one| outcome(one, &judge)).collect();
    Ok(Tested { rule_set, imported_rule_set, tests })
}

fn read(world: &World, file: &Path) -> Result<Vec<u8>, Failure> {
    let doing = format!("read {}", file.display());
    world.disk.read(file).map_err(|detail| Failure::Io { doing, detail })
}

fn wrong(findings: Vec<FileFinding>) -> Failure {
    let lines: Vec<String> = findings.iter().map(finding).collect();
    Failure::Unsuccessful(lines.join("\n"))
}

/// Judges as the index does.
struct Judge {
    options: HealthOptions,
    imported: ImportedRules,
    asking: Imported,
    now: Timestamp,
    actions: Vec<DeclaredAction>,
}

impl Judge {
    fn verdict(&self, object: &Value) -> Verdict {
        let own = own_verdict(object, self.now, &self.options);
        let (group, kind) = kind_of(object);
        let script = self.imported.script_for(&Kind::new(group, kind));
        let script = script.filter(|_| own.leaves_to_imported());
        script.map_or(own, |script| self.asking.judge(script, object, self.now))
    }

    /// The patch of an action for an object, or why it is not offered.
    fn tried(&self, name: &str, object: &Value) -> Result<Value, String> {
        let kind = kind_of(object);
        let found = of_kind(&self.actions, kind).find(|(action, _)| action.name == name);
        let (action, _) =
            found.ok_or_else(|| format!("there is no such action for {} of group {:?}", kind.1, kind.0))?;
        match offer(action, &Seen::at(object.clone(), NOW)) {
            Offer::Patch(patch) => Ok(patch.document()),
            Offer::NotNow => Err("its condition does not hold".to_owned()),
            Offer::Failed(why) => Err(why),
        }
    }
}

/// What actions find in `now`: the same each time.
const NOW: &str = "2026-01-01T00:00:00Z";

fn kind_of(object: &Value) -> (&str, &str) {
    let part = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, _) = split_api_version(part("/apiVersion")).unwrap_or_default();
    (group, part("/kind"))
}

fn outcome(test: RuleTest, judge: &Judge) -> Outcome {
    let RuleTest { name, object, expected, line } = test;
    let (passed, what) = match expected {
        Expected::Health { state: expected_state, message: expected_message } => {
            let ObjectHealth { state, message, rule, .. } = judge.verdict(&object).answer();
            let state = word(state);
            let has_message = expected_message.as_ref().is_none_or(|expected| *expected == message);
            let passed = state == expected_state && has_message;
            (passed, Found::Health { expected_state, expected_message, state, message, rule })
        }
        Expected::Action { name: action, offered: expected_offered, patch: expected_patch } => {
            let tried = judge.tried(&action, &object);
            let offered = tried.is_ok();
            let (patch, reason) = match tried {
                Ok(patch) => (Some(patch), String::new()),
                Err(reason) => (None, reason),
            };
            let has_patch = expected_patch.is_none() || expected_patch == patch;
            let passed = offered == expected_offered && has_patch;
            (passed, Found::Action { action, expected_offered, expected_patch, offered, patch, reason })
        }
    };
    Outcome { name, line, passed, what }
}

fn text(tested: &Tested, style: Style) -> String {
    let mut table = Table::new(&["RESULT", "TEST", "LINE", "EXPECTED", "FOUND", "BY", "MESSAGE"]);
    for one in &tested.tests {
        let result =
            if one.passed { Cell::painted("ok", Paint::Good) } else { Cell::painted("failed", Paint::Bad) };
        let [expected, found, by, message] = columns(&one.what);
        table.row([
            result,
            one.name.as_str().into(),
            one.line.to_string().into(),
            expected.into(),
            found.into(),
            by.into(),
            Cell::or_dash(Some(&message)),
        ]);
    }
    table.render(style, "no tests")
}

/// What was expected and found, by which rule or action, and more.
fn columns(found: &Found) -> [String; 4] {
    match found {
        Found::Health { expected_state, expected_message, state, message, rule } => {
            let other = expected_message.as_ref().filter(|expected| *expected != message);
            let message =
                other.map_or_else(|| message.clone(), |expected| format!("{message} (expected: {expected})"));
            [(*expected_state).to_owned(), (*state).to_owned(), rule.clone(), message]
        }
        Found::Action { action, expected_offered, expected_patch, offered, patch, reason } => {
            let word = |offered: bool| if offered { "offered" } else { "not offered" }.to_owned();
            let patch = patch.as_ref().map_or_else(|| reason.clone(), Value::to_string);
            let other = expected_patch.as_ref().filter(|_| *offered);
            let other = other.map(Value::to_string).filter(|expected| *expected != patch);
            let message =
                other.map_or_else(|| patch.clone(), |expected| format!("{patch} (expected: {expected})"));
            [word(*expected_offered), word(*offered), action.clone(), message]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::print::Format;

    const STYLE: Style = Style { colour: false, now: Timestamp(0) };
    /// The example of the documentation.
    const DOCUMENTED: &str = include_str!("../../../../../docs/health-rules.md");
    const DOCUMENTED_ACTIONS: &str = include_str!("../../../../../docs/actions.md");

    fn example_in(documentation: &'static str) -> &'static str {
        let blocks = documentation.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
        blocks.into_iter().find(|block| block.contains("\ntests:\n")).unwrap()
    }

    fn example() -> &'static str {
        example_in(DOCUMENTED)
    }

    fn tested(content: &str) -> Result<Tested, Failure> {
        let folder = testkit::Folder::temporary().unwrap();
        let file = folder.path().join("tests.yaml");
        std::fs::write(&file, content).unwrap();
        test(&World::real(), &file)
    }

    #[test]
    fn the_documented_example_passes() {
        let tested = tested(example()).unwrap();
        assert!(tested.tests.iter().all(|one| one.passed), "{tested:#?}");
        assert!(tested.tests.len() > 3 && tested.rule_set.len() == 12, "{tested:#?}");
    }

    #[test]
    fn actions_are_tried_and_what_comes_of_them_is_said() {
        let documented = tested(example_in(DOCUMENTED_ACTIONS)).unwrap();
        assert!(documented.tests.len() > 2, "{documented:#?}");
        assert!(documented.tests.iter().all(|one| one.passed), "{documented:#?}");
        let other = example_in(DOCUMENTED_ACTIONS).replace("offered: false", "offered: true");
        let other =
            tested(&other.replace("patch: {spec: {paused: true", "patch: {spec: {paused: false")).unwrap();
        let passed: Vec<bool> = other.tests.iter().map(|one| one.passed).collect();
        assert_eq!(passed, [false, false, true], "{other:#?}");
        let text = text(&other, STYLE);
        assert!(text.contains("its condition does not hold") && text.contains("(expected: {"), "{text}");
    }

    #[test]
    fn what_is_judged_otherwise_fails_and_says_how() {
        let other = example().replace("state: healthy", "state: degraded");
        let tested = tested(&other).unwrap();
        let failed: Vec<&Outcome> = tested.tests.iter().filter(|one| !one.passed).collect();
        assert!(
            !failed.is_empty()
                && failed.iter().all(|one| matches!(one.what, Found::Health { state: "healthy", .. })),
            "{tested:#?}"
        );
        assert!(text(&tested, STYLE).contains("failed"));
    }

    #[test]
    fn a_failed_test_is_a_failure_with_the_table_before_it() {
        let folder = testkit::Folder::temporary().unwrap();
        let file = folder.path().join("tests.yaml");
        std::fs::write(
            &file,
            "rules: []\ntests: [{object: {apiVersion: v1, kind: ConfigMap}, state: healthy}]\n",
        )
        .unwrap();
        let printer = Printer { format: Format::Json, style: STYLE };
        let failure = run(Command::Test(Test { file }), printer, &World::real()).unwrap_err();
        assert!(
            matches!(&failure, Failure::Unsuccessful(why) if why == "1 of 1 tests failed"),
            "{failure:?}"
        );
    }

    #[test]
    fn the_rules_of_an_agents_configuration_are_tested_from_beside_it() {
        let folder = testkit::Folder::temporary().unwrap();
        let rule = "{group: example.com, kind: Dock, healthy: 'spec.dry'}";
        let configuration = format!("sources: []\nhealth: {{rules: [{rule}]}}\n");
        std::fs::write(folder.path().join("config.yaml"), configuration).unwrap();
        let file = folder.path().join("tests.yaml");
        let object = "{apiVersion: example.com/v1, kind: Dock, metadata: {name: a}, spec: {dry: true}}";
        let tests = format!("config: config.yaml\ntests: [{{object: {object}, state: healthy}}]\n");
        std::fs::write(&file, tests).unwrap();
        let tested = test(&World::real(), &file).unwrap();
        assert_eq!((tested.tests[0].passed, tested.tests[0].name.as_str()), (true, "Dock a"), "{tested:?}");
    }

    #[test]
    fn a_file_of_definitions_is_tested_as_it_is() {
        let rule = "{group: example.com, kind: Dock, healthy: 'spec.dry'}";
        let relation =
            "{name: at, from: {group: example.com, kind: Dock}, to: {group: '', kind: Pod}, names: spec.pod}";
        let action = "{name: flood, group: example.com, kind: Dock, text: Lets water in., merge: {spec: {dry: false}}}";
        let dock = "{apiVersion: example.com/v1, kind: Dock, metadata: {name: a}, spec: {dry: true}}";
        let tests = format!("[{{object: {dock}, state: healthy}}, {{object: {dock}, action: flood}}]");
        let declared = format!("health: {{rules: [{rule}]}}\nrelations: [{relation}]\nactions: [{action}]\n");
        let tested = tested(&format!("{declared}tests: {tests}\n")).unwrap();
        assert_eq!(tested.tests.iter().map(|one| one.passed).collect::<Vec<_>>(), [true, true], "{tested:?}");
        for (wrong, part) in [
            (format!("{declared}rules: [{rule}]\ntests: {tests}\n"), "write either 'rules'"),
            (format!("{declared}config: a.yaml\ntests: {tests}\n"), "write either 'rules'"),
            (format!("relations: [{{name: at}}]\ntests: {tests}\n"), "relations[0].from"),
            (declared, "tests is missing"),
        ] {
            let why = self::tested(&wrong).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_says_where() {
        let wrong = "rules:\n  - {group: a, kind: B, healthy: 'self.x =='}\ntests: []\n";
        let failure = tested(wrong).unwrap_err();
        let Failure::Unsuccessful(why) = &failure else { panic!("{failure:?}") };
        assert!(why.contains("tests.yaml:2:34") && why.contains("rules[0].healthy"), "{why}");
    }
}
