use std::sync::Arc;

use events::requests::authz::ProviderKind;
use parking_lot::Mutex;
use testkit::{Browser, OidcProvider};
use tokio::sync::oneshot;

use super::*;

const CLIENT: &str = "kasbah";
const ADA: &str = "ada@example.org";

fn view(issuer: String) -> ProviderView {
    ProviderView {
        name: "company".to_owned(),
        kind: ProviderKind::People,
        issuer,
        audience: CLIENT.to_owned(),
        scopes: vec!["openid".to_owned(), "email".to_owned()],
        client_secret: None,
        on_page: false,
        certificate_authority: None,
        trust: None,
    }
}

async fn provider(of: &OidcProvider) -> Provider {
    Provider::discover(view(of.issuer()), &World::real()).await.unwrap()
}

/// Signs in by a browser on this machine; `person` is what somebody does with the address that is shown.
async fn by_browser<F: Future<Output = ()>>(
    provider: &Provider,
    person: impl FnOnce(String) -> F,
) -> Result<IdToken, Failure> {
    let (shown, seen) = oneshot::channel();
    let shown = Mutex::new(Some(shown));
    let show = |url: &Url| {
        shown.lock().take().unwrap().send(url.to_string()).unwrap();
        Ok(())
    };
    let person = async { person(seen.await.unwrap()).await };
    tokio::join!(provider.by_browser(show), person).0
}

#[tokio::test]
async fn somebody_signs_in_with_a_browser_on_this_machine() {
    let real = OidcProvider::start(CLIENT).await.unwrap();
    let provider = provider(&real).await;
    let mut browser = real.browser().unwrap();
    let token = by_browser(&provider, async |address| {
        let page = browser.sign_in(&address, ADA).await.unwrap();
        assert!(page.text.starts_with("You are signed in"), "{}", page.text);
        assert!(page.url.as_str().starts_with("http://127.0.0.1:"), "{}", page.url);
    });
    let token = token.await.unwrap();
    assert_eq!(token.login(), Some(ADA));
    assert_eq!(token.text().split('.').count(), 3);
}

#[tokio::test]
async fn somebody_signs_in_on_another_device() {
    let real = OidcProvider::start(CLIENT).await.unwrap();
    let provider = provider(&real).await;
    assert!(provider.has_device_flow());
    let (shown, seen) = oneshot::channel();
    let show = |elsewhere: &DeviceCode| {
        shown.send(elsewhere.clone()).unwrap();
        Ok(())
    };
    let mut browser = real.browser().unwrap();
    let person = async {
        let elsewhere = seen.await.unwrap();
        assert!(elsewhere.address.ends_with("/device") && !elsewhere.code.is_empty(), "{elsewhere:?}");
        browser.sign_in(&elsewhere.complete.unwrap(), ADA).await.unwrap()
    };
    let (token, page) = tokio::join!(provider.by_device(show), person);
    assert_eq!(token.unwrap().login(), Some(ADA), "{}", page.text);
}

#[tokio::test]
async fn somebody_who_says_no_is_not_signed_in() {
    let real = OidcProvider::start(CLIENT).await.unwrap();
    let provider = provider(&real).await;
    let mut browser = real.browser().unwrap();
    let refused = by_browser(&provider, async |address| {
        let page = browser.refuse(&address).await.unwrap();
        assert!(page.text.starts_with("You are not signed in"), "{}", page.text);
    });
    let refused = refused.await.err().unwrap();
    assert_eq!(refused.code(), crate::exit::DENIED);
    let said = refused.to_string();
    assert_eq!(said, "the identity provider reports access_denied: End-User aborted interaction");
}

#[tokio::test]
async fn a_code_without_its_verifier_and_a_client_that_is_not_known_are_refused() {
    let real = OidcProvider::start(CLIENT).await.unwrap();
    let provider = provider(&real).await;
    let code = Arc::new(Mutex::new(String::new()));
    let mut browser: Browser = real.browser().unwrap();
    let taken = by_browser(&provider, async |address| {
        // Somebody who reads the address off the screen and puts a challenge of their own into it.
        let mut forged = Url::parse(&address).unwrap();
        let pairs: Vec<(String, String)> = forged.query_pairs().into_owned().collect();
        let own = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        forged.query_pairs_mut().clear().extend_pairs(
            pairs.iter().map(|(name, value)| (name, if name == "code_challenge" { own } else { value })),
        );
        let page = browser.sign_in(forged.as_str(), ADA).await.unwrap();
        *code.lock() = page.url.query().unwrap_or_default().to_owned();
    });
    let said = taken.await.err().unwrap().to_string();
    assert!(said.contains("invalid_grant"), "{said}");
    assert!(code.lock().contains("code="), "{}", code.lock());

    let mut other = view(real.issuer());
    other.audience = "stranger".to_owned();
    let other = Provider::discover(other, &World::real()).await.unwrap();
    let said = other.by_device(|_| Ok(())).await.err().unwrap().to_string();
    assert!(said.contains("the identity provider reports invalid_client"), "{said}");
}

#[tokio::test]
async fn a_provider_that_is_not_who_it_should_be_is_not_asked_further() {
    let real = OidcProvider::start(CLIENT).await.unwrap();
    let discover = async |issuer: String| {
        let found = Provider::discover(view(issuer), &World::real()).await;
        found.err().unwrap().to_string()
    };
    let said = discover(format!("{}/", real.issuer())).await;
    assert!(said.contains("issuer is"), "{said}");
    assert!(discover(real.issuer().replace("http:", "https:")).await.contains("identity provider"));
    let said = discover("http://id.example.org".to_owned()).await;
    assert!(said.contains("must use https"), "{said}");
    let nobody = format!("http://127.0.0.1:{}", testkit::free_port().unwrap());
    let unreachable = Provider::discover(view(nobody), &World::real()).await.err().unwrap();
    assert_eq!(unreachable.code(), crate::exit::UNAVAILABLE, "{unreachable}");
}
