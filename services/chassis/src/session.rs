//! A page's session in a browser: its token in a cookie that no script reads, and a word, made of the token, that stands in a header of each
//! of its requests. Nobody keeps sessions: the word follows from the token, and what ends the token ends the session.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use ring::hmac;

/// Where a request by a session has its word.
pub const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
/// What of a token the word is made for.
const PURPOSE: &[u8] = b"kasbah csrf 1";

/// The word of a token.
#[must_use]
pub fn csrf_token(token: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    URL_SAFE_NO_PAD.encode(hmac::sign(&key, PURPOSE))
}

/// Whether a request shows the word of a token.
#[must_use]
pub fn has_csrf_token(headers: &HeaderMap, token: &str) -> bool {
    let shown =
        headers.get(CSRF_HEADER).and_then(|word| URL_SAFE_NO_PAD.decode(word).ok()).unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    hmac::verify(&key, PURPOSE, &shown).is_ok()
}

/// Whether a token can stand in a cookie (RFC 6265, section 4.1.1: `cookie-octet`).
#[must_use]
pub fn fits_cookie(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_graphic() && !br#"",;\"#.contains(&byte))
}

/// The values of all cookies of a name, empty ones left out.
pub fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(of, value)| *of == name && !value.is_empty()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_word_is_that_of_one_token() {
        let mut headers = HeaderMap::new();
        assert!(!has_csrf_token(&headers, "one"));
        headers.insert(CSRF_HEADER, HeaderValue::from_str(&csrf_token("one")).unwrap());
        assert!(has_csrf_token(&headers, "one"));
        assert!(!has_csrf_token(&headers, "another"));
        headers.insert(CSRF_HEADER, HeaderValue::from_static("no word"));
        assert!(!has_csrf_token(&headers, "one"));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; ab=2;a=3; a="));
        headers.append(COOKIE, HeaderValue::from_static("a=4"));
        assert_eq!(cookies(&headers, "a").collect::<Vec<_>>(), ["1", "3", "4"]);
        assert!(fits_cookie("kasbah_p_a-b") && !fits_cookie("a;b") && !fits_cookie("a b"));
    }
}
