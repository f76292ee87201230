//! Answers requests about repositories.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Dispatcher, Service, Serving};
use events::delivery::ObjectFailure;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, Decide, DecideFetch};
use events::requests::repository::{BundleAt, BundleAtCommit, FetchView, FileAtCommit, ReadFile, ShowFetch};
use events::subject::Subject;
use events::{Actor, AgentId, ObjectIdentity, ProjectId, Refusal, RefusalKind, Request, SourceId};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::driver::{Job, Poller, Shared, Status};
use crate::git::objects::Content;
use crate::git::tree::{FileKind, Finder};
use crate::git::{GitError, ObjectId, Objects};
use crate::model::Latest;

/// Largest file that is answered, in bytes: what the bus carries, with room.
const FILE_LIMIT: u32 = 768 * 1024;

/// For how long what a look found may be given as what is there now. No other replica takes a repository over sooner after a look:
/// authz was asked over the bus when it began, and who is not heard there is given up only later than this.
const FRESH: Duration = Duration::from_secs(2);

/// Longest time for which a ref is watched because a file of it was read, in seconds.
const LONGEST_WATCH: u32 = 7 * 86_400;

/// Who may answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Any replica: one that does not watch the repository passes it on.
    Any,
    /// This one, by another.
    This,
}

/// Serves until the returned guards are dropped.
pub(crate) async fn serve(poller: &Arc<Poller>) -> anyhow::Result<Vec<Serving>> {
    let mut requests = Dispatcher::new(&*poller.deps.bus, Arc::clone(poller));
    serve_both(&mut requests, poller.replica(), read_file).await?;
    serve_both(&mut requests, poller.replica(), bundle_at).await?;
    serve_both(&mut requests, poller.replica(), show_fetch).await?;
    Ok(requests.serving())
}

/// Serves a request for any replica, and for this one.
async fn serve_both<R, F, A>(
    requests: &mut Dispatcher<'_, Poller>,
    replica: Uuid,
    answer: F,
) -> Result<(), BusError>
where
    R: Request + Clone,
    F: Fn(Arc<Poller>, RequestContext, R, Asked) -> A + Copy + Send + Sync + 'static,
    A: Future<Output = Result<R::Reply, Refusal>> + Send + 'static,
{
    requests.answer(move |poller, context, request: R| answer(poller, context, request, Asked::Any)).await?;
    let to_this = Subject::replica_request(R::NAME, replica);
    let answer = move |poller, context, request: R| answer(poller, context, request, Asked::This);
    requests.answer_under(&to_this, answer).await
}

impl Service for Poller {
    async fn answer<R, F, A>(&self, _: &RequestContext, attempt: F) -> Result<R::Reply, Refusal>
    where
        R: Request,
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<R::Reply, Refusal>> + Send,
    {
        self.fold.answer(attempt).await
    }
}

/// What the replica that watches the repository answers; `None` when that is this one, or has to be.
async fn ask_owner<R: Request>(
    poller: &Poller,
    context: &RequestContext,
    project: ProjectId,
    request: &R,
    asked: Asked,
) -> Option<Result<R::Reply, Refusal>> {
    let other = poller.owner_elsewhere(project).filter(|_| asked == Asked::Any)?;
    let subject = Subject::replica_request(R::NAME, other);
    Some(bus::ask_under(&*poller.deps.bus, &subject, context, request).await)
}

/// Services ask for what they need; what a person or agent may see is authz's to decide.
async fn permit(
    poller: &Poller,
    context: &RequestContext,
    source: SourceId,
    action: Action,
) -> Result<(AgentId, ProjectId, events::configuration::GitReference), Refusal> {
    let not_found = || Refusal::not_found("the source");
    let place = poller.fold.read(|state| {
        let place = state.place_of(source)?;
        (state.organization_of(place.0)? == context.organization).then_some(place)
    });
    let place = place.ok_or_else(not_found)?;
    if !matches!(context.actor, Actor::Service(_)) {
        let (actor, organization) = (context.actor.clone(), context.organization);
        let decide = Decide { actor, organization, action, scope: Scope::Agent(place.0) };
        let asked = poller.context(context.organization, context.correlation_id);
        let decision = bus::ask(&*poller.deps.bus, &asked, &decide).await?;
        if !decision.visible {
            return Err(not_found());
        }
        if !decision.allowed {
            return Err(Refusal::new(RefusalKind::Denied, decision.reason));
        }
    }
    Ok(place)
}

/// Asked before each fetch: an agent that may not read a repository gets nothing of it, whoever else may.
async fn may_fetch(
    poller: &Poller,
    context: &RequestContext,
    agent: AgentId,
    project: ProjectId,
) -> Result<(), Refusal> {
    let asked = poller.context(context.organization, context.correlation_id);
    let decision = bus::ask(&*poller.deps.bus, &asked, &DecideFetch { agents: vec![agent], project }).await?;
    decision.of(agent).map_err(|reason| Refusal::new(RefusalKind::Denied, reason))
}

async fn read_file(
    poller: Arc<Poller>,
    context: RequestContext,
    request: ReadFile,
    asked: Asked,
) -> Result<FileAtCommit, Refusal> {
    if !matches!(context.actor, Actor::Service(_)) {
        return Err(Refusal::new(RefusalKind::Denied, "only services may read files of repositories"));
    }
    may_fetch(&poller, &context, request.agent, request.project).await?;
    if let Some(answer) = ask_owner(&poller, &context, request.project, &request, asked).await {
        return answer;
    }
    if let Some(seconds) = request.watch_seconds {
        let until = poller.now().plus_millis(i64::from(seconds.min(LONGEST_WATCH)) * 1000);
        poller.want(request.project, &request.reference, request.agent, until);
    }
    let deadline = Duration::from_millis(u64::from(context.deadline_millis.saturating_mul(4) / 5));
    let unwatched = || Refusal::new(RefusalKind::Unavailable, "the repository is not watched yet; retry");
    let Some(shared) = poller.watcher_of(request.project) else { return Err(unwatched()) };
    let tip = tokio::select! {
        biased;
        tip = tip_of(&shared, &request, poller.deps.world.clock.monotonic()) => tip?,
        () = poller.deps.world.clock.sleep(deadline) => return Err(unwatched()),
    };
    let objects = shared.objects.lock().clone().ok_or_else(unwatched)?;
    let _permit = shared.readers.acquire().await.map_err(|_| unwatched())?;
    let (finder, limit) = (Arc::clone(&shared.finder), request.limit.min(FILE_LIMIT));
    let read = poller.blocking(move || file_at(&objects, &finder, tip, &request.path, limit)).await;
    read.map_err(|error| refused(&error))
}

/// What the ref names, as soon as that is known. What was looked at too long ago is looked at again where that matters.
async fn tip_of(shared: &Shared, request: &ReadFile, now: Duration) -> Result<ObjectId, Refusal> {
    let mut status = shared.status.subscribe();
    let reference = &request.reference;
    let stale = |status: &Status| {
        request.fresh
            && status.tips.contains_key(reference)
            && !status.checked_since(reference, now.saturating_sub(FRESH))
    };
    if stale(&status.borrow()) {
        shared.wake(None);
    }
    let known = |status: &Status| {
        // The watcher may not have heard yet that the ref is to be watched.
        let is_coming = request.watch_seconds.is_some() && !status.tips.contains_key(reference);
        let is_there = !is_coming && !status.fetching_first(reference) && !stale(status);
        is_there || status.failures.contains_key(reference)
    };
    let status =
        status.wait_for(|status| known(status)).await.map_err(|_| Refusal::not_found("the repository"))?;
    if let Some(error) = status.failures.get(&request.reference) {
        return Err(refused(error));
    }
    match status.tips.get(&request.reference) {
        Some(tip) => Ok(*tip),
        None => Err(Refusal::not_found(format!("{} of the repository", request.reference))),
    }
}

fn refused(error: &GitError) -> Refusal {
    use events::repository::FetchFailure as Failure;
    let kind = match error.failure {
        Failure::Refused | Failure::Unauthorized => RefusalKind::Denied,
        Failure::NotFound => RefusalKind::NotFound,
        Failure::Unreachable => RefusalKind::Unavailable,
        Failure::Broken => RefusalKind::Conflict,
    };
    Refusal::new(kind, error.message.clone())
}

fn file_at(
    objects: &Objects,
    finder: &Finder,
    tip: ObjectId,
    path: &str,
    limit: u32,
) -> Result<FileAtCommit, GitError> {
    let mut reader = objects.reader();
    let (commit, root) = reader.commit_and_tree(&tip)?;
    let mut answer =
        FileAtCommit { commit: commit.to_string(), content: None, too_large: None, folder: String::new() };
    let first = path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    answer.folder = finder.folder(&mut reader, root, first)?.map_or_else(String::new, |id| id.to_string());
    let entry = finder.find(&mut reader, root, path)?;
    if let Some(entry) = entry.filter(|entry| entry.kind == FileKind::File) {
        match reader.file(&entry.id, u64::from(limit))? {
            Content::Bytes(bytes) => answer.content = Some(bytes),
            Content::TooLarge(bytes) => answer.too_large = Some(bytes),
        }
    }
    Ok(answer)
}

async fn bundle_at(
    poller: Arc<Poller>,
    context: RequestContext,
    request: BundleAt,
    asked: Asked,
) -> Result<BundleAtCommit, Refusal> {
    let (agent, project, _) = permit(&poller, &context, request.source, Action::PinSource).await?;
    may_fetch(&poller, &context, agent, project).await?;
    if request.commit.len() < 4 || !request.commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Refusal::invalid("commit", "a commit id has 4 to 40 hexadecimal digits"));
    }
    let unwatched = || Refusal::new(RefusalKind::Unavailable, "the repository is not watched now; retry");
    if let Some(answer) = ask_owner(&poller, &context, project, &request, asked).await {
        return answer;
    }
    let shared = poller.watcher_of(project).ok_or_else(unwatched)?;
    let (answer, answered) = oneshot::channel();
    let job = Job { source: request.source, commit: request.commit.to_ascii_lowercase(), answer };
    shared.jobs.send(job).await.map_err(|_| unwatched())?;
    answered.await.map_err(|_| unwatched())?
}

async fn show_fetch(
    poller: Arc<Poller>,
    context: RequestContext,
    request: ShowFetch,
    asked: Asked,
) -> Result<FetchView, Refusal> {
    let (_, project, reference) = permit(&poller, &context, request.source, Action::ReadSource).await?;
    if let Some(answer) = ask_owner(&poller, &context, project, &request, asked).await {
        return answer;
    }
    let mut view = FetchView::default();
    let latest = poller.fold.read(|state| state.latest(request.source).cloned());
    view.commit = latest.as_ref().map(|latest| latest.commit().to_owned());
    if let Some(Latest::Rejected { findings, .. }) = latest {
        view.rejected = findings.into_iter().map(rejected).collect();
    }
    match poller.watcher_of(project) {
        Some(shared) => {
            let status = shared.status.borrow();
            view.fetching = status.is_fetching(&reference);
            view.next_at = status.next_at;
            view.failure = status.failures.get(&reference).map(|error| error.message.clone());
            if let Some(tip) = status.tips.get(&reference) {
                view.commit = Some(tip.to_string());
            }
        }
        None => view.failure = Some("no agent with a valid token reads it".to_owned()),
    }
    Ok(view)
}

/// A finding is about a place in a file; which object stands there may be unknown.
fn rejected(finding: events::configuration::FileFinding) -> ObjectFailure {
    let none = String::new;
    let identity =
        ObjectIdentity { group: none(), version: none(), kind: none(), namespace: none(), name: none() };
    ObjectFailure { identity, file: finding.file, line: finding.line, message: finding.message }
}
