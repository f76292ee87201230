//! Files of definitions, of the agent's configuration project and of another one.

use super::*;

const SHARED: &str = "charts/database/kasbah.yaml";

fn rule(kind: &str, healthy: &str) -> String {
    format!("health: {{rules: [{{group: db.example.com, kind: {kind}, healthy: \"{healthy}\"}}]}}\n")
}

/// An agent's file with a rule of its own, which names files of definitions.
fn named(files: &str) -> String {
    format!("sources: []\n{}definitions: [{files}]\n", rule("Own", "spec.own"))
}

fn of_charts() -> String {
    named(&format!("{{project: platform/charts, path: {SHARED}}}"))
}

/// The kinds that rules are for, with their expressions.
fn rules(changed: &ConfigurationChanged) -> Vec<(&str, &str)> {
    let rules = changed.configuration.health.rules.iter();
    rules.map(|rule| (rule.kind.as_str(), rule.healthy.as_str())).collect()
}

impl Harness {
    /// Another project of the organization.
    fn charts(&self) -> ProjectId {
        let charts = ProjectId(self.world.new_uuid());
        self.table.lock().projects.insert("platform/charts".into(), charts);
        charts
    }

    /// What reading a file beside the agent's own gives.
    fn set(&self, project: ProjectId, path: &str, answer: Option<Result<FileAtCommit, Refusal>>) {
        self.table.lock().others.insert((project, path.to_owned()), answer.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_another_project_come_into_force_and_a_push_there_is_read_at_once() {
    let harness = Harness::start(None).await;
    let charts = harness.charts();
    harness.set(charts, SHARED, at("d1", &rule("Database", "spec.one")));
    harness.advance(at("c1", &of_charts())).await;
    let changed = harness.wait_changed(1).await;
    assert_eq!(changed.commit, "c1");
    assert_eq!(rules(&changed), [("Own", "spec.own"), ("Database", "spec.one")]);
    let read = harness.table.lock().reads.iter().find(|read| read.project == charts).cloned().unwrap();
    assert_eq!((read.agent, read.path.as_str()), (harness.agent, SHARED));
    assert_eq!(read.reference, GitReference::Default);
    assert!(read.watch_seconds > Some(3600), "for longer than until the next look: {read:?}");

    // The interval is an hour.
    harness.set(charts, SHARED, at("d2", &rule("Database", "spec.two")));
    let cause = harness.tell_of(charts).await;
    let changed = harness.wait_changed(2).await;
    assert_eq!(rules(&changed), [("Own", "spec.own"), ("Database", "spec.two")]);
    assert_eq!(harness.said().await[1].0.correlation_id, cause);

    // Files of two projects, of which one declares what the other does.
    harness.set(harness.project, "own.yaml", at("c2", &rule("Database", "spec.mine")));
    let both = named(&format!("{{path: own.yaml}}, {{project: platform/charts, path: {SHARED}}}"));
    harness.advance(at("c2", &both)).await;
    let changed = harness.wait_changed(3).await;
    assert_eq!(rules(&changed), [("Own", "spec.own"), ("Database", "spec.mine")]);
    let of_own = |read: &&ReadFile| read.path == "own.yaml";
    assert_eq!(harness.table.lock().reads.iter().find(of_own).unwrap().watch_seconds, None);

    // What is read no more is no reason to read.
    harness.advance(at("c3", &named(""))).await;
    assert_eq!(rules(&harness.wait_changed(4).await), [("Own", "spec.own")]);
    let reads = harness.reads();
    harness.tell_of(charts).await;
    harness.tell_of(harness.project).await;
    harness.wait_reads(reads + 1).await;
    assert!(harness.table.lock().reads[reads..].iter().all(|read| read.path == FILE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_definitions_leaves_the_former_configuration_and_says_where() {
    let harness = Harness::start(None).await;
    let charts = harness.charts();
    harness.set(charts, SHARED, at("d1", &rule("Database", "spec.one")));
    harness.advance(at("c1", &of_charts())).await;
    harness.wait_changed(1).await;
    let place = |found: &FileFinding| (found.file.clone(), found.line, found.column, found.field.clone());
    let there = format!("platform/charts:{SHARED}");

    harness.set(charts, SHARED, at("d2", &rule("Database", "spec.one ==")));
    harness.tell_of(charts).await;
    let rejected = harness.wait_rejected(2).await;
    let expected = (there.clone(), 1, 67, "health.rules[0].healthy".to_owned());
    assert_eq!(rejected.findings.iter().map(place).collect::<Vec<_>>(), [expected]);
    assert_eq!(rejected.commit.as_deref(), Some("c1"));
    let show = ShowConfiguration { agent: harness.agent };
    let context = bus::context_for(&harness.world, Actor::service("test"), harness.organization);
    let view = bus::ask(&*harness.bus, &context, &show).await.unwrap();
    assert_eq!(view.configuration.unwrap().health.rules.len(), 2, "that is still in force");

    let whole = (there, 0, 0, String::new());
    let missing = FileAtCommit { commit: "d3".into(), content: None, too_large: None, folder: String::new() };
    harness.set(charts, SHARED, Some(Ok(missing.clone())));
    harness.tell_of(charts).await;
    let rejected = harness.wait_rejected(3).await;
    assert_eq!(place(&rejected.findings[0]), whole);
    assert!(rejected.findings[0].message.contains("no such file"), "{rejected:?}");

    harness.set(charts, SHARED, Some(Ok(FileAtCommit { too_large: Some(1_000_000), ..missing })));
    harness.tell_of(charts).await;
    let rejected = harness.wait_rejected(4).await;
    assert_eq!(place(&rejected.findings[0]), whole);
    assert!(rejected.findings[0].message.contains("1000000 bytes"), "{rejected:?}");

    harness.set(charts, SHARED, Some(Err(Refusal::new(RefusalKind::Denied, "the token has expired"))));
    harness.tell_of(charts).await;
    let rejected = harness.wait_rejected(5).await;
    assert!(rejected.findings[0].message.contains("the token has expired"), "{rejected:?}");

    // What passes says nothing and is tried again, as soon as there is something new at the latest.
    harness.set(charts, SHARED, Some(Err(Refusal::new(RefusalKind::Unavailable, "away"))));
    let reads = harness.reads();
    harness.tell_of(charts).await;
    harness.wait_reads(reads + 6).await;
    harness.set(charts, SHARED, at("d4", &rule("Database", "spec.four")));
    harness.tell_of(charts).await;
    assert_eq!(rules(&harness.wait_changed(6).await)[1], ("Database", "spec.four"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_projects_that_are_not_there_or_not_granted_are_refused() {
    let harness = Harness::start(None).await;
    let charts = harness.charts();
    harness.set(charts, SHARED, at("d1", &rule("Database", "spec.one")));
    harness.table.lock().not_granted = Some(charts);
    let files = format!(
        "\n  {{project: platform/charts, path: {SHARED}}},\n  {{project: platform/other, path: a.yaml}}\n  "
    );
    harness.advance(at("c1", &named(&files))).await;
    let rejected = harness.wait_rejected(1).await;
    let places: Vec<_> = rejected.findings.iter().map(|found| (found.line, found.field.as_str())).collect();
    assert_eq!(places, [(4, "definitions[0].project"), (5, "definitions[1].project")]);
    assert!(rejected.findings.iter().all(|found| found.file == FILE), "{rejected:?}");
    assert!(rejected.findings[0].message.contains("grant the credential"), "{rejected:?}");
    assert!(rejected.findings[1].message.contains("'platform/other' is not found"), "{rejected:?}");
    assert!(harness.table.lock().reads.iter().all(|read| read.project != charts));

    harness.table.lock().not_granted = None;
    harness.advance(at("c2", &of_charts())).await;
    assert_eq!(rules(&harness.wait_changed(2).await).len(), 2);

    // The same file, once by the project's path and once without.
    harness.table.lock().projects.insert("shop/deploy".into(), harness.project);
    harness.set(harness.project, "a.yaml", at("c3", &rule("Database", "spec.one")));
    let twice = named("{path: a.yaml}, {project: shop/deploy, path: a.yaml}");
    harness.advance(at("c3", &twice)).await;
    let rejected = harness.wait_rejected(3).await;
    assert!(rejected.findings[0].message.contains("definitions[0] names this file already"), "{rejected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_force_as_it_was_read_formerly_has_the_definitions_too() {
    let harness = Harness::start(None).await;
    let charts = harness.charts();
    harness.set(charts, SHARED, at("d1", &rule("Database", "spec.one")));
    let text = format!("{}user_access: {{projects: [{{id: shop/web}}]}}\n", of_charts());
    let mut checked = config_fetcher::schema::check(FILE, text.as_bytes());
    let shared =
        config_fetcher::schema::definitions(SHARED, rule("Database", "spec.one").as_bytes()).unwrap();
    checked.take_in(FILE, &[shared], Vec::new());
    let former = checked.former.unwrap();
    harness.put_into_force(former.draft.resolve(harness.agent, &[], &BTreeMap::new())).await;
    harness.advance(at("c2", &text)).await;
    let changed = harness.wait_changed(2).await;
    assert!(changed.configuration.implicit_rights, "the definitions are as they were");
    // A broken one does not pass for what is in force.
    harness.set(charts, SHARED, at("d2", "health: nonsense\n"));
    harness.tell_of(charts).await;
    harness.wait_rejected(3).await;
    harness.set(charts, SHARED, at("d3", &rule("Database", "spec.two")));
    harness.tell_of(charts).await;
    let changed = harness.wait_changed(4).await;
    assert!(!changed.configuration.implicit_rights, "what changes is read as it is today");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_one_project_are_of_one_commit() {
    let harness = Harness::start(None).await;
    let charts = harness.charts();
    harness.set(charts, "a.yaml", at("d1", &rule("Database", "spec.one")));
    harness.set(charts, "b.yaml", at("d2", &rule("Cache", "spec.two")));
    let files = "{project: platform/charts, path: a.yaml}, {project: platform/charts, path: b.yaml}";
    harness.advance(at("c1", &named(files))).await;
    harness.wait_reads(6).await;
    assert!(harness.said().await.is_empty());
    harness.set(charts, "a.yaml", at("d2", &rule("Database", "spec.two")));
    let changed = harness.wait_changed(1).await;
    assert_eq!(rules(&changed)[1..], [("Database", "spec.two"), ("Cache", "spec.two")]);
}
