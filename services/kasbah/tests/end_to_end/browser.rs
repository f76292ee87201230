//! Pages in a real browser that use a cluster's API: what docs/access.md tells them to do, and what others try with the same browser.

use serde_json::{Value, json};
use testkit::{InstallationOptions, Node, drive_chromium, eventually, free_port};

use crate::cluster_api::let_in;
use crate::scene::{AGENT, LIMIT, Scene};
use crate::sessions::Ground;

const LET_IN: &str = include_str!("browser/let_in.mjs");
const NOT_LET_IN: &str = include_str!("browser/not_let_in.mjs");
const DOCUMENTATION: &str = include_str!("../../../../docs/access.md");
/// Where the documentation's script comes to its WebSocket, and where it ends its session.
const WEBSOCKET: &str = "// A WebSocket";
const END: &str = "await ask(\"/sessions\"";

/// The documentation's script up to a line, for this installation.
fn documented(scene: &Scene, until: &str) -> String {
    let (_, script) = DOCUMENTATION.split_once("```js\n").expect("a script");
    let (script, _) = script.split_once(until).expect("the line");
    let script = script.replace("https://kasbah.example:8443", &scene.kasbah.clusters());
    script.replace("/namespaces/shop/", &format!("/namespaces/{}/", scene.namespace))
}

/// A server that lets in pages of one port of this machine.
fn letting_in(port: u16) -> InstallationOptions {
    let server = vec![format!("--clusters-origins=http://localhost:{port}")];
    InstallationOptions { server, ..InstallationOptions::default() }
}

/// A token's secret, and its id.
fn token(scene: &Scene) -> (String, String) {
    let issue = ["token", "issue", "--user", "owner", "--name", "page", "--expires", "15m"];
    let issued = scene.kasbah.json(issue).unwrap();
    let text = |place: &str| issued.pointer(place).and_then(Value::as_str).expect("a token").to_owned();
    (text("/secret"), text("/view/id"))
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_let_in_does_what_the_documentation_says_until_its_token_is_revoked() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let port = free_port().unwrap();
    let ground = Ground::start(letting_in(port)).await;
    let scene = &ground.scene;
    ground.is_ready().await;
    let (secret, id) = token(scene);
    let agent = scene.agent_id(AGENT);
    let path = format!("/agents/{agent}/api/v1/namespaces/{}/configmaps", scene.namespace);
    let given = json!({
        "port": port,
        "script": documented(scene, END),
        "token": secret,
        "agent": agent,
        "write": {"path": path, "object": config_map("written")},
    });
    let written = scene.path("written");
    let revoke = async {
        eventually(LIMIT, || scene.cluster.get(&written)).await;
        scene.kasbah.cli(["token", "revoke", &id])
    };
    // What the script has to say of its end comes before that nothing was written.
    let (seen, _revoked) = tokio::try_join!(drive_chromium(LET_IN, &given), revoke).unwrap();
    assert_eq!(
        seen,
        json!({
            "pods": ["web"],
            "protocol": "v5.channel.k8s.io",
            "written": 201,
            "scriptsSee": "",
            "afterwards": 401,
            "cookie": seen["cookie"],
        })
    );
    let cookie = &seen["cookie"];
    let name = cookie["name"].as_str().unwrap();
    assert!(name.starts_with("__Host-"), "{cookie}");
    for is in ["httpOnly", "secure"] {
        assert_eq!(cookie[is], true, "{cookie}");
    }
    assert_eq!(cookie["sameSite"], "None", "{cookie}");
    assert!(!cookie["partitionKey"].is_null(), "{cookie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_not_let_in_gets_nothing_from_the_browser_of_somebody_who_is() {
    let (port, other_port) = (free_port().unwrap(), free_port().unwrap());
    let cluster = testkit::shared_control_plane().await.unwrap();
    let scene = Scene::start_as(letting_in(port), cluster, "").await;
    let_in(&scene, "").await;
    let (secret, _) = token(&scene);
    let agent = scene.agent_id(AGENT);
    let maps = format!("/api/v1/namespaces/{}/configmaps", scene.namespace);
    let given = json!({
        "port": port,
        "otherPort": other_port,
        "script": documented(&scene, WEBSOCKET),
        "token": secret,
        "agent": agent,
        "clusters": scene.kasbah.clusters(),
        "maps": format!("/agents/{agent}{maps}"),
        "smuggled": config_map("smuggled"),
        "made": config_map("made"),
    });
    let seen = drive_chromium(NOT_LET_IN, &given).await.unwrap();
    let expected = json!({
        "tried": {
            "reads": "not told",
            "readsWithTheWord": "not told",
            "writes": "not told",
            "writesBlindly": "read 0: ",
            "beginsASession": "not told",
            "image": "not told",
        },
        // Without the cookie it would be 401: the browser did send it.
        "codes": {"form": 403, "word": 403, "blind": 403},
        "sockets": {
            "otherWithTheCookie": false,
            "otherWithATicket": false,
            "withTheTicket": true,
            "withTheTicketAgain": false,
            "withAnother": true,
        },
        "written": 201,
        "ended": [204, 401],
        "cookies": 0,
    });
    assert_eq!(seen, expected);
    assert!(!scene.cluster.exists(&scene.path("smuggled")).await.unwrap());
}
