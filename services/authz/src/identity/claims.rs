//! What the claims of an ID token mean.

use events::Refusal;
use events::directory::{JobEnvironment, JobFacts};
use events::requests::authz::ProviderKind;
use serde_json::{Map, Value};

use super::TokenSubject;
use super::file::Settings;
use super::verify::wrong;
use crate::checks;
use crate::model::identity::JobClaims;

/// Longest text in characters.
const MAXIMUM_TEXT: usize = 256;
/// A job's subject is put together of several texts.
const MAXIMUM_SUBJECT_OF_JOB: usize = 2048;
/// What only tokens of jobs have. A job may choose any audience, also one of people where both have the same issuer.
const OF_JOBS: &[&str] = &["job_id", "pipeline_id", "project_path", "run_id", "repository_owner"];

/// The claims of a token whose signature is right.
pub(super) struct Claims<'a>(pub(super) &'a Map<String, Value>);

impl Claims<'_> {
    /// The provider's own id of the person or job.
    pub(super) fn subject(&self, kind: ProviderKind) -> Result<String, Refusal> {
        let maximum = if kind == ProviderKind::People { MAXIMUM_TEXT } else { MAXIMUM_SUBJECT_OF_JOB };
        self.text_up_to("sub", maximum)?.ok_or_else(|| missing("sub"))
    }

    /// Of whom they speak.
    pub(super) fn said(&self, settings: &Settings) -> Result<TokenSubject, Refusal> {
        match settings.kind {
            ProviderKind::People => self.person(settings),
            ProviderKind::GitlabJobs => self.job_of_gitlab(settings),
            ProviderKind::GithubJobs => self.job_of_github(settings),
        }
    }

    fn person(&self, settings: &Settings) -> Result<TokenSubject, Refusal> {
        if OF_JOBS.iter().any(|claim| self.0.contains_key(*claim)) {
            return Err(wrong(format!("the ID token is a job's, and {} is for people", settings.name)));
        }
        let claim = settings.login_claim.as_str();
        let Some(login) = self.text(claim)? else {
            return Err(wrong(format!(
                "the ID token has no {claim}, which is the login name: the operator must request it with scopes of {}, or set another login_claim",
                settings.name
            )));
        };
        if claim == "email" && !self.is_true("email_verified") {
            return Err(wrong(format!(
                "the identity provider does not report the e-mail address as verified (email_verified): verify it there, or ask the operator to set another login_claim of {}",
                settings.name
            )));
        }
        let login = login.to_lowercase();
        checks::login(claim, &login).map_err(|refusal| {
            wrong(format!("{claim} of the ID token is not a login name: it {}", refusal.message))
        })?;
        Ok(TokenSubject::Person { login })
    }

    fn job_of_gitlab(&self, settings: &Settings) -> Result<TokenSubject, Refusal> {
        let reference = self.text("ref")?.unwrap_or_default();
        let reference = match self.text("ref_type")?.as_deref() {
            Some("branch") => format!("refs/heads/{reference}"),
            Some("tag") => format!("refs/tags/{reference}"),
            _ => reference,
        };
        let tier = self.text("deployment_tier")?.unwrap_or_default();
        let facts = JobFacts {
            name: format!("job {}", self.id("job_id")?.ok_or_else(|| missing("job_id"))?),
            pipeline: self.id("pipeline_id")?.unwrap_or_default(),
            reference,
            is_protected: self.is_true("ref_protected"),
            environment: self.text("environment")?.map(|name| JobEnvironment { name, tier }),
        };
        let claims = JobClaims {
            provider: settings.name.clone(),
            owners: self.owners("namespace_path", "namespace_id")?,
            repository: self.repository(settings, "project_path")?,
            external_id: self.number("project_id")?,
        };
        Ok(TokenSubject::Job { claims, facts })
    }

    fn job_of_github(&self, settings: &Settings) -> Result<TokenSubject, Refusal> {
        let facts = JobFacts {
            name: self.text("workflow")?.ok_or_else(|| missing("workflow"))?,
            pipeline: self.id("run_id")?.unwrap_or_default(),
            reference: self.text("ref")?.unwrap_or_default(),
            is_protected: self.is_true("ref_protected"),
            environment: self.text("environment")?.map(|name| JobEnvironment { name, tier: String::new() }),
        };
        let claims = JobClaims {
            provider: settings.name.clone(),
            owners: self.owners("repository_owner", "repository_owner_id")?,
            repository: self.repository(settings, "repository")?,
            external_id: self.number("repository_id")?,
        };
        Ok(TokenSubject::Job { claims, facts })
    }

    /// Path and number of whose the repository is. A number says that it is one, because a path may be all digits.
    fn owners(&self, path: &str, number: &str) -> Result<Vec<String>, Refusal> {
        let path = self.text(path)?.ok_or_else(|| missing(path))?;
        let number = self.number(number)?.map(|number| format!("id:{number}"));
        Ok(std::iter::once(path).chain(number).collect())
    }

    fn repository(&self, settings: &Settings, claim: &str) -> Result<String, Refusal> {
        let path = self.text(claim)?.ok_or_else(|| missing(claim))?;
        if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(wrong(format!("{claim} of the ID token is not a path of a repository")));
        }
        Ok(format!("{}/{path}", settings.repositories))
    }

    fn text(&self, claim: &str) -> Result<Option<String>, Refusal> {
        self.text_up_to(claim, MAXIMUM_TEXT)
    }

    /// Nothing where the claim is missing or empty.
    fn text_up_to(&self, claim: &str, maximum: usize) -> Result<Option<String>, Refusal> {
        let text = match self.0.get(claim) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text,
            Some(_) => return Err(wrong(format!("{claim} of the ID token is not text"))),
        };
        if text.chars().count() > maximum || text.chars().any(char::is_control) {
            let message = format!("{claim} of the ID token must be {maximum} printable characters at most");
            return Err(wrong(message));
        }
        Ok(Some(text.clone()).filter(|text| !text.is_empty()))
    }

    /// An id, which may be written as a number.
    fn id(&self, claim: &str) -> Result<Option<String>, Refusal> {
        match self.0.get(claim).and_then(Value::as_u64) {
            Some(number) => Ok(Some(number.to_string())),
            None => self.text(claim),
        }
    }

    fn number(&self, claim: &str) -> Result<Option<u64>, Refusal> {
        let parsed = self.id(claim)?.map(|id| id.parse::<u64>());
        parsed.transpose().map_err(|_| wrong(format!("{claim} of the ID token is not a number")))
    }

    fn is_true(&self, claim: &str) -> bool {
        self.0.get(claim).is_some_and(|value| value.as_bool() == Some(true) || value.as_str() == Some("true"))
    }
}

fn missing(claim: &str) -> Refusal {
    wrong(format!(
        "the ID token has no {claim}: check that its provider has the kind in the operator's settings"
    ))
}
