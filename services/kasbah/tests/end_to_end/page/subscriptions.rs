//! Subscriptions on the page: created, in trouble, put right, with an owner's eyes and with others'.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::json;
use testkit::{Installation, InstallationOptions, drive_chromium};

use super::{given, script, seen_enough, token_of};
use crate::receiver::receiver_with;

const SUBSCRIPTIONS: &str = include_str!("subscriptions.mjs");

/// What a receiver refuses: paths of its webhooks.
type Refused = Arc<Mutex<BTreeSet<String>>>;

/// A receiver that answers 410 at `/gone` and 422 at `/refuses` while these are refused, and takes everything else.
fn receiver() -> (String, Refused) {
    let refused = Refused::new(Mutex::new(["/gone".to_owned(), "/refuses".to_owned()].into()));
    let refuses = Arc::clone(&refused);
    let url = receiver_with(move |path, _| {
        let status = match (refuses.lock().unwrap().contains(path), path) {
            (true, "/gone") => "410 Gone",
            (true, _) => "422 Unprocessable Content",
            (false, _) => "204 No Content",
        };
        format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n")
    });
    (url, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_made_found_in_trouble_and_put_right_on_the_page() {
    let kasbah = Installation::start(InstallationOptions::default()).await.unwrap();
    kasbah
        .cli(["project", "create", "shop/deploy", "--repository", "https://git.example.com/shop.git"])
        .unwrap();
    kasbah.cli(["user", "create", "ann", "--role", "maintainer"]).unwrap();
    let (url, refused) = receiver();
    let more = json!({ "receiver": url, "maintainer": token_of(&kasbah, "ann") });
    let given = given(&kasbah, &more);
    let happens = async {
        seen_enough(&kasbah, "one event").await;
        kasbah.cli(["user", "create", "ben", "--role", "viewer"]).unwrap();
        seen_enough(&kasbah, "take all").await;
        refused.lock().unwrap().clear();
    };
    let driven = script(SUBSCRIPTIONS);
    let (seen, ()) = tokio::join!(drive_chromium(&driven, &given), happens);
    let expected = json!({
        "command": format!("kasbah subscription create gone --webhook {url}/gone --types 'kasbah.user.*'"),
        "secret": true,
        "isShownOnce": true,
        "parked": true,
        "letter": "kasbah.user.created",
        "answer": true,
        "event": true,
        "resumed": true,
        "commands": [
            "kasbah subscription resume gone",
            "kasbah subscription pause gone",
            "kasbah subscription resume gone",
        ],
        "resent": true,
        "rotated": true,
        "deleted": true,
        "others": "Not for you: ",
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen.unwrap(), expected);
    assert!(kasbah.cli(["subscription", "ls"]).unwrap().contains("refuses"));
}
