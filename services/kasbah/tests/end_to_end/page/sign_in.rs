//! People sign in on the page with a real identity provider, in a real browser.

use serde_json::json;
use testkit::{Folder, OidcProvider, axe, drive_chromium, free_port};

use super::{PICTURES, script};
use crate::login::{ADA, trusting};

const SIGN_IN: &str = include_str!("sign_in.mjs");

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_on_the_page_with_their_identity_provider() {
    let folder = Folder::temporary().unwrap();
    let provider = OidcProvider::start("kasbah").await.unwrap();
    // A maintainer may see her own name.
    let kasbah = trusting(&provider, folder.path(), "page_client_id: kasbah", "maintainer").await;
    std::fs::create_dir_all(PICTURES).unwrap();
    let given = json!({
        "port": free_port().unwrap(),
        "origin": kasbah.api().replace("https://", "http://"),
        "issuer": provider.issuer(),
        "person": ADA,
        "axe": axe().unwrap(),
        "pictures": PICTURES,
    });
    let seen = drive_chromium(&script(SIGN_IN), &given).await.unwrap();
    let expected = json!({
        "whereTo": "/agents?tab=sees",
        "user": ADA,
        "scriptsSee": "",
        "kept": ["kasbah-console"],
        "again": "Not signed in: this browser began no such sign-in, or it was ended already.",
        "elsewhere": "Not signed in: this browser began no such sign-in, or it was ended already.",
        "stranger": true,
        "refusal": true,
        "problems": [],
        "violations": [],
    });
    assert_eq!(seen, expected);
    let tokens = kasbah.json(["token", "list", "--user", ADA]).unwrap();
    let live = tokens.as_array().unwrap().iter().filter(|token| token["revoked_at"].is_null());
    assert_eq!(live.count(), 0, "signed out: {tokens:#}");
}
