//! Stopping an environment together with the objects that its sources own.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use events::bundle::BundleRoot;
use events::request::RequestContext;
use events::requests::authz::Action;
use events::requests::environments::{PreviewStop, StopEnvironment, StopPreview, WithdrawnSource};
use events::{AggregateKind, AggregateRef, EnvironmentId, OrganizationId, Refusal, RefusalKind, SourceId};

use super::{decide, origin_of, origin_of_part};
use crate::driver::{Driver, EnvironmentDriver, chain};
use crate::model::{Command, Given, withdrawal};

/// What deleting all that a source owns needs: it is a pin, and lets a bundle through that would be held.
const NEEDED: [Action; 2] = [Action::PinSource, Action::ConfirmSource];

impl EnvironmentDriver {
    pub(super) async fn preview_stop(
        self: Arc<Self>,
        context: RequestContext,
        request: PreviewStop,
    ) -> Result<StopPreview, Refusal> {
        self.allowed(&context, request.environment, Action::StopEnvironment).await?;
        self.job_is_for(&context, request.environment).await?;
        let mut preview = StopPreview::default();
        for source in self.fold.read(|state| state.sources_into(request.environment)) {
            let visible = self.sources.allowed(&context, source, Action::ReadSource).await;
            if refused_by(visible)?.is_some() {
                preview.hidden += 1;
                continue;
            }
            let refused = refused_by(self.sources.may_withdraw(&context, source).await)?;
            let refused = refused.map(|refusal| refusal.message);
            let Some(found) = self.sources.withdrawal(&context, source).await? else { continue };
            preview.sources.push(WithdrawnSource { refused, ..found });
        }
        Ok(preview)
    }

    /// The sources that deploy into an environment, if the caller may have all of their objects deleted.
    pub(super) async fn may_withdraw(
        &self,
        context: &RequestContext,
        environment: EnvironmentId,
    ) -> Result<BTreeSet<SourceId>, Refusal> {
        let sources = self.fold.read(|state| state.sources_into(environment));
        for source in &sources {
            if let Some(refusal) = refused_by(self.sources.may_withdraw(context, *source).await)? {
                return Err(may_not_delete(&refusal));
            }
        }
        Ok(sources)
    }
}

impl Driver {
    async fn may_withdraw(&self, context: &RequestContext, source: SourceId) -> Result<(), Refusal> {
        for action in NEEDED {
            self.allowed(context, source, action).await?;
        }
        Ok(())
    }

    async fn withdrawal(
        &self,
        context: &RequestContext,
        source: SourceId,
    ) -> Result<Option<WithdrawnSource>, Refusal> {
        let needed = self.fold.read(|state| state.bundles_needed(source));
        let contents = self.bundles.contents(context.organization, &needed).await.map_err(|error| {
            tracing::error!(%source, error = %chain(&error), "what a source would delete cannot be determined");
            Refusal::new(RefusalKind::Unavailable, "a bundle cannot be read now; retry")
        })?;
        Ok(self.fold.read(|state| withdrawal(state, source, &contents)))
    }

    /// Has all objects of a source deleted. Once for each request, however often it is repeated.
    pub(super) async fn withdraw(
        &self,
        context: &RequestContext,
        source: SourceId,
        request: &StopEnvironment,
    ) -> Result<(), Refusal> {
        let bundle = self.without_objects(context.organization).await?;
        let aggregate = (context.organization, AggregateRef::new(AggregateKind::Source, source));
        let origin = origin_of(&self.deps.world, context, aggregate, request, Vec::new())?;
        // The request's own commit is the stop of the environment.
        let origin = origin_of_part(origin, "withdrawal", source.0);
        decide(&self.fold, &origin, &Given::Command { source, command: Command::Withdraw { bundle } })
            .await?;
        Ok(())
    }

    /// The bundle without objects, which is stored like any other.
    async fn without_objects(&self, organization: OrganizationId) -> Result<events::BlobDigest, Refusal> {
        let internal = |message: String| Refusal::new(RefusalKind::Internal, message);
        let root = events::encode(&BundleRoot { pages: Vec::new(), objects: 0 });
        let root = Bytes::from(root.map_err(|error| internal(error.to_string()))?);
        let stored = self.deps.blobs.put(organization, vec![root]).await.map_err(|error| {
            Refusal::new(
                RefusalKind::Unavailable,
                format!("an empty bundle cannot be stored: {error}; retry"),
            )
        })?;
        stored.first().copied().ok_or_else(|| internal("a stored blob has no address".to_owned()))
    }
}

/// The refusal where something is denied or not found; other ones, such as of an unavailable service, are errors.
fn refused_by(outcome: Result<(), Refusal>) -> Result<Option<Refusal>, Refusal> {
    match outcome {
        Ok(()) => Ok(None),
        Err(refusal) if matches!(refusal.kind, RefusalKind::Denied | RefusalKind::NotFound) => {
            Ok(Some(refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

/// A source that the caller may not see is refused in the same words as one that is not there.
fn may_not_delete(refusal: &Refusal) -> Refusal {
    let message = match refusal.kind {
        RefusalKind::Denied => format!("the objects of a source cannot be deleted: {}", refusal.message),
        _ => "the objects of a source that you may not see would be deleted; ask a maintainer of its agent's project, or stop \
              the environment without deleting objects"
            .to_owned(),
    };
    Refusal { field: Some("delete_objects".to_owned()), ..Refusal::new(RefusalKind::Denied, message) }
}
