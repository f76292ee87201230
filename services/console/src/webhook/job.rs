//! Reports of a CI system about a job that deploys, or about a deployment: GitLab's job and deployment events, and a form of our own.

use events::DeploymentId;
use events::requests::environments::ReportedDeployment;
use serde::Deserialize;
use serde_json::{Map, Value};

/// How a job that deploys stands.
#[derive(Debug, PartialEq)]
pub(super) enum JobEvent {
    /// It has not ended.
    GoesOn,
    /// It ended.
    Ended {
        /// Whose end it is.
        which: ReportedDeployment,
        /// Whether it succeeded.
        succeeded: bool,
        /// Why not, in words.
        reason: String,
    },
    /// It cannot be understood, and why.
    Wrong(String),
}

/// GitLab's "Job events".
#[derive(Deserialize)]
struct GitLabJob {
    build_id: u64,
    build_status: String,
    #[serde(default)]
    build_failure_reason: Option<String>,
    repository: Repository,
}

#[derive(Deserialize)]
struct Repository {
    homepage: String,
}

/// GitLab's "Deployment events".
#[derive(Deserialize)]
struct GitLabDeployment {
    status: String,
    /// The page of its job; absent where none made it.
    deployable_url: Option<String>,
}

/// The form of our own.
#[derive(Deserialize)]
struct Own {
    deployment: Option<DeploymentId>,
    job_url: Option<String>,
    status: OwnStatus,
    #[serde(default)]
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OwnStatus {
    Success,
    Failed,
}

impl JobEvent {
    /// `None` where the body is not about a job or a deployment.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let kind = fields.get("object_kind").and_then(Value::as_str);
        let is_own = fields.contains_key("deployment") || fields.contains_key("job_url");
        let understood = match kind {
            Some("build") => read(body).map(GitLabJob::event),
            Some("deployment") => read(body).map(GitLabDeployment::event),
            None if is_own => read(body).map(Own::event),
            _ => return None,
        };
        Some(understood.unwrap_or_else(Self::Wrong))
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("cannot be read: {error}"))
}

impl GitLabJob {
    fn event(self) -> JobEvent {
        let page = format!("{}/-/jobs/{}", self.repository.homepage.trim_end_matches('/'), self.build_id);
        gitlab_end(page, &self.build_status, self.build_failure_reason)
    }
}

impl GitLabDeployment {
    fn event(self) -> JobEvent {
        self.deployable_url.map_or(JobEvent::GoesOn, |page| gitlab_end(page, &self.status, None))
    }
}

impl Own {
    fn event(self) -> JobEvent {
        let which = match (self.deployment, self.job_url) {
            (Some(id), None) => ReportedDeployment::Deployment(id),
            (None, Some(page)) => ReportedDeployment::JobUrl(page),
            _ => return JobEvent::Wrong("give either deployment or job_url".to_owned()),
        };
        JobEvent::Ended { which, succeeded: self.status == OwnStatus::Success, reason: self.reason }
    }
}

/// An end in GitLab's words. A job that waits or runs has not ended, and one that is skipped never began.
fn gitlab_end(page: String, status: &str, why: Option<String>) -> JobEvent {
    let which = ReportedDeployment::JobUrl(page);
    let why = why.filter(|why| !why.is_empty() && why != "unknown_failure");
    match status {
        "success" => JobEvent::Ended { which, succeeded: true, reason: String::new() },
        "failed" => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            JobEvent::Ended { which, succeeded: false, reason: format!("the job failed{why}") }
        }
        "canceled" => JobEvent::Ended { which, succeeded: false, reason: "the job was canceled".to_owned() },
        _ => JobEvent::GoesOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190b6a2-0000-7000-8000-000000000001";

    fn ended(which: ReportedDeployment, succeeded: bool, reason: &str) -> JobEvent {
        JobEvent::Ended { which, succeeded, reason: reason.to_owned() }
    }

    fn job(url: &str) -> ReportedDeployment {
        ReportedDeployment::JobUrl(url.to_owned())
    }

    #[test]
    fn gitlabs_job_events_name_the_page_of_the_job() {
        let of = |status: &str| {
            let body = format!(
                r#"{{"object_kind":"build","ref":"main","build_id":1977,"build_status":"{status}","build_failure_reason":"script_failure","repository":{{"homepage":"https://git.example/g/p"}}}}"#
            );
            JobEvent::of(body.as_bytes()).unwrap()
        };
        let page = "https://git.example/g/p/-/jobs/1977";
        assert_eq!(of("success"), ended(job(page), true, ""));
        assert_eq!(of("failed"), ended(job(page), false, "the job failed: script_failure"));
        assert_eq!(of("canceled"), ended(job(page), false, "the job was canceled"));
        for status in ["created", "pending", "running", "skipped", "manual"] {
            assert_eq!(of(status), JobEvent::GoesOn, "{status}");
        }
    }

    #[test]
    fn gitlabs_deployment_events_name_the_page_too() {
        let page = "https://git.example/g/p/-/jobs/796";
        let body = format!(
            r#"{{"object_kind":"deployment","status":"failed","deployment_id":15,"deployable_url":"{page}","environment":"staging","project":{{"id":30}}}}"#
        );
        assert_eq!(JobEvent::of(body.as_bytes()), Some(ended(job(page), false, "the job failed")));
        let by_hand = br#"{"object_kind":"deployment","status":"success","deployable_url":null}"#;
        assert_eq!(JobEvent::of(by_hand), Some(JobEvent::GoesOn));
    }

    #[test]
    fn the_form_of_our_own_names_a_deployment_or_the_page_of_a_job() {
        let of = |body: &str| JobEvent::of(body.as_bytes()).unwrap();
        let id = ReportedDeployment::Deployment(ID.parse().unwrap());
        let body = format!(r#"{{"deployment":"{ID}","status":"failed","reason":"no image"}}"#);
        assert_eq!(of(&body), ended(id, false, "no image"));
        let body = r#"{"job_url":"https://ci.example/1","status":"success"}"#;
        assert_eq!(of(body), ended(job("https://ci.example/1"), true, ""));
        for (body, what) in [
            (r#"{"deployment":"x","status":"success"}"#.to_owned(), "cannot be read"),
            (format!(r#"{{"deployment":"{ID}","status":"canceled"}}"#), "`success` or `failed`"),
            (format!(r#"{{"deployment":"{ID}","job_url":"a","status":"success"}}"#), "either"),
            (r#"{"object_kind":"build","build_id":1}"#.to_owned(), "build_status"),
        ] {
            let JobEvent::Wrong(message) = of(&body) else { panic!("{body}") };
            assert!(message.contains(what), "{body}: {message}");
        }
    }

    #[test]
    fn pushes_are_something_else() {
        for body in [
            "",
            "{}",
            r#"{"ref":"refs/heads/main","repository":{"id":1}}"#,
            r#"{"object_kind":"push","ref":"refs/heads/main","project":{"web_url":"https://git.example/g/p"}}"#,
            r#"{"object_kind":"pipeline","status":"success","job_url":"a"}"#,
            "[1]",
        ] {
            assert_eq!(JobEvent::of(body.as_bytes()), None, "{body}");
        }
    }
}
