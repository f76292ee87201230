use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPairComponents, PublicKeyComponents};
use ring::signature::{
    self, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding,
    RsaKeyPair,
};

use super::*;

/// The key of RFC 7515, appendix A.2, and a signature by it of the text there.
const N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const D: &str = "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ";
const P: &str = "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc";
const Q: &str = "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc";
const DP: &str = "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCjn12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0";
const DQ: &str = "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnwgjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU";
const QI: &str = "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U";
const SIGNED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn rsa_key() -> RsaKeyPair {
    let components = KeyPairComponents {
        public_key: PublicKeyComponents { n: bytes(N), e: vec![1, 0, 1] },
        d: bytes(D),
        p: bytes(P),
        q: bytes(Q),
        dP: bytes(DP),
        dQ: bytes(DQ),
        qInv: bytes(QI),
    };
    RsaKeyPair::from_components(&components).unwrap()
}

fn rsa_signed(key: &RsaKeyPair, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(encoding, &SystemRandom::new(), message, &mut signature).unwrap();
    signature
}

fn rsa_published(id: &str) -> Value {
    json!({ "kty": "RSA", "kid": id, "n": N, "e": "AQAB" })
}

/// What is wrong with a token of a good job that is signed in another way.
async fn refused_when_signed(scene: &Scene, header: Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let token = scene.issuer.sign_by(&header, gitlab_job(), sign).unwrap();
    let refusal = scene.providers.verify(&token).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unauthenticated);
    refusal.message
}

#[test]
fn the_signature_of_the_standard_is_right_and_no_other() {
    signatures::install();
    let key = jsonwebtoken::DecodingKey::from_rsa_components(N, "AQAB").unwrap();
    let verify = |signature: &str, algorithm| {
        jsonwebtoken::crypto::verify(signature, SIGNED.as_bytes(), &key, algorithm).unwrap()
    };
    assert!(verify(SIGNATURE, jsonwebtoken::Algorithm::RS256));
    assert!(!verify(SIGNATURE, jsonwebtoken::Algorithm::RS384));
    assert!(!verify(SIGNATURE, jsonwebtoken::Algorithm::PS256));
    assert!(!verify(&SIGNATURE.replacen('c', "d", 1), jsonwebtoken::Algorithm::RS256));
}

#[test]
fn nothing_is_signed_and_no_key_is_short() {
    signatures::install();
    let secret = jsonwebtoken::EncodingKey::from_secret(b"secret");
    assert!(jsonwebtoken::encode(&jsonwebtoken::Header::default(), &json!({}), &secret).is_err());
    // 1024 bits, which are not looked at any further.
    let short = jsonwebtoken::DecodingKey::from_rsa_raw_components(&[0xAB; 128], &[1, 0, 1]);
    let signature = URL_SAFE_NO_PAD.encode([1; 128]);
    let verified =
        jsonwebtoken::crypto::verify(&signature, b"text", &short, jsonwebtoken::Algorithm::RS256).unwrap();
    assert!(!verified);
}

#[tokio::test]
async fn every_kind_of_rsa_signature_is_taken() {
    let scene = Scene::new();
    scene.issuer.publish(rsa_published("rsa"));
    let key = rsa_key();
    let encodings: [(&str, &'static dyn RsaEncoding); 6] = [
        ("RS256", &signature::RSA_PKCS1_SHA256),
        ("RS384", &signature::RSA_PKCS1_SHA384),
        ("RS512", &signature::RSA_PKCS1_SHA512),
        ("PS256", &signature::RSA_PSS_SHA256),
        ("PS384", &signature::RSA_PSS_SHA384),
        ("PS512", &signature::RSA_PSS_SHA512),
    ];
    for (algorithm, encoding) in encodings {
        let header = json!({ "alg": algorithm, "kid": "rsa" });
        let sign = |message: &[u8]| rsa_signed(&key, encoding, message);
        let token = scene.issuer.sign_by(&header, gitlab_job(), sign).unwrap();
        assert!(scene.providers.verify(&token).await.is_ok(), "{algorithm}");
    }
}

#[tokio::test]
async fn a_key_that_says_its_algorithm_makes_no_other_signatures() {
    let scene = Scene::new();
    scene.issuer.publish(with(rsa_published("only-rs256"), "alg", json!("RS256")));
    let key = rsa_key();
    let header = json!({ "alg": "RS512", "kid": "only-rs256" });
    let sign = |message: &[u8]| rsa_signed(&key, &signature::RSA_PKCS1_SHA512, message);
    let message = refused_when_signed(&scene, header, sign).await;
    assert!(message.contains("algorithm"), "{message}");
}

#[tokio::test]
async fn ed25519_and_p384_are_taken() {
    let scene = Scene::new();
    let ed25519 = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(ed25519.public_key());
    scene.issuer.publish(json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": x }));
    let random = SystemRandom::new();
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &random).unwrap();
    let p384 = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, made.as_ref(), &random).unwrap();
    let (x, y) = p384.public_key().as_ref()[1..].split_at(48);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    scene.issuer.publish(json!({ "kty": "EC", "crv": "P-384", "kid": "p384", "x": x, "y": y }));

    let header = json!({ "alg": "EdDSA", "kid": "ed" });
    let sign = |message: &[u8]| ed25519.sign(message).as_ref().to_vec();
    let token = scene.issuer.sign_by(&header, gitlab_job(), sign).unwrap();
    assert!(scene.providers.verify(&token).await.is_ok());

    let header = json!({ "alg": "ES384", "kid": "p384" });
    let sign = |message: &[u8]| p384.sign(&random, message).unwrap().as_ref().to_vec();
    let token = scene.issuer.sign_by(&header, gitlab_job(), sign).unwrap();
    assert!(scene.providers.verify(&token).await.is_ok());

    let mixed_up = json!({ "alg": "ES256", "kid": "p384" });
    let message = refused_when_signed(&scene, mixed_up, |_| vec![1; 64]).await;
    assert!(message.contains("algorithm"), "{message}");
}

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let scene = Scene::new();
    for algorithm in ["none", "None", "HS1", ""] {
        let message = refused_when_signed(&scene, json!({ "alg": algorithm }), |_| Vec::new()).await;
        assert!(message.contains("unsupported algorithm"), "{algorithm}: {message}");
    }
    assert!(scene.issuer.requests().is_empty());
    let good = scene.issuer.sign(gitlab_job()).unwrap();
    let bare = format!("{}.", good.rsplit_once('.').unwrap().0);
    assert!(scene.providers.verify(&bare).await.unwrap_err().message.contains("signature"));
}

#[tokio::test]
async fn a_public_key_is_nobodys_secret() {
    let scene = Scene::new();
    let public = scene.issuer.key();
    scene.issuer.publish(json!({ "kty": "oct", "kid": "oct", "k": public["x"] }));
    for id in ["key-1", "oct"] {
        let header = json!({ "alg": "HS256", "kid": id });
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &bytes(public["x"].as_str().unwrap()));
        let sign = |message: &[u8]| hmac::sign(&secret, message).as_ref().to_vec();
        let message = refused_when_signed(&scene, header, sign).await;
        assert!(message.contains("unsupported algorithm"), "{message}");
    }
}

#[tokio::test]
async fn a_token_that_was_changed_is_refused() {
    let scene = Scene::new();
    let token = scene.issuer.sign(gitlab_job()).unwrap();
    assert!(scene.providers.verify(&format!(" {token}\n")).await.is_ok());
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&bytes(parts[1])).unwrap();
    claims["project_path"] = json!("shop/web/other");
    let changed = URL_SAFE_NO_PAD.encode(claims.to_string());
    let forged = format!("{}.{changed}.{}", parts[0], parts[2]);
    let refusal = scene.providers.verify(&forged).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unauthenticated);
    assert_eq!(refusal.message, "the signature of the ID token is not one of gitlab");
    let other = TokenIssuer::start().unwrap();
    let stranger = other.sign(with(gitlab_job(), "iss", json!(scene.issuer.url()))).unwrap();
    assert!(scene.providers.verify(&stranger).await.unwrap_err().message.contains("signature"));
}

#[tokio::test]
async fn what_is_no_token_is_refused_before_anybody_is_asked() {
    let scene = Scene::new();
    let good = scene.issuer.sign(gitlab_job()).unwrap();
    for bad in ["", ".", "..", "a.b.c", &good.replace('.', ""), &format!("{good}.{good}"), "e30.e30.e30"] {
        let refusal = scene.providers.verify(bad).await.unwrap_err();
        assert!(refusal.message.contains("malformed"), "{bad}: {refusal}");
        assert_eq!(refusal.kind, RefusalKind::Unauthenticated);
    }
    let long = with(gitlab_job(), "sub", json!("s".repeat(13_000)));
    assert!(scene.refused(long).await.contains("longer than 16 KiB"));
    for header in [json!({ "typ": "at+jwt" }), json!({ "crit": ["b64"], "b64": false })] {
        let header = with(header, "alg", json!("ES256"));
        let message = refused_when_signed(&scene, header, |_| vec![0; 64]).await;
        assert!(message.contains("unsupported type"), "{message}");
    }
    assert!(scene.issuer.requests().is_empty());
}

#[tokio::test]
async fn the_issuer_and_the_audience_choose_the_provider() {
    let scene = Scene::new();
    let elsewhere = scene.refused(with(gitlab_job(), "iss", json!("https://evil.example\n"))).await;
    assert!(elsewhere.contains("whose issuer is https://evil.example\\n:"), "{elsewhere}");
    let slash = format!("{}/", scene.issuer.url());
    assert!(
        scene.refused(with(gitlab_job(), "iss", json!(slash))).await.contains("knows no identity provider")
    );
    let audience = scene.refused(with(gitlab_job(), "aud", json!("https://other.example"))).await;
    assert!(audience.contains(AUDIENCE) && !audience.contains("other.example"), "{audience}");
    let listed = with(gitlab_job(), "aud", json!(["https://other.example", AUDIENCE]));
    assert_eq!(scene.verified(listed).await.unwrap().provider, "gitlab");
    let several = with(gitlab_job(), "aud", json!([AUDIENCE, "kasbah"]));
    assert!(scene.refused(several).await.contains("gitlab and company"));
    let nobody = IdentityProviders::none().verify(&scene.issuer.sign(gitlab_job()).unwrap()).await;
    assert!(nobody.unwrap_err().message.contains("knows no identity provider"));
}

#[tokio::test]
async fn a_token_is_taken_in_its_time() {
    let scene = Scene::new();
    let now = scene.now();
    let at = |exp: i64, iat: i64| with(with(gitlab_job(), "exp", json!(exp)), "iat", json!(iat));
    assert!(scene.verified(at(now - 50, now - 100)).await.is_ok());
    assert!(scene.refused(at(now - 61, now - 100)).await.contains("expired at 20"));
    assert!(scene.verified(at(now + 300, now + 50)).await.is_ok());
    assert!(scene.refused(at(now + 300, now + 70)).await.contains("not valid before"));
    let later = with(at(now + 300, now), "nbf", json!(now + 70));
    assert!(scene.refused(later).await.contains("not valid before"));
    let fraction = with(gitlab_job(), "exp", json!(1e300));
    assert!(scene.verified(fraction).await.is_ok());
    let year = 365 * 24 * 3600;
    assert!(scene.verified(at(now + year, now - 23 * 3600)).await.is_ok());
    assert!(scene.refused(at(now + year, now - 25 * 3600)).await.contains("expired"));
    for (name, value) in [("exp", Value::Null), ("iat", Value::Null), ("exp", json!("soon"))] {
        assert!(scene.refused(with(gitlab_job(), name, value)).await.contains(name));
    }
}

#[tokio::test]
async fn the_same_token_is_the_same_however_it_is_brought() {
    let scene = Scene::new();
    let once = |claims: Value| async { scene.verified(claims).await.unwrap().once };
    let named = with(gitlab_job(), "jti", json!("one"));
    assert_eq!(once(named.clone()).await, once(with(named, "ref", json!("other"))).await);
    assert_ne!(once(gitlab_job()).await, once(gitlab_job()).await);
    // Without an id, two signatures of one text are one token.
    let now = scene.now();
    let bare = with(with(with(gitlab_job(), "jti", Value::Null), "iat", json!(now)), "exp", json!(now + 60));
    let tokens = [scene.issuer.sign(bare.clone()).unwrap(), scene.issuer.sign(bare).unwrap()];
    assert_ne!(tokens[0], tokens[1]);
    let first = scene.providers.verify(&tokens[0]).await.unwrap().once;
    assert_eq!(first, scene.providers.verify(&tokens[1]).await.unwrap().once);
}
