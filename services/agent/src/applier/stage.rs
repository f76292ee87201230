//! One stage of a sync: all dry runs, then all writes in order, kind by kind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chassis::traces;
use events::ObjectIdentity;
use objects::order::Stage;
use serde_json::Value;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::concurrent::concurrently;
use super::context::Context;
use super::report::Report;
use super::write::{Checked, Failed};
use crate::kubernetes::client::CONCURRENCY;
use crate::kubernetes::{ApiError, Call, path};
use crate::model::cause::{Created, explains};
use crate::model::target::Target;

/// Definitions may take this long until their kinds are served.
const ESTABLISHED_DEADLINE: Duration = Duration::from_secs(60);

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StageEnd {
    /// All of it is applied.
    Done,
    /// Something failed; see the report.
    Failed,
    /// Another state is wanted by now.
    Superseded,
    /// This instance may not write any more.
    Lost,
}

impl Context {
    /// Dry-runs all, and applies all if no dry run failed but for the lack of what this stage creates, or what was `founded` before it.
    pub(super) async fn stage(
        &self,
        targets: &[&Target],
        founded: &[Target],
        report: &mut Report,
    ) -> StageEnd {
        let dry_run = tracing::info_span!("agent.dry-run", objects = targets.len());
        let (mut passed, failed) = self.check_all(targets).instrument(dry_run).await;
        if failed.iter().any(|(_, failed)| failed.is_loss_of_lease()) {
            return StageEnd::Lost;
        }
        let created = targets
            .iter()
            .enumerate()
            .filter(|(place, _)| passed.get(place).is_none_or(|checked| checked.prior.is_none()))
            .map(|(_, target)| *target);
        let created: Vec<Created<'_>> = created.chain(founded).map(created_by).collect();
        let mut real = Vec::new();
        let mut left_out = BTreeSet::new();
        for (place, failed) in failed {
            if failed.is_contested {
                report.contested = true;
                report.failed(failed.failure, false);
                left_out.insert(place);
                continue;
            }
            let caused = targets.get(place).zip(failed.error.as_ref()).is_some_and(|(target, error)| {
                created.iter().any(|created| explains(*created, &target.identity, error))
            });
            if !caused {
                real.push(failed);
            }
        }
        if !real.is_empty() {
            for failed in real {
                report.refused(*failed);
            }
            return StageEnd::Failed;
        }
        let mut place = 0;
        for group in targets.chunk_by(|left, right| same_kind(&left.identity, &right.identity)) {
            if self.is_superseded() {
                return StageEnd::Superseded;
            }
            let checked: Vec<(&Target, Option<Checked>)> = group
                .iter()
                .enumerate()
                .filter(|(offset, _)| !left_out.contains(&(place + offset)))
                .map(|(offset, target)| (*target, passed.remove(&(place + offset))))
                .collect();
            place += group.len();
            match self.apply_group(checked, report).await {
                StageEnd::Done => {}
                other => return other,
            }
        }
        StageEnd::Done
    }

    async fn check_all(&self, targets: &[&Target]) -> (BTreeMap<usize, Checked>, Vec<(usize, Failed)>) {
        let mut passed = BTreeMap::new();
        let mut failed = Vec::new();
        let checks = targets.iter().map(|target| self.check(target)).collect();
        for (place, result) in concurrently(checks, CONCURRENCY).await.into_iter().enumerate() {
            match result {
                Ok(checked) => {
                    passed.insert(place, checked);
                }
                Err(failure) => failed.push((place, failure)),
            }
        }
        (passed, failed)
    }

    /// Applies objects of one kind; those whose dry run had to wait for what came before have it now.
    async fn apply_group(&self, group: Vec<(&Target, Option<Checked>)>, report: &mut Report) -> StageEnd {
        let sync = Some(report.sync);
        let writes = group
            .into_iter()
            .map(|(target, checked)| async move {
                let checked = match checked {
                    Some(checked) => checked,
                    None => self.check_again(target).await?,
                };
                let span = self.object_span(|| {
                    tracing::info_span!("agent.apply", otel.kind = "client", otel.status_code = Empty, object = %target.identity, write = Empty)
                });
                let applied = self.apply(target, &checked, sync).instrument(span.clone()).await;
                match &applied {
                    Ok(write) => {
                        span.record("write", tracing::field::debug(write));
                    }
                    Err(_) => traces::failed(&span),
                }
                applied
            })
            .collect();
        let mut end = StageEnd::Done;
        for result in concurrently(writes, CONCURRENCY).await {
            match result {
                Ok(write) => report.wrote(write),
                Err(failed) if failed.is_loss_of_lease() => end = StageEnd::Lost,
                Err(failed) => {
                    report.refused(*failed);
                    if end == StageEnd::Done {
                        end = StageEnd::Failed;
                    }
                }
            }
        }
        end
    }

    /// A dry run whose cause was just created; its effect may take a moment to be seen by admission.
    async fn check_again(&self, target: &Target) -> Result<Checked, Failed> {
        let mut wait = Duration::from_millis(50);
        loop {
            match self.check(target).await {
                Err(failed)
                    if matches!(failed.error.as_ref().map_or(0, ApiError::code), 403 | 404)
                        && wait < Duration::from_secs(2) =>
                {
                    self.shared.world.clock.sleep(wait).await;
                    wait *= 2;
                }
                other => return other,
            }
        }
    }

    /// Waits until what the foundation defines can be used, and looks again at what the API server knows.
    pub(super) async fn wait_for_definitions(&self, applied: &[&Target], report: &mut Report) -> StageEnd {
        let definitions: Vec<&&Target> =
            applied.iter().filter(|target| target.identity.kind == "CustomResourceDefinition").collect();
        if definitions.is_empty() {
            return StageEnd::Done;
        }
        let end = self.shared.now() + ESTABLISHED_DEADLINE;
        for target in definitions {
            let mut wait = Duration::from_millis(20);
            while let Some(reason) = self.not_established(target).await {
                if self.is_superseded() {
                    return StageEnd::Superseded;
                }
                if self.shared.now() > end {
                    report.failed(
                        target.failure(format!("not established within {ESTABLISHED_DEADLINE:?}: {reason}")),
                        true,
                    );
                    return StageEnd::Failed;
                }
                self.shared.world.clock.sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(1));
            }
        }
        let waited = self.wait_for_kinds(end).await;
        self.shared.relay.notify_one();
        waited
    }

    async fn not_established(&self, target: &Target) -> Option<String> {
        let path = path::object(&target.resource, "", &target.identity.name)?;
        let live = match self.shared.kube.read(Call::get(path).as_account(self.account())).await {
            Ok(answer) => match answer.json::<Value>() {
                Ok(live) => live,
                Err(error) => return Some(error.to_string()),
            },
            Err(error) => return Some(error.to_string()),
        };
        let health = objects::health::evaluate(
            &live,
            self.shared.world.clock.now_millis(),
            &objects::health::HealthOptions::default(),
        );
        health.filter(|health| !health.is_settled()).map(|health| health.message)
    }

    /// Discovery follows a definition a moment later. Another state of the source ends the wait.
    pub(super) async fn wait_for_kinds(&self, end: Duration) -> StageEnd {
        let mut wait = Duration::from_millis(50);
        let mut views = self.shared.desired.subscribe();
        loop {
            views.mark_unchanged();
            let refreshed = self.shared.discovery.refresh(&self.shared.kube).await;
            let served = refreshed.is_ok() && !self.resolve().awaits_its_own();
            if self.is_superseded() {
                return StageEnd::Superseded;
            }
            if served || self.shared.now() > end {
                return StageEnd::Done;
            }
            tokio::select! {
                biased;
                _ = views.changed() => {}
                () = self.shared.world.clock.sleep(wait) => {}
            }
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }
}

fn created_by(target: &Target) -> Created<'_> {
    Created { identity: &target.identity, plural: &target.resource.plural }
}

fn same_kind(left: &ObjectIdentity, right: &ObjectIdentity) -> bool {
    left.kind == right.kind && left.group == right.group
}

/// Those of a stage, in order.
pub(super) fn of_stage<'a>(targets: &[&'a Target], stage: Stage) -> Vec<&'a Target> {
    targets.iter().copied().filter(|target| target.stage == stage).collect()
}
