//! A shell in a container of a real node, opened from the page.

use serde_json::json;
use testkit::{InstallationOptions, Node, drive_chromium};

use super::{given, place, script};
use crate::sessions::Ground;

const SHELL: &str = include_str!("shell.mjs");

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_on_a_real_node_is_opened_from_the_page() {
    if let Err(skipped) = Node::possible() {
        println!("{skipped}");
        return;
    }
    let ground = Ground::start(InstallationOptions::default()).await;
    ground.is_ready().await;
    let scene = &ground.scene;
    let given = given(&scene.kasbah, &json!({ "path": place(scene) }));
    let expected = json!({
        "answers": true,
        "pasted": true,
        "resized": true,
        "styled": "inline-block",
        "coloured": true,
        "ended": "The shell ended with exit code 3.",
        "left": true,
        "command": true,
        "title": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(drive_chromium(&script(SHELL), &given).await.unwrap(), expected);
}
