//! `kasbah login`.

use std::io::IsTerminal as _;

use events::Timestamp;
use events::requests::authz::{ProviderKind, ProviderView, SignIn};
use world::World;

use super::logout;
use crate::client::api::Api;
use crate::client::failure::Failure;
use crate::client::oidc::{DeviceCode, IdToken, Provider, open};
use crate::client::print::{Printer, Style, at, one_line};
use crate::client::settings::{Common, ProcessEnvironment, SettingsError, Target};
use crate::client::sign_in;
use crate::client::stored_login::StoredLogin;

/// How to sign in.
#[derive(Debug, clap::Args)]
pub struct Login {
    /// Identity provider, if the server allows several
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Organization, if you belong to several
    #[arg(long, value_name = "NAME")]
    organization: Option<String>,
    /// Sign in with a browser on this machine; the default if there is a screen
    #[arg(long, conflicts_with = "device")]
    browser: bool,
    /// Sign in on another device, with a code that is shown here; the default if there is no screen
    #[arg(long)]
    device: bool,
    /// Print the address and open no browser
    #[arg(long, conflicts_with = "device")]
    no_open: bool,
}

/// Where somebody signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Browser,
    Device,
}

/// Runs it.
///
/// # Errors
/// When nobody signs in, the server does not let them in, or the login cannot be kept.
pub async fn run(wanted: Login, common: &Common, world: &World) -> Result<(), Failure> {
    let surroundings = ProcessEnvironment::of_process();
    let target = Target::resolve(&common.connection, &surroundings, world)?;
    let folder = target.folder.clone().ok_or(SettingsError::NoFolder)?;
    let api = Api::without_token(&target.server, target.ca_file.as_deref(), world)?;
    let kept = target.login.as_ref().map(|login| login.provider.as_str());
    let view = choose(sign_in::providers(&api).await?, wanted.provider.as_deref(), kept)?;
    let name = view.name.clone();
    let token = id_token(&wanted, view, world).await?;
    let body = SignIn {
        id_token: token.text().to_owned(),
        organization: wanted.organization.clone(),
        project: None,
    };
    let signed_in = sign_in::sign_in(&api, &target.server, &body).await?;
    let ca_file =
        target.ca_file.as_ref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    let login = StoredLogin {
        server: target.server.to_string(),
        ca_file,
        organization: signed_in.organization_name,
        provider: name,
        login: token.login().map(one_line),
        token: signed_in.token.view.id,
        expires_at: signed_in.token.view.expires_at,
    };
    // The login that this one replaces would be a token that nobody knows of.
    if let Some(former) = logout::end(&folder, world).await?.filter(|former| !former.revoked) {
        eprintln!("{}", former.text());
    }
    let failure = |detail| Failure::Io { doing: format!("keep the login in {}", folder.display()), detail };
    login.write(&signed_in.token.secret, &folder, world).map_err(failure)?;
    if surroundings.token.is_some() || common.connection.token_file.is_some() {
        eprintln!("KASBAH_TOKEN, KASBAH_TOKEN_FILE and --token-file take precedence over the login.");
    }
    let style = Style::of_process(Timestamp(world.clock.now_millis()));
    Printer { format: common.output, style }.show(&login, text)
}

fn text(login: &StoredLogin, style: Style) -> String {
    let who = login.login.as_ref().map(|login| format!(" as {login}")).unwrap_or_default();
    let until = login.expires_at.map(|end| format!(" until {}", at(end, style.now))).unwrap_or_default();
    let server = login.server.trim_end_matches('/');
    format!("Signed in to {server}{who} (organization {}){until}", one_line(&login.organization))
}

/// The provider that is meant: the one that is named, or the only one, or that of the last login.
fn choose(all: Vec<ProviderView>, wanted: Option<&str>, kept: Option<&str>) -> Result<ProviderView, Failure> {
    let mut all: Vec<ProviderView> =
        all.into_iter().filter(|provider| provider.kind == ProviderKind::People).collect();
    let names: Vec<String> = all.iter().map(|provider| one_line(&provider.name)).collect();
    let named = |name: &str| all.iter().position(|provider| provider.name == name);
    let place = match wanted {
        Some(wanted) => named(wanted),
        None if all.len() == 1 => Some(0),
        None => kept.and_then(named),
    };
    if let Some(place) = place {
        return Ok(all.swap_remove(place));
    }
    if all.is_empty() {
        let message = "the server's operator allows no identity provider for users; ask for a personal token, and pass it \
                       with --token-file or KASBAH_TOKEN";
        return Err(Failure::Unsuccessful(message.to_owned()));
    }
    Err(Failure::usage(
        "--provider",
        format!("name one of those that the server allows: {}", names.join(", ")),
    ))
}

async fn id_token(wanted: &Login, view: ProviderView, world: &World) -> Result<IdToken, Failure> {
    let provider = Provider::discover(view, world).await?;
    match wanted.flow(has_screen(), provider.has_device_flow()) {
        Flow::Browser => {
            provider
                .by_browser(|url| {
                    eprintln!("Sign in with a browser on this machine:\n\n    {url}\n");
                    if !wanted.no_open && open(url) {
                        eprintln!("It should open automatically. Waiting for the sign-in.");
                    }
                    Ok(())
                })
                .await
        }
        Flow::Device => {
            provider
                .by_device(|elsewhere| {
                    eprintln!("{}", device_text(elsewhere));
                    Ok(())
                })
                .await
        }
    }
}

fn device_text(elsewhere: &DeviceCode) -> String {
    let DeviceCode { address, code, complete } = elsewhere;
    let complete =
        complete.as_ref().map(|complete| format!("\nor open\n\n    {complete}\n")).unwrap_or_default();
    format!(
        "On any device, open\n\n    {address}\n\nand enter the code {code}\n{complete}\nWaiting for the sign-in."
    )
}

/// Whether a browser on this machine would be seen by whoever types.
fn has_screen() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_typed = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_typed && (cfg!(target_os = "macos") || set("DISPLAY") || set("WAYLAND_DISPLAY"))
}

impl Login {
    fn flow(&self, has_screen: bool, has_device_flow: bool) -> Flow {
        match (self.browser || self.no_open, self.device) {
            (true, _) => Flow::Browser,
            (_, true) => Flow::Device,
            _ if has_screen || !has_device_flow => Flow::Browser,
            _ => Flow::Device,
        }
    }
}

#[cfg(test)]
mod tests {
    use events::TokenId;
    use uuid::Uuid;

    use super::*;

    fn provider(name: &str, kind: ProviderKind) -> ProviderView {
        ProviderView {
            name: name.to_owned(),
            kind,
            issuer: "https://id.example.org".to_owned(),
            audience: "kasbah".to_owned(),
            scopes: Vec::new(),
            client_secret: None,
            on_page: false,
            certificate_authority: None,
            trust: None,
        }
    }

    #[test]
    fn the_provider_is_the_named_one_or_the_only_one_or_the_one_of_before() {
        let [one, two] = ["one", "two"].map(|name| provider(name, ProviderKind::People));
        let jobs = provider("gitlab", ProviderKind::GitlabJobs);
        let name = |all: &[&ProviderView], wanted, kept| {
            let all = all.iter().map(|provider| (*provider).clone()).collect();
            choose(all, wanted, kept).map(|provider| provider.name).map_err(|failure| failure.to_string())
        };
        assert_eq!(name(&[&jobs, &one], None, None).as_deref(), Ok("one"));
        assert_eq!(name(&[&one, &two], Some("two"), Some("one")).as_deref(), Ok("two"));
        assert_eq!(name(&[&one, &two], None, Some("two")).as_deref(), Ok("two"));
        let several = name(&[&one, &jobs, &two], None, Some("gone")).unwrap_err();
        assert_eq!(several, "--provider: name one of those that the server allows: one, two");
        assert!(name(&[&one], Some("gitlab"), None).unwrap_err().starts_with("--provider"));
        assert!(name(&[&jobs], None, None).unwrap_err().contains("KASBAH_TOKEN"));
    }

    #[test]
    fn the_browser_is_used_where_somebody_would_see_it() {
        let login =
            |browser, device, no_open| Login { provider: None, organization: None, browser, device, no_open };
        let default = login(false, false, false);
        assert_eq!(default.flow(true, true), Flow::Browser);
        assert_eq!(default.flow(false, true), Flow::Device);
        assert_eq!(default.flow(false, false), Flow::Browser);
        assert_eq!(login(true, false, false).flow(false, true), Flow::Browser);
        assert_eq!(login(false, false, true).flow(false, true), Flow::Browser);
        assert_eq!(login(false, true, false).flow(true, false), Flow::Device);
    }

    #[test]
    fn it_says_where_as_whom_and_until_when() {
        let login = StoredLogin {
            server: "https://kasbah.example.org:8440/".to_owned(),
            ca_file: None,
            organization: "acme".to_owned(),
            provider: "company".to_owned(),
            login: Some("ada@example.org".to_owned()),
            token: TokenId(Uuid::nil()),
            expires_at: Some(Timestamp(8 * 3_600_000)),
        };
        let said = text(&login, Style { colour: false, now: Timestamp(0) });
        assert_eq!(
            said,
            "Signed in to https://kasbah.example.org:8440 as ada@example.org (organization acme) until \
             1970-01-01T08:00:00.000Z (in 8h)"
        );
    }
}
