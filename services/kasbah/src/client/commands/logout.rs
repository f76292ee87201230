//! `kasbah logout`.

use std::path::Path;

use events::request::RefusalKind;
use events::requests::authz::TokenView;
use events::{Timestamp, TokenId};
use serde::Serialize;
use world::World;

use super::credential::kubectl;
use crate::client::api::Api;
use crate::client::failure::Failure;
use crate::client::print::{Printer, Style};
use crate::client::settings::{
    Common, ConnectionArgs, ProcessEnvironment, Settings, SettingsError, parse_server,
};
use crate::client::stored_login::StoredLogin;

/// Nothing more is to be said.
#[derive(Debug, clap::Args)]
pub struct Logout {}

/// A login that is no more.
#[derive(Debug, Serialize)]
pub struct Ended {
    /// Where it was.
    pub server: String,
    /// The token's id.
    pub token: TokenId,
    /// Whether the token is dead.
    pub revoked: bool,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// Why it could not be revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When nobody is signed in, or the files cannot be removed.
pub async fn run(_: Logout, common: &Common, world: &World) -> Result<(), Failure> {
    let folder = common.connection.data.clone().or_else(|| ProcessEnvironment::of_process().data);
    let folder = folder.ok_or(SettingsError::NoFolder)?;
    if let Some(given) = &common.connection.server {
        let given = parse_server(given)?;
        let kept = StoredLogin::read(&folder, world)?;
        if kept.is_some_and(|kept| kept.server != given.as_str()) {
            return Err(SettingsError::NotSignedIn { server: given }.into());
        }
    }
    let ended = end(&folder, world).await?;
    let ended = ended.ok_or_else(|| Failure::Unsuccessful("no user is signed in".to_owned()))?;
    let style = Style::of_process(Timestamp(world.clock.now_millis()));
    Printer { format: common.output, style }.show(&ended, |ended, _| ended.text())
}

/// Ends the login of a folder, if there is one: revokes its token as far as the server can be asked, and forgets it.
///
/// # Errors
/// When the files cannot be removed.
pub async fn end(folder: &Path, world: &World) -> Result<Option<Ended>, Failure> {
    let Some(login) = StoredLogin::read(folder, world)? else { return Ok(None) };
    let outcome = match login.has_ended(world) {
        true => Ok(()),
        false => revoke(&login, folder, world).await,
    };
    let failure = |detail| Failure::Io { doing: format!("remove the login in {}", folder.display()), detail };
    StoredLogin::remove(folder, world).map_err(failure)?;
    Ok(Some(Ended {
        revoked: outcome.is_ok(),
        reason: outcome.err().map(|failure| failure.to_string()),
        server: login.server.trim_end_matches('/').to_owned(),
        token: login.token,
        expires_at: login.expires_at,
    }))
}

async fn revoke(login: &StoredLogin, folder: &Path, world: &World) -> Result<(), Failure> {
    let args = ConnectionArgs {
        server: Some(login.server.clone()),
        token_file: Some(StoredLogin::token_file(folder)),
        ca_file: login.ca_file.clone(),
        data: Some(folder.to_owned()),
    };
    let settings = Settings::resolve(&args, &ProcessEnvironment::default(), world)?;
    kubectl::forget(&settings, world);
    let api = Api::new(&settings, world)?;
    let revoked: Result<TokenView, Failure> = api.delete(&["tokens", &login.token.to_string()]).await;
    match revoked {
        // Somebody was faster.
        Err(Failure::Settings(SettingsError::LoginEnded { .. })) => Ok(()),
        Err(Failure::Refused { refusal, .. }) if refusal.kind == RefusalKind::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}

impl Ended {
    /// What people are told.
    #[must_use]
    pub fn text(&self) -> String {
        let signed_out = format!("Signed out of {}.", self.server);
        let Some(reason) = &self.reason else { return signed_out };
        let end =
            self.expires_at.map_or_else(|| "until it is revoked".to_owned(), |end| format!("until {end}"));
        format!("{signed_out} Its token {} could not be revoked, and stays valid {end}: {reason}", self.token)
    }
}
