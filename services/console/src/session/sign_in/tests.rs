use super::*;

#[test]
fn only_a_path_of_the_page_is_come_back_to() {
    for own in ["/", "/delivery", "/environments/1?t=2026-01-31T12:00:00Z&view=table", "/apis"] {
        assert!(is_own_path(own), "{own}");
    }
    let long = format!("/{}", "a".repeat(LONGEST_PATH));
    let others = [
        "",
        "delivery",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "/\t/evil.example",
        "/a b",
        "/a\r\nSet-Cookie: x=y",
        "/api/session",
        "/api",
        "/ü",
        "javascript:alert(1)",
        &long,
    ];
    for other in others {
        assert!(!is_own_path(other), "{other:?}");
    }
}

#[test]
fn an_origin_is_written_as_browsers_do() {
    for (url, origin) in [
        ("https://kasbah.example.com", "https://kasbah.example.com"),
        ("https://kasbah.example.com:443/base", "https://kasbah.example.com"),
        ("https://kasbah.example.com:8440/", "https://kasbah.example.com:8440"),
        ("http://[::1]:80", "http://[::1]"),
    ] {
        assert_eq!(origin_of(url).as_deref(), Some(origin));
    }
    assert_eq!(origin_of("kasbah.example.com"), None);
}

fn attempt(to: &str) -> Attempt {
    let (provider, to) = ("company".to_owned(), to.to_owned());
    Attempt { secret: [7; 32], begun: 1, provider, organization: None, to }
}

fn kept_by(kept: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let cookie = format!("__Host-kasbah-sign-in={kept}");
    headers.insert(header::COOKIE, HeaderValue::from_str(&cookie).unwrap());
    headers
}

/// The state is over all that the browser keeps: nothing of it can change in between.
#[test]
fn a_sign_in_ends_only_as_it_was_begun() {
    let kept = packed(&attempt("/delivery")).unwrap();
    let derived = attempt("/delivery").derived(&kept);
    let found = begun_here(&kept_by(&kept), Some(&derived.state)).unwrap();
    assert_eq!(found.0, attempt("/delivery"));
    assert_eq!((found.1.nonce, found.1.verifier), (derived.nonce.clone(), derived.verifier.clone()));
    let all = [&derived.state, &derived.nonce, &derived.verifier];
    assert!(all.iter().all(|one| one.len() == 43), "{all:?}");
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    let other = packed(&attempt("/agents")).unwrap();
    assert!(begun_here(&kept_by(&other), Some(&derived.state)).is_none());
    assert!(begun_here(&kept_by(&kept), Some("state")).is_none());
    assert!(begun_here(&kept_by(&kept), None).is_none());
    assert!(begun_here(&HeaderMap::new(), Some(&derived.state)).is_none());
}

#[test]
fn what_a_provider_says_is_taken_by_name() {
    let answer = answer_in("code=a%2Bb&state=s+t&session_state=x&iss=https%3A%2F%2Fid.example");
    assert_eq!(answer.code.as_deref(), Some("a+b"));
    assert_eq!(answer.state.as_deref(), Some("s t"));
    assert_eq!(answer.iss.as_deref(), Some("https://id.example"));
    assert!(answer.error.is_none());
}
