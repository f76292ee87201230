//! Reading one agent's file, and recording what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chassis::traces;
use events::configuration::{FileFinding, GitReference, file_of};
use events::grants::Grants;
use events::requests::authz::{DecideFetch, FindMissing, ShowProject};
use events::requests::repository::{FileAtCommit, ReadFile};
use events::{AgentId, CorrelationId, ProjectId, Refusal, RefusalKind};
use store::{Basis, DecideError, Origin, Policy};
use tracing::Instrument as _;

use super::schedule::{Due, Folder};
use super::{Cause, Fetcher, SERVICE};
use crate::model::{AgentState, Given, LegacyReading, Outcome};
use crate::schema::{self, Checked, Draft, DraftSource, GrantTarget, MAXIMUM_BYTES, MAXIMUM_FINDINGS};

/// What was read is appended once, and the log has three seconds for it: afterwards the file may say something else.
const POLICY: Policy = Policy { appends: 1, patience: Duration::from_secs(3), ..Policy::BACKGROUND };

/// How reading went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Read {
    /// What came of it is recorded.
    Done {
        /// That the file was read in, if that alone decides what came of it.
        folder: Option<Folder>,
        /// The other projects whose files were read.
        others: BTreeSet<ProjectId>,
    },
    /// Somebody did not answer, or not yet.
    NotNow,
    /// What came of it may come to the log yet, on this version.
    Unsettled(u64),
}

/// A look at an agent's file.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) agent: AgentId,
    pub(super) known: &'a AgentState,
    /// The version of its configuration from before.
    pub(super) seen: u64,
    pub(super) cause: &'a Cause,
    /// The file's path.
    pub(super) file: &'a str,
}

/// What a look at an agent's file found.
struct Looked {
    outcome: Outcome,
    former: Option<LegacyReading>,
    folder: Option<Folder>,
    others: BTreeSet<ProjectId>,
}

/// Projects by their paths, as far as they were asked for; the inner error is a finding.
pub(super) type Projects = BTreeMap<String, Result<ProjectId, String>>;

impl Fetcher {
    /// Reads, checks and records. A look that a commit asked for is part of its trace; one that is due is of none.
    pub(super) async fn read(&self, due: Due) -> Read {
        let Due { agent, cause, unsettled } = due;
        let Some(mut cause) = cause else {
            let correlation_id = CorrelationId(self.deps.world.new_uuid());
            return self.read_because(agent, unsettled, &Cause { correlation_id, traceparent: None }).await;
        };
        let span = tracing::info_span!("config-fetcher.read", otel.kind = "consumer", %agent);
        traces::set_parent_or_none(&span, cause.traceparent.as_deref());
        cause.traceparent = traces::traceparent_of(&span).or(cause.traceparent);
        self.read_because(agent, unsettled, &cause).instrument(span).await
    }

    async fn read_because(&self, agent: AgentId, unsettled: Option<u64>, cause: &Cause) -> Read {
        // From before reading: another replica may read something newer, and say so first.
        let (known, seen) = self.fold.read(|state| (state.agent(agent).cloned(), state.version(agent)));
        let Some(known) = known else { return Read::Done { folder: None, others: BTreeSet::new() } };
        let file = file_of(&known.name);
        let look = Look { agent, known: &known, seen, cause, file: &file };
        let Looked { outcome, former, folder, others } = match self.outcome(look).await {
            Ok(looked) => looked,
            Err(refusal) => {
                tracing::debug!(%agent, error = %refusal, "configuration cannot be read now");
                return Read::NotNow;
            }
        };
        let (organization, unsettled) = (known.organization, unsettled == Some(seen));
        let given = Given { organization, agent, outcome, former, unsettled };
        match self.record(given, seen, cause).await {
            Ok(()) => Read::Done { folder, others },
            Err(error) => not_recorded(agent, &error),
        }
    }

    /// What the file says now. An error is one that passes by itself.
    async fn outcome(&self, look: Look<'_>) -> Result<Looked, Refusal> {
        let Look { known, file, .. } = look;
        let whole = |commit: Option<String>, message: String| {
            let findings = vec![schema::finding(file, 0, 0, "", message)];
            let outcome = Outcome::Bad { commit, findings, warnings: Vec::new() };
            Looked { outcome, former: None, folder: None, others: BTreeSet::new() }
        };
        let read = match self.read_file(look, known.project, file, None).await? {
            Ok(read) => read,
            Err(message) => return Ok(whole(None, message)),
        };
        let folder = Some((known.project, read.folder));
        if let Some(bytes) = read.too_large {
            return Ok(Looked { folder, ..whole(Some(read.commit), too_large(bytes)) });
        }
        let Some(content) = read.content else {
            let message = "there is no such file on the project's default branch; commit one; the configuration in force stays";
            return Ok(Looked { folder, ..whole(Some(read.commit), message.to_owned()) });
        };
        let mut checked = schema::check(file, &content);
        let missing = self.missing(look, &checked.draft.grants).await?;
        let defined = self.definitions(look, &read.commit, &checked.draft.definitions.files).await?;
        // Who may read another project, what its name is, and whether it is there at all changes by itself.
        let is_own = |source: &DraftSource| {
            source.project.is_none() && source.environment.as_ref().is_none_or(|of| of.project.is_none())
        };
        let own = checked.draft.sources.iter().all(is_own) && checked.draft.definitions.files.is_empty();
        let folder = folder.filter(|_| own && missing.is_empty());
        checked.warnings.extend(missing.clone());
        if let Some(former) = &mut checked.former {
            former.warnings.extend(missing);
        }
        checked.take_in(file, &defined.definitions, defined.findings);
        let (outcome, former) = self.resolve(look, read.commit, checked, defined.projects).await?;
        Ok(Looked { outcome, former, folder, others: defined.others })
    }

    /// A file as it is now; the inner error is a finding.
    pub(super) async fn read_file(
        &self,
        look: Look<'_>,
        project: ProjectId,
        path: &str,
        watch_seconds: Option<u32>,
    ) -> Result<Result<FileAtCommit, String>, Refusal> {
        let request = ReadFile {
            agent: look.agent,
            project,
            reference: GitReference::Default,
            path: path.to_owned(),
            limit: MAXIMUM_BYTES,
            // Nothing older can take the place of nothing.
            fresh: look.seen != 0,
            watch_seconds,
        };
        let context = self.context(look.known.organization, look.cause);
        match bus::ask(&*self.deps.bus, &context, &request).await {
            Ok(read) => Ok(Ok(read)),
            Err(refusal) if passes(&refusal) => Err(refusal),
            Err(refusal) => Ok(Err(format!("the file cannot be read: {}", refusal.message))),
        }
    }

    /// Grants for projects and groups that are not there, which let nobody in. They may come yet, so that these are warnings.
    async fn missing(&self, look: Look<'_>, grants: &Grants) -> Result<Vec<FileFinding>, Refusal> {
        let granted = schema::granted(grants);
        if granted.is_empty() {
            return Ok(Vec::new());
        }
        let paths = |what| {
            let of_kind = granted.iter().filter(move |grant| grant.what == what);
            of_kind.map(|grant| grant.path.to_owned()).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let request =
            FindMissing { projects: paths(GrantTarget::Project), groups: paths(GrantTarget::Group) };
        let context = self.context(look.known.organization, look.cause);
        let missing = bus::ask(&*self.deps.bus, &context, &request).await?;
        let of_kind = |what| if what == GrantTarget::Project { &missing.projects } else { &missing.groups };
        let not_there = granted.iter().filter(|grant| of_kind(grant.what).contains(grant.path));
        Ok(not_there.take(MAXIMUM_FINDINGS).map(|grant| grant.missing(look.file)).collect())
    }

    /// Finds the projects that the sources name.
    async fn resolve(
        &self,
        look: Look<'_>,
        commit: String,
        checked: Checked,
        mut asked: Projects,
    ) -> Result<(Outcome, Option<LegacyReading>), Refusal> {
        let Look { agent, file, .. } = look;
        let Checked { draft, mut findings, warnings, former } = checked;
        let mut projects = Vec::new();
        for (index, source) in draft.sources.iter().enumerate() {
            let Some((path, line, column)) = &source.project else {
                projects.push(look.known.project);
                continue;
            };
            match self.project(look, path, &mut asked).await? {
                Ok(project) => projects.push(project),
                Err(message) => {
                    let field = format!("sources[{index}].project");
                    findings.push(schema::finding(file, *line, *column, &field, message));
                }
            }
        }
        let of_environments = self.projects_of_environments(look, &mut findings, &draft).await?;
        let former = former.filter(|former| former.draft.sources.len() == projects.len()).map(|former| {
            let configuration = former.draft.resolve(agent, &projects, &of_environments);
            LegacyReading { commit: commit.clone(), configuration, warnings: former.warnings }
        });
        if findings.is_empty() {
            let definitions = draft.definitions.clone();
            let configuration = Box::new(draft.resolve(agent, &projects, &of_environments));
            Ok(match definitions.too_large(file, &configuration) {
                None => (Outcome::Good { commit, configuration, warnings }, former),
                Some(found) => (Outcome::Bad { commit: Some(commit), findings: vec![found], warnings }, None),
            })
        } else {
            // Those of other files stay behind, as they are.
            findings.sort_by_key(|finding| {
                if finding.file == file { (false, finding.line, finding.column) } else { (true, 0, 0) }
            });
            Ok((Outcome::Bad { commit: Some(commit), findings, warnings }, former))
        }
    }

    /// Finds the projects that the sources' environments name, by their paths. Whether these name the agent's project as deployer is decided
    /// at each deployment.
    async fn projects_of_environments(
        &self,
        look: Look<'_>,
        findings: &mut Vec<FileFinding>,
        draft: &Draft,
    ) -> Result<BTreeMap<String, ProjectId>, Refusal> {
        let mut asked = Projects::new();
        for (index, source) in draft.sources.iter().enumerate() {
            let named = source.environment.as_ref().and_then(|environment| environment.project.as_ref());
            let Some((path, line, column)) = named else { continue };
            if !asked.contains_key(path) {
                let answer = self.find(look, path).await?;
                asked.insert(path.clone(), answer);
            }
            if let Some(Err(message)) = asked.get(path) {
                let field = format!("sources[{index}].environment.project");
                findings.push(schema::finding(look.file, *line, *column, &field, message.clone()));
            }
        }
        Ok(asked.into_iter().filter_map(|(path, answer)| Some((path, answer.ok()?))).collect())
    }

    /// The project of that path; the inner error is a finding.
    async fn find(&self, look: Look<'_>, path: &str) -> Result<Result<ProjectId, String>, Refusal> {
        let context = self.context(look.known.organization, look.cause);
        match bus::ask(&*self.deps.bus, &context, &ShowProject { project: path.to_owned() }).await {
            Ok(view) => Ok(Ok(view.id)),
            Err(refusal) if passes(&refusal) => Err(refusal),
            Err(_) => Ok(Err(format!("the project '{path}' is not found in the agent's organization"))),
        }
    }

    /// The project of that path, if the agent may read it, asked for once; the inner error is a finding.
    pub(super) async fn project(
        &self,
        look: Look<'_>,
        path: &str,
        asked: &mut Projects,
    ) -> Result<Result<ProjectId, String>, Refusal> {
        if let Some(answer) = asked.get(path) {
            return Ok(answer.clone());
        }
        let answer = match self.find(look, path).await? {
            Ok(project) => {
                let context = self.context(look.known.organization, look.cause);
                let decide = DecideFetch { agents: vec![look.agent], project };
                let decision = bus::ask(&*self.deps.bus, &context, &decide).await?;
                let refused = |reason| format!("the agent may not read the project '{path}': {reason}");
                decision.of(look.agent).map(|()| project).map_err(refused)
            }
            Err(message) => Err(message),
        };
        asked.insert(path.to_owned(), answer.clone());
        Ok(answer)
    }

    /// Appends what is new, unless more was recorded of the agent since its file was read.
    async fn record(&self, given: Given, seen: u64, cause: &Cause) -> Result<(), DecideError> {
        let world = &self.deps.world;
        let origin =
            Origin::of_service(world, SERVICE, cause.correlation_id).traced(cause.traceparent.clone());
        let decided = self.fold.decide(&POLICY, &origin, Basis::Version(seen), &given).await?;
        if let Err(error) = decided.folded {
            tracing::warn!(%error, "deciding on an older state");
        }
        Ok(())
    }
}

/// What is said of a file of so many bytes.
pub(super) fn too_large(bytes: u64) -> String {
    format!("the file has {bytes} bytes, more than the maximum of {MAXIMUM_BYTES}")
}

/// Says why, and when to read again.
fn not_recorded(agent: AgentId, error: &DecideError) -> Read {
    match error {
        DecideError::Overtaken { .. } => {
            tracing::info!(%agent, %error, "configuration file is read again");
            Read::NotNow
        }
        DecideError::Unsettled { version, .. } => {
            tracing::warn!(%agent, %error, "configuration file is read again");
            Read::Unsettled(*version)
        }
        error => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%agent, %error, source, "configuration was not recorded");
            Read::NotNow
        }
    }
}

/// Whether a refusal may be gone a moment later.
fn passes(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Internal)
}
