//! Whether an ID token is one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use events::requests::authz::ProviderKind;
use events::{Refusal, RefusalKind, Sha256, Timestamp};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::claims::Claims;
use super::file::{Settings, shortened};
use super::{Provider, Verified, signatures};

const LONGEST_TOKEN: usize = 16 * 1024;
/// How far the provider's clock may be from ours, in seconds.
const LEEWAY: i64 = 60;
/// How long a token is taken after it was issued, in seconds, whatever it says.
const LONGEST_VALIDITY: i64 = 24 * 3600;

/// A token before anything of it is believed.
struct Unverified<'a> {
    text: &'a str,
    /// What the signature is over.
    signed: &'a str,
    algorithm: Algorithm,
    key: Option<String>,
    issuer: String,
    audiences: Vec<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// Finds the provider of a token, and checks the token by that provider's keys and audience alone.
pub(super) async fn verify(providers: &[Provider], text: &str) -> Result<Verified, Refusal> {
    let token = Unverified::parse(text)?;
    let provider = token.provider(providers)?;
    let claims = token.signed_claims(provider).await?;
    check_times(&claims, Timestamp(provider.clock.now_millis()))?;
    if provider.kind == ProviderKind::People {
        check_party(&claims, &provider.settings, token.audiences.len())?;
    }
    let claims = Claims(&claims);
    Ok(Verified {
        provider: provider.name.clone(),
        kind: provider.kind,
        nonce: claims.0.get("nonce").and_then(Value::as_str).map(str::to_owned),
        audiences: token.audiences.clone(),
        once: token.once(&claims),
        subject: claims.subject(provider.kind)?,
        token_lifetime: provider.token_lifetime,
        said: claims.said(&provider.settings)?,
    })
}

/// A refusal of a token.
pub(super) fn wrong(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::Unauthenticated, message)
}

fn malformed() -> Refusal {
    wrong("the ID token is malformed: it must be a signed JSON web token with alg, iss and aud")
}

impl<'a> Unverified<'a> {
    fn parse(text: &'a str) -> Result<Self, Refusal> {
        if text.len() > LONGEST_TOKEN {
            return Err(wrong(format!("the ID token is longer than {} KiB", LONGEST_TOKEN / 1024)));
        }
        let (signed, _signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = signed.split_once('.').ok_or_else(malformed)?;
        let header: Header = decoded(header)?;
        let is_ours = header.typ.is_none_or(|typ| typ.eq_ignore_ascii_case("JWT"));
        if header.crit.is_some() || !is_ours {
            return Err(wrong("the ID token has an unsupported type: its typ must be JWT, without crit"));
        }
        let algorithm = header.alg.parse().ok().filter(|named| signatures::TAKEN.contains(named));
        let claims: Map<String, Value> = decoded(payload)?;
        Ok(Self {
            text,
            signed,
            algorithm: algorithm.ok_or_else(other_algorithm)?,
            key: header.kid,
            issuer: claims.get("iss").and_then(Value::as_str).ok_or_else(malformed)?.to_owned(),
            audiences: audiences(&claims).ok_or_else(malformed)?,
        })
    }

    fn provider<'p>(&self, providers: &'p [Provider]) -> Result<&'p Provider, Refusal> {
        let of_issuer: Vec<&Provider> =
            providers.iter().filter(|provider| provider.settings.issuer == self.issuer).collect();
        let for_us: Vec<&Provider> = of_issuer
            .iter()
            .filter(|provider| self.audiences.iter().any(|audience| provider.settings.takes(audience)))
            .copied()
            .collect();
        match (for_us.as_slice(), of_issuer.as_slice()) {
            ([one], _) => Ok(*one),
            (_, []) => Err(wrong(format!(
                "this server knows no identity provider whose issuer is {}: the operator must allow it",
                shortened(&self.issuer)
            ))),
            ([], of_issuer) => {
                let wanted: Vec<&str> =
                    of_issuer.iter().map(|provider| provider.settings.audience.as_str()).collect();
                Err(wrong(format!(
                    "the ID token is for another audience: its aud must be {}",
                    wanted.join(" or ")
                )))
            }
            (several, _) => {
                let names: Vec<&str> = several.iter().map(|provider| provider.name.as_str()).collect();
                Err(wrong(format!(
                    "the ID token is for several identity providers, {}: request one with a single audience",
                    names.join(" and ")
                )))
            }
        }
    }

    async fn signed_claims(&self, provider: &Provider) -> Result<Map<String, Value>, Refusal> {
        signatures::install();
        let keys = provider.keys.named(self.key.as_deref()).await?;
        let mut validation = Validation::new(self.algorithm);
        // Times are checked by the world's clock, and audience and issuer chose the provider.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let mut refusal = other_algorithm();
        for key in keys.iter().filter(|key| key.makes(self.algorithm)) {
            match decode::<Map<String, Value>>(self.text, &key.key, &validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => {
                    refusal = match error.kind() {
                        ErrorKind::Json(_)
                        | ErrorKind::Utf8(_)
                        | ErrorKind::Base64(_)
                        | ErrorKind::InvalidToken => malformed(),
                        _ => wrong(format!("the signature of the ID token is not one of {}", provider.name)),
                    };
                }
            }
        }
        Err(refusal)
    }

    /// Without the signature, since one text may have several that are right.
    fn once(&self, claims: &Claims<'_>) -> Sha256 {
        let id = claims.0.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty());
        Sha256::of([self.issuer.as_bytes(), b"\0", id.unwrap_or(self.signed).as_bytes()].concat().as_slice())
    }
}

fn other_algorithm() -> Refusal {
    let names: Vec<String> = signatures::TAKEN.iter().map(|algorithm| format!("{algorithm:?}")).collect();
    wrong(format!(
        "the ID token is signed with an unsupported algorithm, or not that of its key; supported are {}",
        names.join(", ")
    ))
}

fn decoded<T: DeserializeOwned>(part: &str) -> Result<T, Refusal> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed())?;
    serde_json::from_slice(&bytes).map_err(|_| malformed())
}

fn audiences(claims: &Map<String, Value>) -> Option<Vec<String>> {
    match claims.get("aud")? {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(several) => several.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// For whom the provider made the token, where that may be another than the audience (OpenID Connect Core 1.0, 3.1.3.7).
fn check_party(claims: &Map<String, Value>, settings: &Settings, audiences: usize) -> Result<(), Refusal> {
    let is_ours = match claims.get("azp") {
        None | Some(Value::Null) => audiences == 1,
        Some(party) => party.as_str().is_some_and(|party| settings.takes(party)),
    };
    if is_ours {
        Ok(())
    } else {
        let audience = &settings.audience;
        Err(wrong(format!("the ID token was issued for another client: its azp must be {audience}")))
    }
}

fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<(), Refusal> {
    let missing = |name: &str| {
        wrong(format!("the ID token has no {name}: it must state when it becomes valid and expires"))
    };
    let expires = seconds(claims, "exp")?.ok_or_else(|| missing("exp"))?;
    let issued = seconds(claims, "iat")?.ok_or_else(|| missing("iat"))?;
    let begins = seconds(claims, "nbf")?.map_or(issued, |begins| begins.max(issued));
    let ends = expires.min(issued.saturating_add(LONGEST_VALIDITY));
    let shown = |seconds: i64| Timestamp(seconds.saturating_mul(1000));
    if now >= shown(ends.saturating_add(LEEWAY)) {
        let message = format!(
            "the ID token expired at {}, and it is {now} here: request another from the provider",
            shown(ends)
        );
        return Err(wrong(message));
    }
    if shown(begins.saturating_sub(LEEWAY)) > now {
        let message = format!(
            "the ID token is not valid before {}, and it is {now} here: compare the clocks",
            shown(begins)
        );
        return Err(wrong(message));
    }
    Ok(())
}

/// A moment in seconds since the epoch, which may have a fraction.
fn seconds(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, Refusal> {
    let Some(value) = claims.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    #[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest integer that there is")]
    let moment = value.as_i64().or_else(|| value.as_f64().map(|fraction| fraction as i64));
    moment.map(Some).ok_or_else(|| wrong(format!("{name} of the ID token is not a number")))
}
