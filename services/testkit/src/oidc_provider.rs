//! An identity provider: panva's oidc-provider, on loopback, with pages on which everybody is who they say.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response, Url};

use crate::node_js::OIDC_PROVIDER;
use crate::{Folder, Process, eventually, free_port, tls_trusting};

const PROGRAM: &str = include_str!("../oidc-provider/provider.mjs");
const START_LIMIT: Duration = Duration::from_secs(30);
/// More redirects than any sign-in has.
const MOST_PAGES: usize = 20;

/// A running provider; ends with this handle.
#[derive(Debug)]
pub struct OidcProvider {
    port: u16,
    _process: Process,
    _folder: Folder,
}

impl OidcProvider {
    /// A provider that has begun to answer, with one public client.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(client_id: &str) -> Result<Self> {
        let folder = Folder::temporary()?;
        let port = free_port()?;
        let mut command = OIDC_PROVIDER.program(folder.path(), "provider.mjs", PROGRAM)?;
        command.arg(port.to_string()).arg(client_id);
        let mut process = Process::spawn("oidc-provider", command, &folder.path().join("provider.log"))?;
        let discovery = format!("http://127.0.0.1:{port}/.well-known/openid-configuration");
        let client = http()?;
        eventually(START_LIMIT, || async {
            client.get(&discovery).send().await?.error_for_status().map(|_| ())
        })
        .await;
        process.must_run()?;
        Ok(Self { port, _process: process, _folder: folder })
    }

    /// What its tokens name as `iss`.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A browser in which nobody is signed in.
    ///
    /// # Errors
    /// When there can be none.
    pub fn browser(&self) -> Result<Browser> {
        Ok(Browser { http: http()?, cookies: Vec::new(), stop: None })
    }
}

fn http() -> Result<Client> {
    // It speaks plain HTTP on this machine only, but a client is not built without TLS.
    let tls = tls_trusting(&[])?;
    let builder =
        Client::builder().tls_backend_preconfigured(tls).redirect(reqwest::redirect::Policy::none());
    builder.timeout(START_LIMIT).build().context("no HTTP client")
}

/// A person's browser, as far as the provider's pages need one: it follows redirects, keeps cookies, and submits forms.
#[derive(Debug)]
pub struct Browser {
    http: Client,
    /// Path, name, value.
    cookies: Vec<(String, String, String)>,
    /// Addresses that begin so are not opened.
    stop: Option<String>,
}

/// A page, and where it is.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its address.
    pub url: Url,
    /// What it says.
    pub text: String,
}

impl Browser {
    /// The same browser, which opens no address that begins so: it gives a page without a text instead.
    #[must_use]
    pub fn stopping_at(self, address: &str) -> Self {
        Self { stop: Some(address.to_owned()), ..self }
    }

    /// Opens an address and signs in as `login` on each page that asks, and agrees to all that is asked. The last page.
    ///
    /// # Errors
    /// When a page is none of those that are known.
    pub async fn sign_in(&mut self, address: &str, login: &str) -> Result<Page> {
        let mut page = self.open(address).await?;
        for _ in 0..MOST_PAGES {
            let Some(form) = Form::on(&page) else { return Ok(page) };
            page = self.submit(&form, login).await?;
        }
        bail!("the pages of a sign-in have no end: {}", page.url)
    }

    /// Opens an address, and says no on the first page that can be left so.
    ///
    /// # Errors
    /// When a page is none of those that are known.
    pub async fn refuse(&mut self, address: &str) -> Result<Page> {
        let page = self.open(address).await?;
        self.open(&format!("{}/abort", page.url)).await
    }

    /// Opens an address and goes where it leads.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn open(&mut self, address: &str) -> Result<Page> {
        let url = Url::parse(address).with_context(|| format!("{address} is no address"))?;
        let request = self.http.get(url.clone());
        self.follow(url, request).await
    }

    async fn submit(&mut self, form: &Form, login: &str) -> Result<Page> {
        let mut body = url_of("http://form")?;
        for (name, value) in &form.fields {
            let value = if name == "login" { login } else { value };
            body.query_pairs_mut().append_pair(name, value);
        }
        let request = self.http.post(form.action.clone()).body(body.query().unwrap_or_default().to_owned());
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.follow(form.action.clone(), request).await
    }

    async fn follow(&mut self, mut url: Url, mut request: RequestBuilder) -> Result<Page> {
        for _ in 0..MOST_PAGES {
            let response = request.header(COOKIE, self.cookies_for(&url)).send().await?;
            self.keep_cookies(&response);
            let Some(next) = response.headers().get(LOCATION) else {
                let status = response.status();
                let text = response.text().await?;
                ensure!(status.is_success(), "{url}: {status}: {text}");
                return Ok(Page { url, text });
            };
            url = url.join(next.to_str()?)?;
            if self.stop.as_ref().is_some_and(|stop| url.as_str().starts_with(stop)) {
                return Ok(Page { url, text: String::new() });
            }
            request = self.http.get(url.clone());
        }
        bail!("redirects without an end: {url}")
    }

    fn cookies_for(&self, url: &Url) -> String {
        let meant = self.cookies.iter().filter(|(path, ..)| url.path().starts_with(path));
        meant.map(|(_, name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn keep_cookies(&mut self, response: &Response) {
        for cookie in response.headers().get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok())
        {
            let mut parts = cookie.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
            let path = parts.find_map(|part| part.strip_prefix("path=")).unwrap_or("/").to_owned();
            self.cookies.retain(|(kept_path, kept, _)| (kept_path.as_str(), kept.as_str()) != (&path, name));
            if !value.is_empty() {
                self.cookies.push((path, name.to_owned(), value.to_owned()));
            }
        }
    }
}

fn url_of(text: &str) -> Result<Url> {
    Url::parse(text).with_context(|| format!("{text} is no address"))
}

/// A form that is to be submitted.
struct Form {
    action: Url,
    fields: Vec<(String, String)>,
}

impl Form {
    /// The first form of a page.
    fn on(page: &Page) -> Option<Self> {
        let (_, rest) = page.text.split_once("<form")?;
        let (form, _) = rest.split_once("</form>").unwrap_or((rest, ""));
        let action = page.url.join(&attribute(form, "action")?).ok()?;
        let inputs = form.split("<input").skip(1).filter_map(|input| {
            let input = input.split('>').next()?;
            Some((attribute(input, "name")?, attribute(input, "value").unwrap_or_default()))
        });
        Some(Self { action, fields: inputs.collect() })
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    Some(rest.split('"').next()?.replace("&amp;", "&"))
}
