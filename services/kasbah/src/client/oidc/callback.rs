//! The port of this machine to which a browser brings a provider's answer (RFC 8252, section 7.3).

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use world::World;
use world::network::{Connection, Listener};

use super::trouble::ProviderRefusal;

/// How long somebody may take to sign in.
pub const WAIT: Duration = Duration::from_secs(5 * 60);
const PATH: &str = "/callback";
/// Browsers open some connections that they do not use.
const MOST_CONNECTIONS: usize = 32;
const SIGNED_IN: &str = "You are signed in. You may close this page.\n";
const REFUSED: &str = "You are not signed in: the terminal shows the reason. You may close this page.\n";

/// The listening port.
pub struct Callback {
    listener: Box<dyn Listener>,
}

/// What a browser brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackParameters {
    /// The code, or the provider's error.
    pub code: Result<String, ProviderRefusal>,
    /// Who says so, if they name themselves.
    pub issuer: Option<String>,
}

impl Callback {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn listen(world: &World) -> std::io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Self { listener: world.network.listen(address).await? })
    }

    /// The URL that a browser is to be sent to.
    ///
    /// # Errors
    /// When the port is not known.
    pub fn address(&self) -> std::io::Result<String> {
        let port = self.listener.local_address()?.port();
        Ok(format!("http://{}:{port}{PATH}", Ipv4Addr::LOCALHOST))
    }

    /// Waits for the answer that has this state; all else is answered that nothing is there.
    ///
    /// # Errors
    /// When the port is gone.
    pub async fn answer(&self, state: &str) -> std::io::Result<CallbackParameters> {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                    connections.push(serve(accepted?.0, state));
                }
                Some(said) = connections.next() => if let Some(said) = said { return Ok(said) },
            }
        }
    }
}

/// Answers one request; done when its answer is sent, so that the person sees it.
async fn serve(connection: Box<dyn Connection>, state: &str) -> Option<CallbackParameters> {
    let said = Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let found = read(&request, state);
        let (status, page) = match &found {
            Some(CallbackParameters { code: Ok(_), .. }) => (StatusCode::OK, SIGNED_IN),
            Some(_) => (StatusCode::OK, REFUSED),
            None => (StatusCode::NOT_FOUND, "Not found.\n"),
        };
        if found.is_some() {
            *said.lock() = found;
        }
        let mut response = Response::new(page.to_owned());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(connection), service);
    // What was said counts, also when the browser did not wait for the page.
    drop(served.await);
    said.into_inner()
}

fn read(request: &Request<Incoming>, state: &str) -> Option<CallbackParameters> {
    if request.method() != Method::GET || request.uri().path() != PATH {
        return None;
    }
    said(request.uri().query()?, state)
}

fn said(query: &str, state: &str) -> Option<CallbackParameters> {
    let mut fields: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if fields.get("state").is_none_or(|given| given != state) {
        return None;
    }
    let issuer = fields.remove("iss");
    let error_description = fields.remove("error_description");
    let code = match (fields.remove("error"), fields.remove("code")) {
        (Some(error), _) => Err(ProviderRefusal { error, error_description }),
        (None, Some(code)) => Ok(code),
        (None, None) => return None,
    };
    Some(CallbackParameters { code, issuer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_our_own_question_counts() {
        let code = said("code=a%2Fb&state=ours&iss=https%3A%2F%2Fid.example.org", "ours").unwrap();
        assert_eq!(code.code, Ok("a/b".to_owned()));
        assert_eq!(code.issuer.as_deref(), Some("https://id.example.org"));
        for other in ["code=a&state=theirs", "code=a", "state=ours", "", "error=access_denied"] {
            assert_eq!(said(other, "ours"), None, "{other}");
        }
    }

    #[test]
    fn a_refusal_is_shown_without_what_a_terminal_would_obey() {
        let refused = said("error=access_denied&error_description=no%1b%5B2J%0Away&state=s", "s").unwrap();
        assert_eq!(refused.code.unwrap_err().to_string(), "access_denied: no [2J way");
    }

    #[tokio::test]
    async fn strangers_are_told_that_nothing_is_here_and_the_answer_is_taken() {
        let callback = Callback::listen(&World::real()).await.unwrap();
        let url = callback.address().unwrap();
        let silent = tokio::net::TcpStream::connect(url.trim_start_matches("http://").trim_end_matches(PATH));
        let _silent = silent.await.unwrap();
        // A client is not built without TLS, though this is plain HTTP.
        let tls = testkit::tls_trusting(&[]).unwrap();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap();
        let ask = |tail: &str| client.get(url.replace(PATH, tail)).send();
        let asked = async {
            for tail in [
                "/callback?code=a&state=theirs",
                "/callback/?code=a&state=s",
                "/?code=a&state=s",
                "/favicon.ico",
            ] {
                assert_eq!(ask(tail).await.unwrap().status(), 404, "{tail}");
            }
            let posted = client.post(format!("{url}?code=a&state=s")).send().await;
            assert_eq!(posted.unwrap().status(), 404);
            let page = ask("/callback?code=a&state=s").await.unwrap();
            assert!(page.text().await.unwrap().contains("You are signed in"));
        };
        let (said, ()) = tokio::join!(callback.answer("s"), asked);
        assert_eq!(said.unwrap().code, Ok("a".to_owned()));
    }
}
