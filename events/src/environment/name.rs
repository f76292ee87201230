//! Names of environments, and what is derived from them: slug and tier, by GitLab's rules.

use super::{LONGEST_NAME, Tier};

/// Longest slug.
const LONGEST_SLUG: usize = 24;
/// What is left of a name in front of the suffix.
const PREFIX: usize = 17;
/// Digits of the suffix.
const SUFFIX: usize = 6;
/// The suffix is a number in this base.
const BASE: u64 = 36;

/// Words in a name, in lower case, that show its tier: the first tier with one of them counts.
const WORDS: &[(Tier, &[&str])] = &[
    (Tier::Development, &["dev", "review", "trunk"]),
    (Tier::Testing, &["test", "tst", "int", "accept", "acpt", "qa", "qc", "control", "quality"]),
    (Tier::Staging, &["stag", "stg", "model", "modl", "pre", "demo", "non"]),
    (Tier::Production, &["prod", "prd", "live"]),
];

impl Tier {
    /// The tier that an environment's name suggests.
    #[must_use]
    pub fn guess(name: &str) -> Self {
        let name = name.to_lowercase();
        let found = WORDS.iter().find(|(_, words)| words.iter().any(|word| name.contains(word)));
        found.map_or(Self::Other, |(tier, _)| *tier)
    }
}

/// Whether a text is a name of an environment.
///
/// # Errors
/// What is allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_/.${} ".contains(letter);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fits) {
        return Err(format!("must be 1 to {LONGEST_NAME} letters, digits, spaces and - _ / . $ {{ }}"));
    }
    if name.starts_with(['/', ' ']) || name.ends_with(['/', ' ']) {
        return Err("must not begin or end with a slash or a space".to_owned());
    }
    Ok(())
}

/// The name as it fits into labels and host names: at most 24 lower-case letters, digits and hyphens that begin with a letter. A name that
/// had to be changed for that gets a suffix out of its SHA-256, so that two names rarely share a slug.
#[must_use]
pub fn slug(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars().map(|letter| letter.to_ascii_lowercase()) {
        let letter = if letter.is_ascii_alphanumeric() { letter } else { '-' };
        if text.is_empty() && !letter.is_ascii_alphabetic() {
            text.push_str("env-");
        }
        if letter != '-' || !text.ends_with('-') {
            text.push(letter);
        }
    }
    if text.is_empty() {
        text.push_str("env-");
    }
    if text.len() <= LONGEST_SLUG && text == name {
        return text.strip_suffix('-').map(str::to_owned).unwrap_or(text);
    }
    text.truncate(PREFIX);
    if !text.ends_with('-') {
        text.push('-');
    }
    text + &suffix(name)
}

/// The last digits of the name's SHA-256 as a number.
fn suffix(name: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let modulus = BASE.pow(6);
    let mut rest = digest.as_ref().iter().fold(0, |sum, byte| (sum * 256 + u64::from(*byte)) % modulus);
    let mut digits = Vec::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        digits.push(
            u32::try_from(rest % BASE).ok().and_then(|digit| char::from_digit(digit, 36)).unwrap_or('0'),
        );
        rest /= BASE;
    }
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by GitLab's rule elsewhere (Ruby and Python).
    #[test]
    fn slugs_are_gitlabs() {
        for (name, expected) in [
            ("production", "production"),
            ("PRODUCTION", "production-vl4voz"),
            ("review/1-foo", "review-1-foo-9tdj0u"),
            ("1-foo", "env-1-foo-1k46wz"),
            ("1/foo", "env-1-foo-t4rmb4"),
            ("foo-", "foo"),
            ("foo--bar", "foo-bar-q006cp"),
            ("foo**bar", "foo-bar-3jfdn1"),
            ("*-foo", "env-foo-i1o6om"),
            ("staging-12345678-", "staging-12345678"),
            ("staging-12345678-01234567", "staging-12345678-f21q2q"),
            ("staging-1234567890", "staging-1234567890"),
            ("staging-12345678901234567890", "staging-123456789-kjy6jl"),
            ("", "env-qhkd3p"),
            ("Review/Fix login", "review-fix-login-mrfb8b"),
            ("env.eu/west", "env-eu-west-9p8n71"),
        ] {
            assert_eq!(slug(name), expected, "{name}");
        }
    }

    #[test]
    fn tiers_are_guessed_as_gitlab_does() {
        for (name, expected) in [
            ("production", Tier::Production),
            ("PROD-eu", Tier::Production),
            ("live", Tier::Production),
            ("prd", Tier::Production),
            ("staging", Tier::Staging),
            ("stg", Tier::Staging),
            ("pre-production", Tier::Staging),
            ("non-prod", Tier::Staging),
            ("demo", Tier::Staging),
            ("model", Tier::Staging),
            ("testing", Tier::Testing),
            ("integration", Tier::Testing),
            ("acceptance", Tier::Testing),
            ("acpt", Tier::Testing),
            ("qa", Tier::Testing),
            ("QC/eu", Tier::Testing),
            ("review/login", Tier::Development),
            ("dev", Tier::Development),
            ("trunk", Tier::Development),
            ("dev-test", Tier::Development),
            ("blue", Tier::Other),
        ] {
            assert_eq!(Tier::guess(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_has_only_letters_that_gitlab_allows() {
        for good in ["production", "review/fix-1", "a.b", "$x", "eu west"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for wrong in ["", "/a", "a/", " a", "a*", "ä", &"a".repeat(256)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}
