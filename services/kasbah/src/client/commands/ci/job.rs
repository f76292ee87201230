//! Who a job is: by its token, or by an ID token of the CI system that runs it.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use events::requests::authz::{ProviderKind, ProviderView, SignIn};
use reqwest::Url;
use serde::Deserialize;
use world::World;
use zeroize::Zeroizing;

use crate::client::api::Api;
use crate::client::failure::Failure;
use crate::client::oidc::ProviderClient;
use crate::client::session::Session;
use crate::client::settings::{Common, ProcessEnvironment, SettingsError, Target};
use crate::client::sign_in;

/// How a job shows who it is, where it has no token of Kasbah.
#[derive(Debug, Clone, clap::Args)]
pub struct JobArgs {
    /// File with an ID token of the job; KASBAH_ID_TOKEN may contain the token itself, and GitHub Actions with the permission
    /// `id-token: write` needs neither
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    id_token_file: Option<PathBuf>,
    /// Identity provider for GitHub Actions, if the server allows several
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Organization, if several have a project with the job's repository
    #[arg(long, value_name = "NAME")]
    organization: Option<String>,
    /// Project, if several have the job's repository: group/name
    #[arg(long)]
    project: Option<String>,
}

/// What a CI system gives its jobs to show who they are.
#[derive(Clone, Default)]
pub struct Runner {
    /// `KASBAH_ID_TOKEN`.
    pub id_token: Option<Zeroizing<String>>,
    /// `ACTIONS_ID_TOKEN_REQUEST_URL` and `ACTIONS_ID_TOKEN_REQUEST_TOKEN`: where GitHub Actions gives ID tokens.
    pub github: Option<(String, Zeroizing<String>)>,
}

impl Runner {
    /// Of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let github = variable("ACTIONS_ID_TOKEN_REQUEST_URL").zip(variable("ACTIONS_ID_TOKEN_REQUEST_TOKEN"));
        Self {
            id_token: variable("KASBAH_ID_TOKEN").map(Zeroizing::new),
            github: github.map(|(url, token)| (url, Zeroizing::new(token))),
        }
    }
}

/// What GitHub Actions answers.
#[derive(Deserialize)]
struct Issued {
    value: String,
}

/// A session of the job, and its token if it was signed in for it.
///
/// # Errors
/// When nothing shows who it is, or the server does not let it in.
pub async fn open(
    args: &JobArgs,
    runner: &Runner,
    common: &Common,
    surroundings: &ProcessEnvironment,
    world: &World,
) -> Result<(Session, Option<Zeroizing<String>>), Failure> {
    let has_token = surroundings.token.is_some() || common.connection.token_file.is_some();
    let shows_itself = args.id_token_file.is_some() || runner.id_token.is_some() || runner.github.is_some();
    if !shows_itself || (has_token && args.id_token_file.is_none()) {
        return Ok((Session::open(common, surroundings, world)?, None));
    }
    let target = Target::resolve(&common.connection, surroundings, world)?;
    let api = Api::without_token(&target.server, target.ca_file.as_deref(), world)?;
    let id_token = id_token(args, runner, &api, world).await?;
    let wanted = SignIn {
        id_token: id_token.trim().to_owned(),
        organization: args.organization.clone(),
        project: args.project.clone(),
    };
    let signed_in = sign_in::sign_in(&api, &target.server, &wanted).await?;
    let token = Zeroizing::new(signed_in.token.secret);
    let surroundings = ProcessEnvironment { token: Some(token.clone()), ..surroundings.clone() };
    let mut common = common.clone();
    common.connection.token_file = None;
    Ok((Session::open(&common, &surroundings, world)?, Some(token)))
}

async fn id_token(
    args: &JobArgs,
    runner: &Runner,
    api: &Api,
    world: &World,
) -> Result<Zeroizing<String>, Failure> {
    if let Some(path) = &args.id_token_file {
        return read(path, world);
    }
    if let Some(token) = &runner.id_token {
        return Ok(token.clone());
    }
    let Some((url, bearer)) = &runner.github else {
        return Err(Failure::usage("--id-token-file", "give the job's ID token"));
    };
    let provider = provider(sign_in::providers(api).await?, args.provider.as_deref())?;
    let wrong = |detail: String| Failure::usage("ACTIONS_ID_TOKEN_REQUEST_URL", detail);
    let mut url = Url::parse(url).map_err(|error| wrong(format!("must be a URL: {error}")))?;
    url.query_pairs_mut().append_pair("audience", &provider.audience);
    let answer = ProviderClient::new(None, world)?.get_as(&url, bearer).await?;
    let issued: Issued = serde_json::from_slice(&answer.body).map_err(|_| {
        Failure::Unsuccessful(format!(
            "GitHub Actions gave no ID token: it answered with status {}",
            answer.status
        ))
    })?;
    Ok(Zeroizing::new(issued.value))
}

fn read(path: &Path, world: &World) -> Result<Zeroizing<String>, Failure> {
    let setting = "--id-token-file";
    let bytes = world.disk.read(path).map_err(|detail| SettingsError::File {
        setting,
        file: path.to_owned(),
        detail,
    })?;
    let bytes = Zeroizing::new(bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| Failure::usage(setting, "contains no text"))?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}

/// The provider of GitHub's jobs that is meant.
fn provider(all: Vec<ProviderView>, wanted: Option<&str>) -> Result<ProviderView, Failure> {
    let of_github = all.into_iter().filter(|provider| provider.kind == ProviderKind::GithubJobs);
    let mut meant: Vec<ProviderView> =
        of_github.filter(|provider| wanted.is_none_or(|wanted| provider.name == wanted)).collect();
    match (meant.pop(), meant.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Failure::usage(
            "--provider",
            "the server allows no such identity provider for GitHub jobs; `kasbah provider list` shows them",
        )),
        (Some(_), false) => {
            Err(Failure::usage("--provider", "select one: the server allows several for GitHub jobs"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str, kind: ProviderKind) -> ProviderView {
        ProviderView {
            name: name.to_owned(),
            kind,
            issuer: String::new(),
            audience: format!("{name}-audience"),
            scopes: Vec::new(),
            client_secret: None,
            on_page: false,
            certificate_authority: None,
            trust: None,
        }
    }

    #[test]
    fn githubs_audience_is_that_of_the_only_provider_of_its_jobs_or_of_the_one_that_is_named() {
        let people = view("company", ProviderKind::People);
        let github = view("github", ProviderKind::GithubJobs);
        let other = view("enterprise", ProviderKind::GithubJobs);
        let meant = |all: &[&ProviderView], wanted| {
            provider(all.iter().map(|view| (*view).clone()).collect(), wanted).map(|view| view.audience)
        };
        assert_eq!(meant(&[&people, &github], None).unwrap(), "github-audience");
        assert!(meant(&[&people], None).is_err());
        assert!(meant(&[&github, &other], None).unwrap_err().to_string().contains("select one"));
        assert_eq!(meant(&[&github, &other], Some("enterprise")).unwrap(), "enterprise-audience");
        assert!(meant(&[&people, &github], Some("company")).is_err());
    }
}
