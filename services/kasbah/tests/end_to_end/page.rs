//! The web page in a real browser, against the server as it ships: somebody signs in, sees what is wrong as it comes about, and signs out.

mod actions;
mod environment;
mod every_view;
mod interrupted;
mod moments;
mod network;
mod shell;
mod sign_in;
mod stories;
mod subscriptions;

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::{Folder, Installation, axe, drive_chromium, eventually, free_port};

use crate::index::Stage;
use crate::scene::{AGENT, LIMIT, Scene};

const SHARED: &str = include_str!("page/shared.mjs");
const OVERVIEW: &str = include_str!("page/overview.mjs");
const RESTARTED: &str = include_str!("page/restarted.mjs");
/// Where pictures of the page are left, to be looked at.
const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/pictures");

/// See [`seen_enough`].
const ENOUGH: &str = "seen enough";

/// What is made, and what is deleted, while the server is away.
const CHANGE: &str = "made-meanwhile";
const DELETED: &str = "deleted-meanwhile";

/// An image whose name would be more than text in a page that is careless.
pub const HOSTILE: &str = "<img src=x onerror=document.title=name>:1";

/// A script with what all scripts of pages share.
pub fn script(own: &str) -> String {
    format!("{SHARED}\n{own}")
}

/// A link that signs in once.
fn link(kasbah: &Installation) -> String {
    let link = kasbah.json(["open", "--no-open"]).unwrap();
    link["url"].as_str().expect("a link").to_owned()
}

/// What a script that looks at pages is given: a link that signs in, what it looks with, and `more`.
pub fn given(kasbah: &Installation, more: &Value) -> Value {
    std::fs::create_dir_all(PICTURES).unwrap();
    let mut given = json!({
        "port": free_port().unwrap(),
        "link": link(kasbah),
        "axe": axe().unwrap(),
        "pictures": PICTURES,
    });
    given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    given
}

/// Waits until the browser has seen enough and asks for the next thing to happen: it issues a token of this name.
pub async fn seen_enough(kasbah: &Installation, name: &str) {
    eventually(LIMIT, || async {
        let tokens = kasbah.json(["token", "list"])?;
        let is_there = tokens.as_array().is_some_and(|all| all.iter().any(|token| token["name"] == name));
        ensure!(is_there, "{name} is not asked for: {tokens:#}");
        Ok(())
    })
    .await;
}

/// Where the page shows a scene's namespace.
fn place(scene: &Scene) -> String {
    format!("/clusters/{}/namespaces/{}", scene.agent_id(AGENT), scene.namespace)
}

/// Waits until the browser has written a file: what it says while it reaches no server.
async fn written(path: &Path) {
    eventually(LIMIT, || async {
        ensure!(path.exists(), "the page does not notice");
        Ok(())
    })
    .await;
}

/// A token with which a user signs in on the page.
pub fn token_of(kasbah: &Installation, user: &str) -> String {
    let issue = ["token", "issue", "--user", user, "--name", "page", "--token-only"];
    kasbah.cli(issue).unwrap().trim().to_owned()
}

fn is_live_session(token: &Value) -> bool {
    token["name"] == "web page" && token["revoked_at"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_seen_as_it_comes_about() {
    let stage = Stage::start().await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    stage.health_becomes("deploy/web", "healthy").await;
    let token = stage.cli(&["token", "issue", "--name", "typed in", "--token-only"]).unwrap();
    let kasbah = &stage.scene.kasbah;
    let given = given(kasbah, &json!({ "token": token.trim(), "hostile": HOSTILE, "enough": ENOUGH }));
    let breaks = async {
        seen_enough(kasbah, ENOUGH).await;
        stage.push_deployment(HOSTILE, "nodeSelector: {kubernetes.io/hostname: no-such-node}");
        stage.fail_to_pull(HOSTILE).await;
    };
    let driven = script(OVERVIEW);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), breaks);
    let seen = seen.unwrap();
    let expected = json!({
        "first": "Nothing is wrong",
        "then": "What is wrong",
        "sharesTheFeed": true,
        "isTokenInAddress": false,
        "scriptsSee": "",
        "tables": true,
        "drawer": "web",
        "images": 0,
        "again": true,
        "typed": "What is wrong",
        "out": "Sign in to Kasbah",
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen, expected);
    let tokens = stage.json(&["token", "list"]).unwrap();
    assert!(!tokens.as_array().unwrap().iter().any(is_live_session), "signed out: {tokens:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_goes_on_when_the_server_starts_again() {
    let mut stage = Stage::start().await;
    stage.deploy("web:1", "terminationGracePeriodSeconds: 0").await;
    // By another program than what comes later: what one does within a minute is shown as one thing.
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": DELETED}});
    stage.cluster().create_object(&maps, &object).await.unwrap();
    let folder = Folder::temporary().unwrap();
    let noticed = folder.path().join("noticed");
    let given = json!({
        "port": free_port().unwrap(),
        "link": link(&stage.scene.kasbah),
        "enough": ENOUGH,
        "noticed": noticed,
        "change": CHANGE,
        "deleted": DELETED,
        "path": place(&stage.scene),
    });
    let restarts = async {
        seen_enough(&stage.scene.kasbah, ENOUGH).await;
        stage.scene.kasbah.stop_server().unwrap();
        // No event says so as it happens.
        stage.config_map(CHANGE, "1").await;
        stage.delete(&format!("configmap/{DELETED}")).await;
        written(&noticed).await;
        stage.scene.kasbah.start_server().await.unwrap();
    };
    let driven = script(RESTARTED);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), restarts);
    assert_eq!(
        seen.unwrap(),
        json!({ "isTheSame": true, "isLive": true, "whileBroken": true, "stays": true })
    );
}
