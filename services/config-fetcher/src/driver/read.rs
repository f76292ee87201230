//! Reading one agent's file, and recording what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chassis::traces;
use events::configuration::{FileFinding, GitReference, file_of};
use events::grants::Grants;
use events::requests::authz::{DecideFetch, FindMissing, ShowProject};
use events::requests::repository::ReadFile;
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
    /// What came of it is recorded. With the folder that the file was read in, if that alone decides what came of it.
    Done(Option<Folder>),
    /// Somebody did not answer, or not yet.
    NotNow,
    /// What came of it may come to the log yet, on this version.
    Unsettled(u64),
}

/// What a look at an agent's file found.
struct Looked {
    outcome: Outcome,
    former: Option<LegacyReading>,
    /// That it was read in, if that alone decides what came of it.
    folder: Option<Folder>,
}

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
        let Some(known) = known else { return Read::Done(None) };
        let Looked { outcome, former, folder } = match self.outcome(agent, &known, seen, cause).await {
            Ok(looked) => looked,
            Err(refusal) => {
                tracing::debug!(%agent, error = %refusal, "configuration cannot be read now");
                return Read::NotNow;
            }
        };
        let (organization, unsettled) = (known.organization, unsettled == Some(seen));
        let given = Given { organization, agent, outcome, former, unsettled };
        match self.record(given, seen, cause).await {
            Ok(()) => Read::Done(folder),
            Err(error) => not_recorded(agent, &error),
        }
    }

    /// What the file says now. An error is one that passes by itself.
    async fn outcome(
        &self,
        agent: AgentId,
        known: &AgentState,
        seen: u64,
        cause: &Cause,
    ) -> Result<Looked, Refusal> {
        let file = file_of(&known.name);
        let request = ReadFile {
            agent,
            project: known.project,
            reference: GitReference::Default,
            path: file.clone(),
            limit: MAXIMUM_BYTES,
            // Nothing older can take the place of nothing.
            fresh: seen != 0,
        };
        let context = self.context(known.organization, cause);
        let whole = |commit: Option<String>, message: String| {
            let findings =
                vec![FileFinding { file: file.clone(), line: 0, column: 0, field: String::new(), message }];
            let outcome = Outcome::Bad { commit, findings, warnings: Vec::new() };
            Looked { outcome, former: None, folder: None }
        };
        let read = match bus::ask(&*self.deps.bus, &context, &request).await {
            Ok(read) => read,
            Err(refusal) if passes(&refusal) => return Err(refusal),
            Err(refusal) => {
                return Ok(whole(None, format!("the file cannot be read: {}", refusal.message)));
            }
        };
        let folder = Some((known.project, read.folder));
        if let Some(bytes) = read.too_large {
            let message = format!("the file has {bytes} bytes, more than the maximum of {MAXIMUM_BYTES}");
            return Ok(Looked { folder, ..whole(Some(read.commit), message) });
        }
        let Some(content) = read.content else {
            let message = "there is no such file on the project's default branch; commit one; the configuration in force stays";
            return Ok(Looked { folder, ..whole(Some(read.commit), message.to_owned()) });
        };
        let mut checked = schema::check(&file, &content);
        let missing = self.missing(known, cause, &file, &checked.draft.grants).await?;
        // Who may read another project, what its name is, and whether it is there at all changes by itself.
        let is_own = |source: &DraftSource| {
            source.project.is_none() && source.environment.as_ref().is_none_or(|of| of.project.is_none())
        };
        let own = checked.draft.sources.iter().all(is_own);
        let folder = folder.filter(|_| own && missing.is_empty());
        checked.warnings.extend(missing.clone());
        if let Some(former) = &mut checked.former {
            former.warnings.extend(missing);
        }
        let (outcome, former) = self.resolve(agent, known, cause, &file, read.commit, checked).await?;
        Ok(Looked { outcome, former, folder })
    }

    /// Grants for projects and groups that are not there, which let nobody in. They may come yet, so that these are warnings.
    async fn missing(
        &self,
        known: &AgentState,
        cause: &Cause,
        file: &str,
        grants: &Grants,
    ) -> Result<Vec<FileFinding>, Refusal> {
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
        let context = self.context(known.organization, cause);
        let missing = bus::ask(&*self.deps.bus, &context, &request).await?;
        let of_kind = |what| if what == GrantTarget::Project { &missing.projects } else { &missing.groups };
        let not_there = granted.iter().filter(|grant| of_kind(grant.what).contains(grant.path));
        Ok(not_there.take(MAXIMUM_FINDINGS).map(|grant| grant.missing(file)).collect())
    }

    /// Finds the projects that the sources name.
    async fn resolve(
        &self,
        agent: AgentId,
        known: &AgentState,
        cause: &Cause,
        file: &str,
        commit: String,
        checked: Checked,
    ) -> Result<(Outcome, Option<LegacyReading>), Refusal> {
        let Checked { draft, mut findings, warnings, former } = checked;
        let mut projects = Vec::new();
        let mut asked: BTreeMap<String, Result<ProjectId, String>> = BTreeMap::new();
        for (index, source) in draft.sources.iter().enumerate() {
            let Some((path, line, column)) = &source.project else {
                projects.push(known.project);
                continue;
            };
            let answer = match asked.get(path) {
                Some(answer) => answer.clone(),
                None => self.project(agent, known, cause, path).await?,
            };
            asked.insert(path.clone(), answer.clone());
            match answer {
                Ok(project) => projects.push(project),
                Err(message) => {
                    let field = format!("sources[{index}].project");
                    findings.push(FileFinding {
                        file: file.to_owned(),
                        line: *line,
                        column: *column,
                        field,
                        message,
                    });
                }
            }
        }
        let of_environments =
            self.projects_of_environments(known, cause, (file, &mut findings), &draft).await?;
        let former = former.filter(|former| former.draft.sources.len() == projects.len()).map(|former| {
            let configuration = former.draft.resolve(agent, &projects, &of_environments);
            LegacyReading { commit: commit.clone(), configuration, warnings: former.warnings }
        });
        if findings.is_empty() {
            let configuration = Box::new(draft.resolve(agent, &projects, &of_environments));
            Ok((Outcome::Good { commit, configuration, warnings }, former))
        } else {
            findings.sort_by_key(|finding| (finding.line, finding.column));
            Ok((Outcome::Bad { commit: Some(commit), findings, warnings }, former))
        }
    }

    /// Finds the projects that the sources' environments name, by their paths. Whether these name the agent's project as deployer is decided
    /// at each deployment.
    async fn projects_of_environments(
        &self,
        known: &AgentState,
        cause: &Cause,
        (file, findings): (&str, &mut Vec<FileFinding>),
        draft: &Draft,
    ) -> Result<BTreeMap<String, ProjectId>, Refusal> {
        let mut asked: BTreeMap<String, Result<ProjectId, String>> = BTreeMap::new();
        for (index, source) in draft.sources.iter().enumerate() {
            let named = source.environment.as_ref().and_then(|environment| environment.project.as_ref());
            let Some((path, line, column)) = named else { continue };
            if !asked.contains_key(path) {
                let answer = self.find(known, cause, path).await?;
                asked.insert(path.clone(), answer);
            }
            if let Some(Err(message)) = asked.get(path) {
                findings.push(FileFinding {
                    file: file.to_owned(),
                    line: *line,
                    column: *column,
                    field: format!("sources[{index}].environment.project"),
                    message: message.clone(),
                });
            }
        }
        Ok(asked.into_iter().filter_map(|(path, answer)| Some((path, answer.ok()?))).collect())
    }

    /// The project of that path; the inner error is a finding.
    async fn find(
        &self,
        known: &AgentState,
        cause: &Cause,
        path: &str,
    ) -> Result<Result<ProjectId, String>, Refusal> {
        let context = self.context(known.organization, cause);
        match bus::ask(&*self.deps.bus, &context, &ShowProject { project: path.to_owned() }).await {
            Ok(view) => Ok(Ok(view.id)),
            Err(refusal) if passes(&refusal) => Err(refusal),
            Err(_) => Ok(Err(format!("the project '{path}' is not found in the agent's organization"))),
        }
    }

    /// The project of that path, if the agent may read it; the inner error is a finding.
    async fn project(
        &self,
        agent: AgentId,
        known: &AgentState,
        cause: &Cause,
        path: &str,
    ) -> Result<Result<ProjectId, String>, Refusal> {
        let project = match self.find(known, cause, path).await? {
            Ok(project) => project,
            Err(message) => return Ok(Err(message)),
        };
        let context = self.context(known.organization, cause);
        let decision =
            bus::ask(&*self.deps.bus, &context, &DecideFetch { agents: vec![agent], project }).await?;
        let refused = |reason| format!("the agent may not read the project '{path}': {reason}");
        Ok(decision.of(agent).map(|()| project).map_err(refused))
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
