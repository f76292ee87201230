//! The web page: its files, and the sessions of its users.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde_json::{Value, json};
use testkit::build_web_page;

use crate::serving::{Console, HOME, answer};

const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
/// What the first view may load of scripts, compressed.
const MAXIMUM_SCRIPTS: u64 = 60_000;

/// All files below a folder, by their paths in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz" || ending == "br")
}

#[test]
fn the_checked_in_page_is_what_its_sources_give() {
    let built = build_web_page().unwrap();
    let (fresh, kept) = (files(&built.path().join("dist")), files(&Path::new(WEB).join("dist")));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    let advice = "the page is stale: run npm ci and npm run build in services/console/web";
    assert_eq!(names(&kept), names(&fresh), "{advice}");
    for (path, bytes) in &fresh {
        // Another release of Node.js compresses otherwise, to the same.
        let is_same = is_compressed(path) || kept[path] == *bytes;
        assert!(is_same, "{}: {advice}", path.display());
    }
}

#[test]
fn the_first_view_loads_few_scripts() {
    let dist = Path::new(WEB).join("dist");
    let index = fs::read_to_string(dist.join("index.html")).unwrap();
    // Those that the document names, and those that these begin with.
    let named = index.split("=\"/").skip(1).map(|part| part.split('"').next().unwrap());
    let scripts = named.filter(|file| Path::new(file).extension().is_some_and(|ending| ending == "js"));
    let size = |script: &str| fs::metadata(dist.join(format!("{script}.gz"))).unwrap().len();
    let all: u64 = scripts.map(size).sum();
    assert!((1..=MAXIMUM_SCRIPTS).contains(&all), "{all} bytes");
}

#[test]
fn colours_are_named_in_one_file() {
    for (path, bytes) in files(&Path::new(WEB).join("src")) {
        let text = String::from_utf8(bytes).unwrap();
        let is_code = path.extension().is_some_and(|ending| ending != "svg");
        if !is_code || path.ends_with("tokens.css") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let is_colour = |word: &str| {
                let digits = word.trim_start_matches('#');
                let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                word.starts_with('#') && is_hexadecimal && [3, 4, 6, 8].contains(&digits.len())
            };
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '#');
            let found = words.into_iter().any(is_colour) || line.contains("rgb(") || line.contains("hsl(");
            assert!(!found, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[tokio::test]
async fn the_page_is_served_beside_the_api_and_loads_nothing_from_elsewhere() {
    let console = Console::start().await;
    let client = &console.client;
    let page = format!("http://{}/", console.address);
    let get = |url: &str, accept: &str, encoding: &str| {
        client.get(url).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, encoding).send()
    };
    let index = get(&page, "text/html", "identity").await.unwrap();
    assert_eq!(index.status(), StatusCode::OK);
    let said = |name: &str| index.headers()[name].to_str().unwrap().to_owned();
    let policy = said("content-security-policy");
    for rule in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let asked = policy.split("; ").find_map(|rule| rule.strip_prefix("connect-src ")).unwrap();
    let https = ["https://127.0.0.1:8443", "http://127.0.0.1:8443", "http://localhost:8443"];
    let sockets = ["wss://127.0.0.1:8443", "ws://127.0.0.1:8443", "ws://localhost:8443"];
    let origins: Vec<&str> = ["'self'"].into_iter().chain(https).chain(sockets).collect();
    assert_eq!(asked.split(' ').collect::<Vec<_>>(), origins);
    assert_eq!(
        (said("x-content-type-options"), said("referrer-policy")),
        ("nosniff".into(), "no-referrer".into())
    );
    assert_eq!(said("cache-control"), "no-cache");
    let text = index.text().await.unwrap();
    let script = text.split("src=\"").nth(1).and_then(|part| part.split('"').next()).unwrap();
    let script = format!("http://{}{script}", console.address);
    for (encoding, expected) in [("gzip, deflate, br", "br"), ("gzip", "gzip"), ("br;q=0, gzip", "gzip")] {
        let answered = get(&script, "*/*", encoding).await.unwrap();
        assert_eq!(answered.headers()[header::CONTENT_ENCODING], expected, "{encoding}");
        assert!(answered.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
    }
    let plain = get(&script, "*/*", "identity").await.unwrap();
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    assert!(plain.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/javascript"));
    let view = get(&format!("{page}environments/1"), "text/html", "identity").await.unwrap();
    assert_eq!(view.text().await.unwrap(), text);
    for path in ["api/v1/nothing", "api", "assets/none.js", "hooks/v2/x"] {
        let missing = get(&format!("{page}{path}"), "text/html", "identity").await.unwrap();
        let (status, refusal) = answer(missing).await;
        assert_eq!((status, &refusal["kind"]), (StatusCode::NOT_FOUND, &json!("not-found")), "{path}");
    }
    // The same over TLS, for those who know the certificate.
    let over_tls = console.client.get(console.url("/")).send().await.unwrap();
    assert_eq!(over_tls.text().await.unwrap(), text);
    console.stop().await;
}

/// A request of a page that has a session.
fn with(request: RequestBuilder, cookie: &str, word: Option<&str>) -> RequestBuilder {
    let request = request.header(header::COOKIE, cookie);
    match word {
        Some(word) => request.header("x-csrf-token", word),
        None => request,
    }
}

#[tokio::test]
async fn a_session_is_a_cookie_and_a_word() {
    let console = Console::start().await;
    let client = &console.client;
    let (host, port) = console.address.rsplit_once(':').unwrap();
    let url = |path: &str| format!("http://{host}:{port}{path}");
    let refused = client.post(url("/api/session")).bearer_auth("kasbah_p_nobody").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let begun = client.post(url("/api/session")).bearer_auth(HOME).send().await.unwrap();
    assert_eq!(begun.status(), StatusCode::CREATED);
    let cookie = begun.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert!(pair.starts_with(&format!("kasbah-console-{port}=kasbah_p_")), "{cookie}");
    for attribute in ["Path=/api", "HttpOnly", "SameSite=Strict", "Max-Age="] {
        assert!(attributes.contains(attribute), "{cookie}");
    }
    let (_, shown) = answer(begun).await;
    let word = shown["session"]["csrf_token"].as_str().unwrap().to_owned();
    assert!(!shown.to_string().contains(pair.split_once('=').unwrap().1), "no script gets to see the token");

    let me = |word: Option<&str>| answer_to(with(client.get(url("/api/v1/me")), pair, word));
    assert_eq!(me(None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(me(Some("d29yZA")).await.0, StatusCode::UNAUTHORIZED);
    let (status, seen) = me(Some(&word)).await;
    assert_eq!((status, &seen["organization"]), (StatusCode::OK, &json!(console.home.organization)));

    let show = |site: &'static str| {
        answer_to(with(client.get(url("/api/session")).header("sec-fetch-site", site), pair, None))
    };
    let session = show("same-origin").await.1["session"].clone();
    assert_eq!(session["csrf_token"], word.as_str());
    assert_eq!(session["clusters_url"], "http://127.0.0.1:8443");
    assert_eq!(show("same-site").await.0, StatusCode::FORBIDDEN);
    let (status, nobody) = answer_to(client.get(url("/api/session"))).await;
    assert_eq!((status, &nobody["session"]), (StatusCode::OK, &Value::Null));

    let end =
        |word: Option<&str>| with(client.request(Method::DELETE, url("/api/session")), pair, word).send();
    assert_eq!(end(None).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let ended = end(Some(&word)).await.unwrap();
    assert_eq!(ended.status(), StatusCode::NO_CONTENT);
    assert!(ended.headers()[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    let names: Vec<String> = console.behind.take().into_iter().map(|seen| seen.name).collect();
    assert!(names.contains(&"authz.revoke-token".to_owned()), "{names:?}");
    console.stop().await;
}

#[tokio::test]
async fn over_tls_the_cookie_is_of_this_host_alone() {
    let console = Console::start().await;
    let begun = console.client.post(console.url("/api/session")).bearer_auth(HOME).send().await.unwrap();
    let cookie = begun.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-kasbah-console=") && cookie.contains("Path=/; Secure;"), "{cookie}");
    assert_eq!(answer(begun).await.1["session"]["clusters_url"], "https://127.0.0.1:8443");
    console.stop().await;
}

/// Each cookie that an answer sets, by its name.
fn set_by(answer: &Response) -> BTreeMap<String, String> {
    let all = answer.headers().get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap());
    let pairs = all.map(|cookie| cookie.split_once('=').unwrap());
    pairs.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
}

#[tokio::test]
async fn only_the_page_itself_begins_a_sign_in_and_comes_back_to_itself() {
    let console = Console::start().await;
    let origin = format!("http://{}", console.address);
    let begin = async |origin: Option<&str>, site: &str, to: &str| {
        let body = json!({ "provider": "company", "to": to });
        let mut request = console.client.post(format!("http://{}/api/session/provider", console.address));
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let answered = request.header("sec-fetch-site", site).json(&body).send().await.unwrap();
        let (status, refusal) = answer(answered).await;
        let asked = console.behind.take().iter().any(|seen| seen.name == "authz.begin-sign-in");
        (status, refusal["field"].as_str().map(str::to_owned), asked)
    };
    let forbidden = (StatusCode::FORBIDDEN, None, false);
    assert_eq!(begin(None, "same-origin", "/").await, forbidden);
    assert_eq!(begin(Some("https://evil.example"), "same-origin", "/").await, forbidden);
    assert_eq!(begin(Some(&origin), "cross-site", "/").await, forbidden);
    for astray in ["//evil.example", "https://evil.example", "/\\evil.example", "/api/session", "x"] {
        let invalid = (StatusCode::BAD_REQUEST, Some("to".to_owned()), false);
        assert_eq!(begin(Some(&origin), "same-origin", astray).await, invalid, "{astray}");
    }
    // authz is asked; in this test it answers no such request.
    let (status, _, asked) = begin(Some(&origin), "same-origin", "/delivery?t=2026-01-31T12:00:00Z").await;
    assert_eq!((status, asked), (StatusCode::NOT_FOUND, true));
    console.stop().await;
}

#[tokio::test]
async fn a_return_from_a_provider_without_a_sign_in_is_refused_and_the_reason_shown_once() {
    let console = Console::start().await;
    let tls = (*console.tls).clone();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let url = |path: &str| format!("http://{}{path}", console.address);
    let back = client.get(url("/api/session/callback?code=a&state=b")).send().await.unwrap();
    assert_eq!(back.status(), StatusCode::SEE_OTHER);
    assert_eq!(back.headers()[header::LOCATION], "/sign-in?to=%2F");
    assert_eq!(back.headers()[header::CACHE_CONTROL], "no-store");
    let kept = set_by(&back);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let (name, rest) = kept.first_key_value().unwrap();
    assert!(name.starts_with("kasbah-refused-") && rest.contains("HttpOnly; SameSite=Strict"), "{kept:?}");
    let cookie = format!("{name}={}", rest.split(';').next().unwrap());
    let shown = client.get(url("/api/session")).header(header::COOKIE, cookie).send().await.unwrap();
    assert!(set_by(&shown)[name].contains("Max-Age=0"));
    let (_, shown) = answer(shown).await;
    assert_eq!(shown["refused"]["message"], "this browser began no such sign-in, or it was ended already");
    assert!(!console.behind.take().iter().any(|seen| seen.name.starts_with("authz.exchange")));
    console.stop().await;
}

async fn answer_to(request: RequestBuilder) -> (StatusCode, Value) {
    answer(request.send().await.unwrap()).await
}
