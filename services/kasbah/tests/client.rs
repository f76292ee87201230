//! The command line against a real server, and what it prints for kubectl against a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests end a test by panicking"
)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Output, Stdio};

use std::time::Duration;

use anyhow::ensure;
use futures::StreamExt as _;
use serde_json::Value;
use testkit::{GitServer, Installation, InstallationOptions, WorkTree, eventually};
use world::World;

const LIMIT: Duration = Duration::from_secs(60);

/// The command line of one person.
struct Person<'a> {
    kasbah: &'a Installation,
    token: Option<String>,
}

impl Person<'_> {
    fn run(&self, line: &str, input: &str) -> (i32, String, String) {
        let mut command = self.kasbah.cli_command().unwrap();
        command.args(line.split_whitespace());
        if let Some(token) = &self.token {
            command.env("KASBAH_TOKEN", token);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn ok(&self, line: &str) -> String {
        let (code, said, errors) = self.run(line, "");
        assert_eq!(code, 0, "{line}: {errors}");
        said
    }

    fn json(&self, line: &str) -> Value {
        let said = self.ok(&format!("{line} -o json"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"))
    }

    /// The exit code and the one line on standard error.
    fn refused(&self, line: &str) -> (i32, String) {
        let (code, said, errors) = self.run(line, "");
        assert_eq!(said, "", "{line} printed something");
        assert_eq!(errors.lines().count(), 1, "{line}: {errors}");
        (code, errors)
    }
}

async fn installation() -> Installation {
    Installation::start(InstallationOptions::default()).await.unwrap()
}

fn project(owner: &Person<'_>) {
    owner.ok("project create shop/web --repository http://127.0.0.1:9/shop.git");
}

#[tokio::test]
async fn the_directory_is_made_and_shown() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    owner.ok("group create platform");
    assert!(owner.ok("group list").starts_with("NAME "));
    let shown = owner.json("project show shop/web");
    assert_eq!(owner.json("project list")[0], shown);
    assert_eq!(
        owner.json("project set shop/web --default-branch trunk")["settings"]["default_branch"],
        "trunk"
    );
    let yaml = owner.ok("project show shop/web -o yaml");
    assert!(yaml.contains("  default_branch: trunk\n"), "{yaml}");
    let webhook = owner.json("project webhook shop/web");
    assert!(webhook["url"].as_str().unwrap().contains("/hooks/v1/"), "{webhook}");

    owner.ok("user create bob --role developer --scope project:shop/web");
    assert!(owner.ok("user list").contains("developer of project:shop/web"));
    owner.ok("user role bob viewer");
    let withdrawn = owner.json("user role bob developer --scope project:shop/web --withdraw");
    assert_eq!(withdrawn["roles"].as_array().unwrap().len(), 1);
    assert_eq!(withdrawn["roles"][0][0], "viewer");
}

/// Groups of these names, many at once.
async fn groups(kasbah: &Installation, names: &[String]) {
    let tls = chassis::tls::client_config(&World::real(), Some(&kasbah.authority()), &[b"h2"]).unwrap();
    let client = reqwest::Client::builder().tls_backend_preconfigured((*tls).clone()).build().unwrap();
    let token = std::fs::read_to_string(kasbah.data().join("owner-token")).unwrap().trim().to_owned();
    let making = names.iter().map(|name| {
        let body = serde_json::json!({ "name": name });
        let request = client.post(format!("{}/api/v1/groups", kasbah.api())).bearer_auth(&token).json(&body);
        async move { request.send().await.unwrap().error_for_status().unwrap() }
    });
    let mut making = futures::stream::iter(making).buffer_unordered(16);
    while making.next().await.is_some() {}
}

#[tokio::test]
async fn lists_are_followed_over_all_their_pages() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    let names: Vec<String> = (0..505).map(|number| format!("group-{number}")).collect();
    groups(&kasbah, &names).await;
    owner.ok("group create last");
    let listed = owner.json("group list");
    let listed: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(listed.len(), 506);
    assert_eq!(listed.last(), Some(&"last"), "the newest is on the second page");
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), 506, "each once");
    let rows = owner.ok("group list");
    assert_eq!(rows.lines().filter(|line| line.starts_with("NAME ")).count(), 1, "one heading");
    let first: Vec<&str> = rows.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(first, listed);
    assert_eq!(owner.json("group list --limit 3").as_array().unwrap().len(), 3);
    assert_eq!(owner.ok("group list --limit 501").lines().count(), 502);
    assert_eq!(owner.run("group list --limit 0", "").0, 2);

    // What looks names up finds those of the second page too.
    owner.ok("user create ann --role viewer --scope group:last");
    assert!(owner.ok("user list").contains("viewer of group:last"));
    assert!(owner.ok("user show ann").contains("viewer of group:last"));
    assert!(owner.ok("log show group/last").lines().next().unwrap().ends_with(" last"));
    let event = owner.ok("log tail -n 1 --type group.created -o json");
    let event: Value = serde_json::from_str(&event).unwrap();
    assert_eq!((&event["subjectname"], &event["actorname"]), (&"last".into(), &"owner".into()));
}

#[tokio::test]
async fn an_agent_of_a_group_is_configured_by_one_of_its_projects() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    let git = GitServer::start().unwrap();
    let url = git.create("deploy").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    let file = "sources:\n  - name: shop\n    include: [\"manifests/**\"]\n";
    tree.write(".kasbah/agents/edge/config.yaml", file).unwrap();
    tree.write("manifests/one.yaml", config_map("one", "")).unwrap();
    tree.commit_and_push("configure").unwrap();
    owner.ok(&format!("project create shop/deploy --repository {url}"));
    owner.ok("project create bank/vault --repository http://127.0.0.1:9/vault.git");
    for wrong in [
        "agent register edge",
        "agent register edge --group shop",
        "agent register edge --config-project shop/deploy",
        "agent register edge --group shop --project shop/deploy",
    ] {
        assert_eq!(owner.run(wrong, "").0, 2, "{wrong}");
    }
    let (code, said) = owner.refused("agent register edge --group shop --config-project bank/vault");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("project: must be one of the group"), "{said}");
    let said = owner.ok("agent register edge --group shop --config-project shop/deploy");
    assert!(
        said.contains("Group     shop\n") && said.contains("         groups:\n           - id: shop\n"),
        "{said}"
    );
    assert!(owner.ok("agent list").contains("edge  shop   shop/deploy"));
    eventually(LIMIT, || async {
        let shown = owner.ok("agent show edge");
        ensure!(shown.contains("Group       shop\n") && shown.contains("In force       commit "), "{shown}");
        let sources = owner.ok("source list");
        ensure!(sources.contains("edge/shop"), "{sources}");
        Ok(())
    })
    .await;
    let person = |name: &str, scope: &str| {
        owner.ok(&format!("user create {name} --role developer --scope {scope}"));
        let token = owner.ok(&format!("token issue --user {name} --name t --token-only"));
        Person { kasbah: &kasbah, token: Some(token.trim().to_owned()) }
    };
    let (of_group, of_project) = (person("ann", "group:shop"), person("bob", "project:shop/deploy"));
    assert_eq!(of_group.json("source list")[0]["configuration"]["name"], "shop");
    assert_eq!(of_group.json("agent show shop/deploy:edge")["agent"]["group"]["name"], "shop");
    assert_eq!(of_project.json("agent list"), Value::Array(Vec::new()));
    assert_eq!(of_project.refused("agent show edge").0, 3);
    assert_eq!(of_project.refused("source show edge/shop").0, 3);
    let (code, said) = owner.refused("project delete shop/deploy");
    assert_eq!(code, 5);
    assert!(said.contains("agent edge"), "{said}");
}

#[tokio::test]
async fn definitions_of_another_project_come_into_force_and_so_does_a_push_there() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    let git = GitServer::start().unwrap();
    let repository = |name: &str, path: &str, text: &str| {
        let url = git.create(name).unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        tree.write(path, text).unwrap();
        tree.commit_and_push("first").unwrap();
        owner.ok(&format!("project create shop/{name} --repository {url}"));
        git.add_webhook(name, kasbah.webhook(&format!("shop/{name}")).unwrap()).unwrap();
        tree
    };
    let rule =
        |healthy: &str| format!("health:\n  rules:\n    - {{group: a, kind: B, healthy: \"{healthy}\"}}\n");
    // No source reads it.
    let charts = repository("charts", "database/kasbah.yaml", &rule("status.one"));
    let file = "sources: []\ndefinitions: [{project: shop/charts, path: database/kasbah.yaml}]\n";
    let _deploy = repository("deploy", ".kasbah/agents/edge/config.yaml", file);
    owner.ok("agent register edge --project shop/deploy");
    let becomes = async |what: &str, limit: Duration, is: &dyn Fn(&Value) -> bool| {
        eventually(limit, || async {
            let shown = owner.json("agent show edge")["configuration"].clone();
            ensure!(is(&shown), "the configuration is not {what}: {shown:#}");
            Ok(())
        })
        .await;
    };
    let judges = |healthy: &'static str| {
        move |shown: &Value| shown.pointer("/configuration/health/rules/0/healthy") == Some(&healthy.into())
    };
    becomes("of the first commit", LIMIT, &judges("status.one")).await;
    // Sooner than anybody would look without a reason.
    let soon = Duration::from_secs(30);
    charts.write("database/kasbah.yaml", rule("status.two")).unwrap();
    charts.commit_and_push("second").unwrap();
    becomes("of the second commit", soon, &judges("status.two")).await;
    charts.write("database/kasbah.yaml", rule("status.two ==")).unwrap();
    charts.commit_and_push("third").unwrap();
    becomes("rejected", soon, &|shown| {
        let found = shown.pointer("/rejected/findings/0").unwrap_or(&Value::Null);
        found["file"] == "shop/charts:database/kasbah.yaml"
            && found["field"] == "health.rules[0].healthy"
            && found["line"] == 3
            && judges("status.two")(shown)
    })
    .await;
    let shown = owner.ok("agent show edge");
    assert!(shown.contains("shop/charts:database/kasbah.yaml:3:"), "{shown}");
}

#[tokio::test]
async fn a_credentials_secret_goes_in_by_a_pipe_and_never_comes_out() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    let (code, said, errors) = owner.run("credential create forge --host 127.0.0.1:9", "hunter2\n");
    assert_eq!(code, 0, "{errors}");
    let (code, _, errors) = owner.run("credential create empty --host 127.0.0.1:9", "\n");
    assert_eq!((code, errors.as_str()), (2, "error: --secret-file: the secret is empty\n"));
    owner.ok("credential grant forge --project shop/web");
    owner.ok("project set shop/web --credential forge");
    assert!(owner.ok("project show shop/web").contains("Credential      forge\n"));
    let all = [said, owner.ok("credential list -o json"), owner.ok("log tail --from start -o json")].concat();
    assert!(!all.contains("hunter2"), "{all}");
    assert_eq!(owner.json("credential revoke forge")["revoked"], true);
}

#[tokio::test]
async fn tokens_are_shown_once_and_end() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    let registered = owner.json("agent register edge --project shop/web");
    assert!(registered["token"]["secret"].as_str().unwrap().starts_with("kasbah_a_"));
    assert!(!registered["root_key"].as_str().unwrap().is_empty());
    let bare = owner.ok("token issue --name mine --expires 1h --token-only");
    let mine = Person { kasbah: &kasbah, token: Some(bare.trim().to_owned()) };
    assert_eq!(mine.json("agent list")[0]["name"], "edge");

    let listed = owner.ok("token list -o json");
    assert!(!listed.contains(bare.trim()), "{listed}");
    let tokens = owner.json("token list");
    let id = tokens.as_array().unwrap().iter().find(|token| token["name"] == "mine").unwrap()["id"].clone();
    owner.ok(&format!("token revoke {}", id.as_str().unwrap()));
    let (code, said) = mine.refused("agent list");
    assert_eq!(code, 4);
    assert!(said.contains("--token-file"), "{said}");
    assert!(owner.ok("agent delete edge").contains("its tokens are revoked"));
    assert_eq!(owner.refused("agent show edge").0, 3);
}

#[tokio::test]
async fn a_stranger_sees_nothing() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    let agent =
        owner.json("agent register edge --project shop/web")["agent"]["id"].as_str().unwrap().to_owned();
    let made = owner.json("organization create elsewhere --owner eve");
    let token = made["owner_token"]["secret"].as_str().unwrap().to_owned();
    let eve = Person { kasbah: &kasbah, token: Some(token) };
    for line in ["group list", "project list", "credential list", "agent list", "source list"] {
        assert_eq!(eve.json(line), Value::Array(Vec::new()), "{line}");
    }
    assert_eq!(eve.json("user list").as_array().unwrap().len(), 1);
    assert_eq!(eve.json("organization list").as_array().unwrap().len(), 1);
    // Before she asks for anything by name: her own refused requests would repeat what she typed.
    let log = eve.ok("log tail --from start -o json");
    assert!(!log.contains(&agent) && !log.contains("edge"), "{log}");
    for line in [
        "project show shop/web".to_owned(),
        "project webhook shop/web".to_owned(),
        "agent show edge".to_owned(),
        format!("agent show {agent}"),
        format!("agent delete {agent}"),
        "token list --agent edge".to_owned(),
        "source show edge/web".to_owned(),
        "source sync edge/web".to_owned(),
        format!("source suspend {agent}"),
        format!("log show agent/{agent}"),
    ] {
        assert_eq!(eve.refused(&line).0, 3, "{line}");
    }
    let own = format!("/organizations/{}", made["id"].as_str().unwrap());
    for line in eve.ok("log tail --from start -o json").lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["source"], own.as_str(), "{event}");
    }
}

#[tokio::test]
async fn each_refusal_has_its_code_and_one_line() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    owner.ok("agent register edge --project shop/web");
    let wrong = Person { kasbah: &kasbah, token: Some("kasbah_p_wrong".to_owned()) };
    for (person, line, code, part) in [
        (&owner, "group create Not_A_Name", 2, "error: name: must be"),
        (&owner, "source show web", 2, "expected <agent>/<source>"),
        (&owner, "project show shop/none", 3, "not found, or not visible to you"),
        (&owner, "source show edge/none", 3, "error: source edge/none not found"),
        (&wrong, "project list", 4, "error: unknown token"),
        (&owner, "agent register edge --project shop/web", 5, "is taken"),
        (&owner, "agent list --server https://127.0.0.1:9", 64, "no token for https://127.0.0.1:9/"),
        (&wrong, "agent list --server https://127.0.0.1:9", 6, "is `kasbah up` running there?"),
        (&owner, "agent list --data /nowhere", 64, "client.json does not exist"),
        (&owner, "agent list --ca-file /nowhere", 64, "/nowhere"),
    ] {
        let (found, said) = person.refused(line);
        assert_eq!(found, code, "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted() {
    let (kasbah, other) = (installation().await, installation().await);
    let owner = Person { kasbah: &kasbah, token: None };
    let (code, said) = owner.refused(&format!("agent list --ca-file {}", other.authority().display()));
    assert_eq!(code, 1);
    assert!(said.contains("comes from an authority that is not trusted here"), "{said}");
}

#[tokio::test]
async fn the_log_is_shown_followed_and_verified() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    let mut command = kasbah.cli_command().unwrap();
    command.args(["log", "tail", "-f", "-n", "1", "--type", "group.*", "-o", "json"]).stdout(Stdio::piped());
    let mut tail = command.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["data"]["name"], "shop");
    owner.ok("group create later");
    let later = next();
    assert_eq!((&later["type"], &later["data"]["name"]), (&"kasbah.group.created".into(), &"later".into()));
    tail.kill().unwrap();
    tail.wait().unwrap();

    owner.ok("group create last");
    let from = later["position"].as_str().unwrap();
    let behind = owner.ok(&format!("log tail --from {from} --type group.created"));
    assert_eq!(behind.lines().count(), 1, "{behind}");
    assert!(behind.contains("group.created") && behind.contains("last, by owner"), "{behind}");
    let history = owner.ok(&format!("log show {}", later["subject"].as_str().unwrap()));
    let (heading, events) = history.split_once('\n').unwrap();
    assert!(heading.ends_with(" later") && events.starts_with("    1  "), "{history}");
    assert_eq!(owner.json("log verify")["ok"], true);
}

#[tokio::test]
async fn kubectl_takes_what_register_prints_and_its_pods_run() {
    let kasbah = installation().await;
    let owner = Person { kasbah: &kasbah, token: None };
    project(&owner);
    let cluster = testkit::shared_control_plane().await.unwrap();
    let managed = cluster.namespace("managed", false).await.unwrap();
    for (agent, option) in [("whole", String::new()), ("narrow", format!("--namespaced {managed}"))] {
        let home = format!("{managed}-{agent}");
        let line = format!(
            "agent register {agent} --project shop/web --manifests --namespace {home} --gateway 10.0.0.1:8441 {option}"
        );
        let manifests = owner.ok(&line);
        // A pod that its own namespace's standard would refuse is a warning on the Deployment.
        cluster.kubectl_with_input(["apply", "--warnings-as-errors", "-f", "-"], &manifests).await.unwrap();
        let deployment = format!("deployment/kasbah-agent-{agent}");
        let wait = ["rollout", "status", &deployment, "--namespace", &home, "--timeout", "60s"];
        cluster.kubectl(wait).await.unwrap();

        let account = format!("system:serviceaccount:{home}:kasbah-agent-{agent}");
        let elsewhere = if agent == "whole" { "yes" } else { "no" };
        for (words, allowed) in [
            (format!("patch deployments.apps --namespace {managed}"), "yes"),
            (format!("delete configmaps --namespace {managed}"), "yes"),
            (format!("update leases.coordination.k8s.io --namespace {home}"), "yes"),
            ("patch configmaps --namespace kube-public".to_owned(), elsewhere),
            ("create customresourcedefinitions.apiextensions.k8s.io".to_owned(), elsewhere),
            (format!("escalate roles.rbac.authorization.k8s.io --namespace {managed}"), elsewhere),
            ("impersonate users".to_owned(), "no"),
            ("impersonate groups".to_owned(), "no"),
        ] {
            let mut arguments = vec!["auth", "can-i", "--as", &account, "--warnings-as-errors=false"];
            arguments.extend(words.split_whitespace());
            // kubectl answers "no" with exit code 1.
            let said =
                cluster.kubectl(arguments).await.map_or("no".to_owned(), |said| said.trim().to_owned());
            assert_eq!(said, allowed, "{agent}: {words}");
        }
    }
}

fn config_map(name: &str, body: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{body}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_shown_synced_compared_and_held_back() {
    let mut kasbah = installation().await;
    let cluster = testkit::shared_control_plane().await.unwrap();
    let namespace = cluster.namespace("cli", false).await.unwrap();
    let git = GitServer::start().unwrap();
    let url = git.create("deploy").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    let configuration = format!(
        "colour: blue\nsources:\n  - name: shop\n    include: [\"manifests/**\"]\n    namespace: {namespace}\n"
    );
    tree.write(".kasbah/agents/edge/config.yaml", configuration).unwrap();
    tree.write("manifests/one.yaml", config_map("one", "data:\n  value: \"1\"\n")).unwrap();
    let first = tree.commit_and_push("one").unwrap();
    kasbah.cli(["project", "create", "shop/deploy", "--repository", &url]).unwrap();
    git.add_webhook("deploy", kasbah.webhook("shop/deploy").unwrap()).unwrap();
    kasbah.register_agent("edge", "shop/deploy").unwrap();
    kasbah.start_agent("agent", "edge", cluster.kubeconfig(), &namespace).unwrap();
    let owner = Person { kasbah: &kasbah, token: None };
    let synced = |commit: String| {
        let owner = Person { kasbah: &kasbah, token: None };
        eventually(LIMIT, move || {
            let (code, said, errors) = owner.run("source show edge/shop -o json", "");
            let commit = commit.clone();
            async move {
                ensure!(code == 0, "{errors}");
                let view: Value = serde_json::from_str(&said)?;
                ensure!(
                    view["synced_commit"] == commit.as_str()
                        && view["why"].as_str().is_none_or(|why| why.starts_with("pinned to commit")),
                    "not at {commit}: {view:#}"
                );
                Ok(())
            }
        })
    };
    synced(first.clone()).await;
    assert!(owner.ok("source list").lines().nth(1).unwrap().contains("in sync"));
    let agent = owner.ok("agent show edge");
    assert!(agent.contains("config.yaml:1:1 colour: ") && agent.contains("applies"), "{agent}");

    let waited = owner.ok("source sync edge/shop --wait --timeout 60s");
    assert!(waited.contains(&format!("of commit {} succeeded", &first[..10])), "{waited}");

    cluster
        .kubectl(["patch", "configmap", "one", "-n", &namespace, "-p", "{\"data\":{\"value\":\"1\"}}"])
        .await
        .unwrap();
    assert!(owner.ok("source diff edge/shop").contains("nothing would change; 1 unchanged"));
    assert!(
        owner.ok("source suspend edge/shop --reason freeze").contains("Why             suspended: freeze")
    );
    let (code, said, errors) = owner.run("source sync edge/shop", "");
    assert_eq!((code, said.as_str()), (5, ""), "{errors}");

    owner.ok("source resume edge/shop");
    tree.write("manifests/bad.yaml", config_map("bad", "data: [1]\n")).unwrap();
    tree.commit_and_push("what the API server refuses").unwrap();
    let failed = eventually(LIMIT, || {
        let (_, said, _) = owner.run("source show edge/shop", "");
        async move {
            ensure!(said.contains("manifests/bad.yaml:1 v1 ConfigMap"), "no failure yet: {said}");
            Ok(said)
        }
    })
    .await;
    assert!(failed.contains("failed"), "{failed}");
    let (code, _, errors) = owner.run("source sync edge/shop --wait --timeout 60s", "");
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("error: the sync failed: manifests/bad.yaml:1"), "{errors}");
    let (code, said, errors) = owner.run("source diff edge/shop", "");
    assert_eq!(code, 1, "{errors}");
    assert!(said.contains("! refused v1 ConfigMap"), "{said}");

    assert!(
        owner
            .ok(&format!("source pin edge/shop {}", &first[..12]))
            .contains(&format!("Pinned to       {first}"))
    );
    synced(first).await;
    tree.remove("manifests/bad.yaml").unwrap();
    let last = tree.commit_and_push("without it").unwrap();
    owner.ok("source unpin edge/shop");
    synced(last).await;
}
