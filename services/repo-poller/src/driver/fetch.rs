//! Fetching what a repository's refs name, and building what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chassis::traces;
use events::configuration::{FOLDER, GitReference};
use events::directory::ProjectSettings;
use events::repository::FetchFailure;
use events::requests::repository::BundleAtCommit;
use events::{BlobDigest, OrganizationId, Refusal, RefusalKind, Sha256, SourceId};
use store::{BlobError, KeyName};
use tracing::Instrument as _;

use super::shared::Cause;
use super::watcher::{Done, Watcher};
use crate::bundle::{Built, FileCache, Outcome, RefBuild, Rules, SourcesByRules};
use crate::git::remote::Login;
use crate::git::{GitError, Location, ObjectId, Repository, parse_id};
use crate::model::{Decided, RefInterest};

/// A repository, and what it was opened with.
pub(super) struct Opened {
    settings: ProjectSettings,
    host: Option<String>,
    repository: Box<dyn Repository>,
}

/// What a ref names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tip {
    pub commit: ObjectId,
    pub tree: ObjectId,
}

/// The full ref that is meant; `None` for a commit.
pub(super) fn ref_name(reference: &GitReference, settings: &ProjectSettings) -> Option<String> {
    match reference {
        GitReference::Default => Some(format!("refs/heads/{}", settings.default_branch)),
        GitReference::Branch(name) => Some(format!("refs/heads/{name}")),
        GitReference::Tag(name) => Some(format!("refs/tags/{name}")),
        GitReference::Commit(_) => None,
    }
}

type Tips = BTreeMap<GitReference, Result<Tip, GitError>>;

impl Watcher {
    /// What all wanted refs name now, with their objects fetched.
    pub(super) async fn fetch_tips(
        &mut self,
        organization: OrganizationId,
        settings: &ProjectSettings,
        host: Option<&str>,
        wanted: &BTreeMap<GitReference, RefInterest>,
    ) -> Tips {
        let all_failed = |error: GitError| {
            wanted.keys().map(|reference| (reference.clone(), Err(error.clone()))).collect()
        };
        if let Err(error) = self.open(organization, settings, host).await {
            return all_failed(error);
        }
        let named = match self.resolve_refs(settings, wanted).await {
            Ok(named) => named,
            Err(error) => {
                if error.failure == FetchFailure::Unauthorized {
                    // The next check reads the credential anew.
                    self.opened = None;
                }
                return all_failed(error);
            }
        };
        let mut tips = Tips::new();
        self.fetched.clear();
        self.note_moving(&named);
        for (reference, id) in named {
            let tip = match id {
                Ok(id) => self.fetch_commit(&reference, id).await,
                Err(error) => Err(error),
            };
            self.fetched.extend(tip.iter().map(|tip| tip.commit));
            tips.insert(reference, tip);
        }
        tips
    }

    /// What a ref names, if that was read to its end before.
    fn known_tip(&self, reference: &GitReference, id: ObjectId) -> Option<Tip> {
        self.done.get(reference).map(|done| done.tip).filter(|tip| tip.commit == id)
    }

    fn note_moving(&self, named: &BTreeMap<GitReference, Result<ObjectId, GitError>>) {
        let has_moved = |(reference, id): &(&GitReference, &Result<ObjectId, GitError>)| {
            id.as_ref().is_ok_and(|id| self.known_tip(reference, *id).is_none())
        };
        let moving: BTreeSet<_> =
            named.iter().filter(has_moved).map(|(reference, _)| reference.clone()).collect();
        self.shared.status.send_if_modified(|status| {
            let changed = status.moving != moving;
            status.moving = moving;
            changed
        });
    }

    async fn open(
        &mut self,
        organization: OrganizationId,
        settings: &ProjectSettings,
        host: Option<&str>,
    ) -> Result<(), GitError> {
        let same = |opened: &Opened| opened.settings == *settings && opened.host.as_deref() == host;
        if self.opened.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.opened = None;
        self.done.clear();
        self.builds.clear();
        let location = Location::parse(&settings.repository)?;
        let login = self.login(settings, host, &location).await?;
        let poller = &self.poller;
        let key = events::id::derived_uuid(&[
            organization.0.as_bytes(),
            self.project.0.as_bytes(),
            settings.repository.as_bytes(),
        ]);
        let folder = poller.args.repositories.join(key.hyphenated().to_string());
        let repository = poller.deps.repositories.open(location, login, folder).await?;
        *self.shared.objects.lock() = Some(repository.objects());
        self.opened = Some(Opened { settings: settings.clone(), host: host.map(str::to_owned), repository });
        Ok(())
    }

    /// The credential of the project's settings, if it has one. It goes to its own host only.
    async fn login(
        &self,
        settings: &ProjectSettings,
        host: Option<&str>,
        location: &Location,
    ) -> Result<Option<Login>, GitError> {
        let (Some(credential), Location::Remote(url)) = (settings.credential, location) else {
            return Ok(None);
        };
        if !host.is_some_and(|host| host.eq_ignore_ascii_case(&url.authority)) {
            return Err(GitError::refused(format!(
                "the credential may only be sent to {}, the repository is on {}",
                host.unwrap_or("no host"),
                url.authority
            )));
        }
        let secret = self.poller.deps.keys.get(KeyName::Credential(credential)).await;
        let secret = secret.map_err(|error| GitError::unreachable(error.to_string()))?;
        match secret {
            Some(secret) => Login::new(&secret).map(Some),
            None => Err(GitError::refused("the credential was revoked; give the project another one")),
        }
    }

    async fn resolve_refs(
        &mut self,
        settings: &ProjectSettings,
        wanted: &BTreeMap<GitReference, RefInterest>,
    ) -> Result<BTreeMap<GitReference, Result<ObjectId, GitError>>, GitError> {
        let names: Vec<String> =
            wanted.keys().filter_map(|reference| ref_name(reference, settings)).collect();
        let Some(opened) = &mut self.opened else {
            return Err(GitError::broken("the repository is not open"));
        };
        let found =
            if names.is_empty() { BTreeMap::new() } else { opened.repository.references(&names).await? };
        let resolve = |reference: &GitReference| match (reference, ref_name(reference, settings)) {
            (GitReference::Commit(id), _) => {
                parse_id(id).ok_or_else(|| GitError::not_found(format!("{id} is no full commit id")))
            }
            (_, Some(name)) => found
                .get(&name)
                .copied()
                .ok_or_else(|| GitError::not_found(format!("the repository has no {name}"))),
            (_, None) => Err(GitError::not_found(format!("the repository has no {reference}"))),
        };
        Ok(wanted.keys().map(|reference| (reference.clone(), resolve(reference))).collect())
    }

    /// Fetches a commit unless it is here, and finds its tree.
    pub(super) async fn fetch_commit(
        &mut self,
        reference: &GitReference,
        id: ObjectId,
    ) -> Result<Tip, GitError> {
        if let Some(tip) = self.known_tip(reference, id) {
            return Ok(tip);
        }
        let tips = self.tips();
        let Some(opened) = &mut self.opened else {
            return Err(GitError::broken("the repository is not open"));
        };
        match opened.repository.ensure(&[id], &tips).await {
            Err(error) if error.failure == FetchFailure::Broken => {
                tracing::warn!(project = %self.project, %error, "fetching the whole repository again");
                opened.repository.fetch_anew(&[tips.as_slice(), &[id]].concat()).await?;
            }
            ensured => ensured?,
        }
        let objects = opened.repository.objects();
        let (commit, tree) = self.poller.blocking(move || objects.reader().commit_and_tree(&id)).await?;
        Ok(Tip { commit, tree })
    }

    /// Handles a ref's tip: announces that it moved, builds its sources, appends what is new. False when the log did not take it; it
    /// is then tried again.
    pub(super) async fn advance(
        &mut self,
        organization: OrganizationId,
        reference: &GitReference,
        tip: Tip,
        wanted: &RefInterest,
        cause: &Cause,
    ) -> Result<bool, GitError> {
        let moved = self.shared.status.borrow().tips.get(reference) != Some(&tip.commit);
        if let Some(opened) = &self.opened {
            *self.shared.objects.lock() = Some(opened.repository.objects());
        }
        self.shared.status.send_modify(|status| {
            status.tips.insert(reference.clone(), tip.commit);
            status.checked.insert(reference.clone(), self.began);
            status.failures.remove(reference);
        });
        let seen = self.ref_check(organization, reference, cause).seen;
        let done = self.done.get(reference);
        let known =
            done.is_some_and(|done| done.tip == tip && done.wanted == *wanted && done.version == seen);
        if known && !moved {
            return Ok(true);
        }
        let (project, commit) = (self.project, tip.commit);
        let span = tracing::info_span!("repo-poller.advance", %project, %reference, %commit);
        let cause = Cause {
            traceparent: traces::traceparent_of(&span).or_else(|| cause.traceparent.clone()),
            ..cause.clone()
        };
        let advance = async {
            if moved {
                let configuration = self.configuration(tip.tree).await;
                self.poller.announce(project, reference, &commit, configuration, &cause).await;
            }
            if known {
                Ok(true)
            } else {
                self.build_and_append(organization, reference, tip, wanted, &cause).await
            }
        };
        advance.instrument(span).await
    }

    /// Git's id of the folder of configuration files, empty when there is none; `None` when it cannot be read.
    async fn configuration(&self, tree: ObjectId) -> Option<String> {
        let objects = self.opened.as_ref()?.repository.objects();
        let finder = Arc::clone(&self.shared.finder);
        let find = move || finder.folder(&mut objects.reader(), tree, FOLDER);
        let read = self.poller.blocking(find).await;
        match read {
            Ok(folder) => Some(folder.map_or_else(String::new, |id| id.to_string())),
            Err(error) => {
                tracing::info!(project = %self.project, %error, "the folder of configuration files cannot be read");
                None
            }
        }
    }

    /// Builds the sources of a ref at its tip, and appends what is new.
    async fn build_and_append(
        &mut self,
        organization: OrganizationId,
        reference: &GitReference,
        tip: Tip,
        wanted: &RefInterest,
        cause: &Cause,
    ) -> Result<bool, GitError> {
        let sources = by_rules(wanted);
        let mut built = match self.build(reference, tip.tree, sources.clone()).await {
            Err(error) if error.failure == FetchFailure::Broken => {
                self.build_anew(reference, tip, sources.clone()).await?
            }
            built => built?,
        };
        if let Some(build) = self.builds.get(reference)
            && let Err(error) = self.poller.refuse_losses(organization, build, &sources, &mut built).await
        {
            tracing::warn!(project = %self.project, %reference, %error, "last good bundle cannot be read");
            self.builds.clear();
            self.files = FileCache::default();
            return Ok(false);
        }
        let check = self.ref_check(organization, reference, cause);
        let version = self.poller.append_built(check, &tip.commit, built, wanted).await;
        match version {
            Some(version) => {
                self.seen.insert(reference.clone(), version);
                self.done.insert(reference.clone(), Done { tip, wanted: wanted.clone(), version });
            }
            // Contents may not be stored: everything is parsed and stored again.
            None => {
                self.builds.clear();
                self.files = FileCache::default();
            }
        }
        Ok(version.is_some())
    }

    /// What was fetched turned out to be damaged: fetches everything once more.
    async fn build_anew(
        &mut self,
        reference: &GitReference,
        tip: Tip,
        sources: SourcesByRules,
    ) -> Result<Built, GitError> {
        let mut wants = self.tips();
        wants.push(tip.commit);
        let Some(opened) = &mut self.opened else {
            return Err(GitError::broken("the repository is not open"));
        };
        tracing::warn!(project = %self.project, "fetched data is damaged, fetching again");
        opened.repository.fetch_anew(&wants).await?;
        *self.shared.objects.lock() = Some(opened.repository.objects());
        self.done.clear();
        self.builds.clear();
        self.files = FileCache::default();
        self.build(reference, tip.tree, sources).await
    }

    async fn build(
        &mut self,
        reference: &GitReference,
        tree: ObjectId,
        sources: SourcesByRules,
    ) -> Result<Built, GitError> {
        let Some(opened) = &self.opened else { return Err(GitError::broken("the repository is not open")) };
        let objects = opened.repository.objects();
        let limits = self.poller.args.build_limits();
        let _permit = self.poller.building.acquire().await;
        let mut build = self.builds.remove(reference).unwrap_or_default();
        let mut files = std::mem::take(&mut self.files);
        let (build, files, built) = self
            .poller
            .blocking(move || {
                let built = build.build(&mut objects.reader(), &mut files, tree, &sources, &limits)?;
                Ok((build, files, built))
            })
            .await?;
        self.builds.insert(reference.clone(), build);
        self.files = files;
        tracing::debug!(project = %self.project, %reference, statistics = ?built.statistics, "built");
        Ok(built)
    }

    /// The bundle of a source at any commit, for pinning. Changes nothing of what is watched.
    pub(super) async fn bundle_at(
        &mut self,
        source: SourceId,
        commit: &str,
    ) -> Result<BundleAtCommit, Refusal> {
        let known = self.poller.fold.read(|state| {
            let wanted = state.wanted(source)?;
            Some((state.organization_of(wanted.agent)?, wanted))
        });
        let Some((organization, wanted)) = known else { return Err(Refusal::not_found("the source")) };
        let tips = self.tips();
        let Some(opened) = &mut self.opened else {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                "the repository cannot be read now; see the source's state",
            ));
        };
        let git = |error: GitError| Refusal::new(RefusalKind::Conflict, error.message);
        let id = match parse_id(commit) {
            Some(id) => id,
            None => {
                let found = opened.repository.find_commit(commit, &tips).await;
                found.map_err(|error| Refusal::invalid("commit", error.message))?
            }
        };
        let tip = self.fetch_commit(&GitReference::Commit(id.to_string()), id).await.map_err(git)?;
        let rules = Rules::of(&wanted.resources, &wanted.source);
        let sources = SourcesByRules::from([(rules, vec![(source, wanted.agent)])]);
        let objects = match &self.opened {
            Some(opened) => opened.repository.objects(),
            None => return Err(Refusal::new(RefusalKind::Unavailable, "the repository is not open")),
        };
        let limits = self.poller.args.build_limits();
        let wanted = sources.clone();
        let built = self.poller.blocking(move || {
            let mut build = RefBuild::default();
            let (mut reader, mut files) = (objects.reader(), FileCache::default());
            let built = build.build(&mut reader, &mut files, tip.tree, &wanted, &limits)?;
            Ok((build, built))
        });
        let (build, mut built) = built.await.map_err(git)?;
        let checked = self.poller.refuse_losses(organization, &build, &sources, &mut built).await;
        checked.map_err(|error| Refusal::new(RefusalKind::Unavailable, error.to_string()))?;
        self.store_pinned(organization, tip, built).await
    }

    async fn store_pinned(
        &self,
        organization: OrganizationId,
        tip: Tip,
        built: Built,
    ) -> Result<BundleAtCommit, Refusal> {
        let unavailable = |error: BlobError| Refusal::new(RefusalKind::Unavailable, error.to_string());
        let blobs = &self.poller.deps.blobs;
        let Some((.., outcome)) = built.outcomes.into_iter().next() else {
            return Err(Refusal::not_found("the source"));
        };
        match outcome {
            Outcome::Bundle { root, objects, .. } => {
                blobs.put(organization, built.contents).await.map_err(unavailable)?;
                let bundle = blobs.address(organization, root).await.map_err(unavailable)?;
                Ok(BundleAtCommit { commit: tip.commit.to_string(), bundle, objects })
            }
            Outcome::Rejected { findings, .. } => {
                let first =
                    findings.first().map(|finding| format!("{}: {}", finding.place(), finding.message));
                Err(Refusal::new(
                    RefusalKind::Conflict,
                    format!("commit {} cannot be applied: {}", tip.commit, first.unwrap_or_default()),
                ))
            }
        }
    }
}

fn by_rules(wanted: &RefInterest) -> SourcesByRules {
    let mut sources = SourcesByRules::new();
    for (id, wanted) in &wanted.sources {
        let rules = Rules::of(&wanted.resources, &wanted.source);
        sources.entry(rules).or_default().push((*id, wanted.agent));
    }
    sources
}

/// An outcome with its bundle's address, and of which files it was made.
pub(super) fn decided(
    outcome: Outcome,
    selection: Option<Sha256>,
    address: impl Fn(Sha256) -> Result<BlobDigest, BlobError>,
) -> Result<Decided, BlobError> {
    Ok(match outcome {
        Outcome::Bundle { root, objects, takes_no_file, warnings } => {
            Decided::Bundle { bundle: address(root)?, objects, warnings, takes_no_file, selection }
        }
        Outcome::Rejected { findings, more, warnings } => Decided::Rejected { findings, more, warnings },
    })
}
