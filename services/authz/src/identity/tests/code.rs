use events::Sha256;
use events::requests::authz::{BeginSignIn, ExchangeCode};
use testkit::OidcProvider;

use super::*;

const ADA: &str = "ada@example.org";
const REDIRECT: &str = "http://127.0.0.1:1/api/session/callback";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

/// A real provider, at which the page is a client.
struct Company {
    provider: OidcProvider,
    providers: IdentityProviders,
}

impl Company {
    async fn start() -> Self {
        let provider = OidcProvider::start("kasbah-page").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identity.yaml");
        let issuer = provider.issuer();
        let text = format!(
            "identity_providers:\n  - {{name: company, kind: people, issuer: '{issuer}', audience: kasbah, page_client_id: kasbah-page}}\n  - {{name: other, kind: people, issuer: 'http://127.0.0.1:1', audience: kasbah}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let providers = IdentityProviders::load(&file, &World::real()).unwrap();
        Self { provider, providers }
    }

    /// Ada signs in; what the provider sends her back with.
    async fn code(&self, nonce: &str) -> ExchangeCode {
        use base64::Engine as _;
        let challenge =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::of(VERIFIER.as_bytes()).0);
        let wanted = BeginSignIn {
            provider: "company".to_owned(),
            redirect: REDIRECT.to_owned(),
            state: "a state".to_owned(),
            nonce: nonce.to_owned(),
            challenge,
        };
        let address = self.providers.sign_in_address(&wanted).await.unwrap();
        let mut browser = self.provider.browser().unwrap().stopping_at(REDIRECT);
        let page = browser.sign_in(&address, ADA).await.unwrap();
        let said = |name: &str| {
            page.url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
        };
        assert_eq!(said("state").as_deref(), Some("a state"));
        ExchangeCode {
            provider: "company".to_owned(),
            redirect: REDIRECT.to_owned(),
            code: said("code").unwrap(),
            verifier: VERIFIER.to_owned(),
            nonce: nonce.to_owned(),
            issuer: said("iss"),
        }
    }

    async fn refused(&self, given: &ExchangeCode) -> String {
        let refusal = self.providers.exchange(given).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid, "{refusal}");
        refusal.message
    }
}

#[tokio::test]
async fn a_code_is_good_once_for_the_sign_in_that_it_was_made_for() {
    let company = Company::start().await;
    let given = company.code("nonce").await;
    let token = company.providers.exchange(&given).await.unwrap();
    let verified = company.providers.verify(&token).await.unwrap();
    assert_eq!(verified.said, TokenSubject::Person { login: ADA.to_owned() });
    assert_eq!(verified.audiences, ["kasbah-page"]);
    assert!(company.refused(&given).await.contains("refused the code"));

    let given = company.code("nonce").await;
    let other = ExchangeCode { nonce: "another".to_owned(), ..given };
    assert_eq!(company.refused(&other).await, "the ID token is of another sign-in");
    let given = company.code("nonce").await;
    let other = ExchangeCode { verifier: format!("{VERIFIER}x"), ..given };
    assert!(company.refused(&other).await.contains("refused the code"));
    let given = company.code("nonce").await;
    let other = ExchangeCode { redirect: "http://127.0.0.1:2/api/session/callback".to_owned(), ..given };
    assert!(company.refused(&other).await.contains("refused the code"));
    let given = company.code("nonce").await;
    let other = ExchangeCode { issuer: Some("https://login.example".to_owned()), ..given };
    assert!(company.refused(&other).await.contains("another identity provider"));
}

#[tokio::test]
async fn only_a_provider_that_the_operator_allows_on_the_page_signs_people_in_there() {
    let company = Company::start().await;
    let views = company.providers.views();
    assert_eq!(views.iter().map(|view| view.on_page).collect::<Vec<_>>(), [true, false]);
    for name in ["other", "nobody"] {
        let wanted = BeginSignIn {
            provider: name.to_owned(),
            redirect: REDIRECT.to_owned(),
            state: String::new(),
            nonce: String::new(),
            challenge: String::new(),
        };
        let refusal = company.providers.sign_in_address(&wanted).await.unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("provider"), "{name}");
    }
}

#[tokio::test]
async fn a_provider_without_a_token_endpoint_signs_nobody_in_and_the_refusal_names_it() {
    let issuer = TokenIssuer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(issuer.ca_file(), folder.path().join("ca.pem")).unwrap();
    let file = folder.path().join("identity.yaml");
    let url = issuer.url();
    let text = format!(
        "identity_providers:\n  - {{name: jobs, kind: people, issuer: '{url}', audience: kasbah, page_client_id: kasbah-page, ca_file: ca.pem}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let providers = IdentityProviders::load(&file, &World::real()).unwrap();
    let wanted = BeginSignIn {
        provider: "jobs".to_owned(),
        redirect: REDIRECT.to_owned(),
        state: "a state".to_owned(),
        nonce: "nonce".to_owned(),
        challenge: "challenge".to_owned(),
    };
    let refusal = providers.sign_in_address(&wanted).await.unwrap_err();
    assert_eq!((refusal.kind, refusal.field.as_deref()), (RefusalKind::Invalid, Some("provider")));
    assert_eq!(
        refusal.message,
        "jobs signs nobody in on the page: its openid-configuration names no token_endpoint"
    );
}
