//! Verdicts on objects: by themselves, and of workloads with the reason that their pods give.

use std::collections::BTreeSet;
use std::sync::Arc;

use events::requests::index::HealthState;
use events::{AgentId, Timestamp};
use objects::health::{HealthOptions, depends_on_more, evaluate, with_pods};
use serde_json::Value;

use super::facts::Special;
use super::index::{Index, Slot};
use super::record::{Kind, Record, Rule, Verdict};
use super::relations::{Relation, Target};

/// Version of the rules that judge: part of each answer.
pub const RULES: u32 = 1;

/// Controllers between a pod and its workload.
pub(super) const LEVELS: usize = 4;
/// Pods that are not well which a workload is judged with: one gives the reason.
const PODS: usize = 20;

/// Events about one workload that it is judged with.
const WARNINGS: usize = 20;

/// The verdict on an object by itself, in a cluster with these options.
#[must_use]
pub fn own_verdict(body: &Value, at: Timestamp, options: &HealthOptions) -> Verdict {
    Verdict::from(evaluate(body, at.0, options))
}

/// The verdict on an object until its imported rule is asked, where it has one: that comes behind deletion and what the configuration declares,
/// and before the rules that are known here. `former` is the verdict before the object changed.
#[must_use]
pub fn before_imported(
    index: &Index,
    (agent, kind): (AgentId, &Kind),
    own: Verdict,
    former: &Verdict,
) -> Verdict {
    let is_imported = own.leaves_to_imported() && index.imported_rule(agent, kind).is_some();
    if is_imported { Verdict::asking(former) } else { own }
}

/// What an object of a kind is judged with in its cluster: the rules of its agent's configuration, and claims of volumes with the classes of
/// storage that are there.
#[must_use]
pub fn options_of(index: &Index, agent: AgentId, kind: &Kind) -> HealthOptions {
    let is_claim = kind.is("", "PersistentVolumeClaim");
    let first_consumer_classes = if is_claim { index.late_classes(agent) } else { BTreeSet::new() };
    let rules = index.rules(agent).cloned().unwrap_or_default();
    HealthOptions { first_consumer_classes, rules, ..HealthOptions::default() }
}

/// The claims that are to be judged again after some objects changed: all that are open, where a class of storage did.
#[must_use]
pub fn claims_beside(index: &Index, changed: &[Slot]) -> BTreeSet<Slot> {
    let classes = changed.iter().filter_map(|slot| index.get(*slot));
    let classes = classes.filter(|record| record.kind.is("storage.k8s.io", "StorageClass"));
    let agents: BTreeSet<AgentId> = classes.map(|record| record.agent).collect();
    let claim = Kind::new("", "PersistentVolumeClaim");
    let all = agents.into_iter().flat_map(|agent| index.of_kind(agent, &claim));
    let is_open = |slot: &Slot| {
        index.get(*slot).is_some_and(|claim| claim.is_there() && claim.own.state == HealthState::Progressing)
    };
    all.filter(is_open).collect()
}

/// Whether pods may give the reason for what a workload says of itself.
#[must_use]
pub fn asks_pods(record: &Record) -> bool {
    let is_workload = matches!(
        (&*record.kind.group, &*record.kind.kind),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job")
            | ("argoproj.io", "Rollout")
            | ("", "ReplicationController")
    );
    let is_open = matches!(record.own.state, HealthState::Progressing | HealthState::Degraded);
    is_workload
        && is_open
        && record.is_there()
        && !record.own.terminating
        && record.own.rule != Rule::Imported
}

/// The workloads that are to be judged with their pods after some objects changed: those themselves, and what controls them.
#[must_use]
pub fn workloads_above(index: &Index, changed: impl IntoIterator<Item = Slot>) -> BTreeSet<Slot> {
    let mut found = BTreeSet::new();
    for slot in changed {
        let mut at = told_of(index, slot);
        for _ in 0..LEVELS {
            let Some(record) = at.and_then(|at| index.get(at)) else { break };
            found.extend(at);
            at = controller_of(index, record);
        }
    }
    found
}

/// The object whose workload is concerned: of an Event that tells of a refused pod, the one that was to have it.
fn told_of(index: &Index, slot: Slot) -> Option<Slot> {
    let record = index.get(slot)?;
    match record.special() {
        Some(Special::RefusedPodOf(uid)) => index.by_uid(record.agent, uid),
        _ => Some(slot),
    }
}

/// The object that controls another one, where it is known; it may be gone.
#[must_use]
pub fn controller_of(index: &Index, record: &Record) -> Option<Slot> {
    record.facts.links.iter().find_map(|link| match (&link.relation, &link.target) {
        (Relation::Controls, Target::Uid(uid, key)) => index.owner(record.agent, uid, &key.kind),
        _ => None,
    })
}

/// Whether the verdict on an object by itself was the same at each moment since it changed last, under the rules by which it was made.
#[must_use]
pub fn was_always(record: &Record) -> bool {
    let (kind, own) = (&record.kind, &record.own);
    // What is well now was well before.
    let is_well = matches!(own.state, HealthState::Healthy | HealthState::None);
    let is_of_rule = matches!(own.rule, Rule::Deletion | Rule::Declared | Rule::BuiltIn | Rule::Generic);
    let depends_on_object = is_of_rule && !depends_on_more(&kind.group, &kind.kind);
    own.recheck_at.is_none() && !own.asks && (is_well || depends_on_object)
}

/// What reads the newest body of an object.
pub type ReadBody<'a> = dyn Fn(&Record) -> Option<Arc<Value>> + 'a;

/// The verdict on a workload with its pods, where they change it.
#[must_use]
pub fn verdict_with_pods(index: &Index, slot: Slot, now: Timestamp, body: &ReadBody<'_>) -> Option<Verdict> {
    let workload = index.get(slot).filter(|record| asks_pods(record))?;
    let (options, object) = (options_of(index, workload.agent, &workload.kind), body(workload)?);
    let own = evaluate(&object, now.0, &options)?;
    let (pods, makers) = pods_to_ask(index, workload);
    let pods: Vec<Arc<Value>> = pods.into_iter().filter_map(body).collect();
    let mut refusing: Vec<&Record> =
        makers.iter().flat_map(|maker| index.refusing(maker.agent, &maker.uid)).collect();
    refusing.sort_by_key(|event| std::cmp::Reverse(event.changed_at));
    let warnings: Vec<Arc<Value>> = refusing.into_iter().take(WARNINGS).filter_map(body).collect();
    let judged = Verdict::from(Some(with_pods(&object, own, &pods, &warnings, now.0, &options)));
    (judged != *workload.own).then_some(judged)
}

/// The same where all verdicts of objects by themselves are of that instant: nothing is read where no pod can give a reason.
#[must_use]
pub fn verdict_with_judged_pods(
    index: &Index,
    slot: Slot,
    now: Timestamp,
    body: &ReadBody<'_>,
) -> Option<Verdict> {
    let workload = index.get(slot).filter(|record| asks_pods(record))?;
    let (pods, makers) = pods_to_ask(index, workload);
    let is_well = |pod: &&Record| {
        pod.own.state == HealthState::Healthy && pod.own.rule == Rule::BuiltIn && pod.own.recheck_at.is_none()
    };
    let is_refused = makers.iter().any(|maker| index.refusing(maker.agent, &maker.uid).next().is_some());
    let gives_none = pods.iter().all(is_well) && !is_refused && workload.own.recheck_at.is_none();
    if gives_none { None } else { verdict_with_pods(index, slot, now, body) }
}

/// The newest pod of a workload, which tells its newest template, and those that are not well: others give no reason. And what makes its
/// pods: itself, and what stands between.
fn pods_to_ask<'a>(index: &'a Index, workload: &'a Record) -> (Vec<&'a Record>, Vec<&'a Record>) {
    let mut makers = vec![workload];
    let mut pods: Vec<&Record> = Vec::new();
    let mut owners = vec![workload];
    for _ in 0..LEVELS {
        let mut below = Vec::new();
        for owner in &owners {
            let controlled =
                index.caused_how(owner).into_iter().filter(|(how, _)| *how == Relation::Controls);
            let controlled = controlled.filter_map(|(_, slot)| index.get(slot));
            for record in controlled.filter(|record| record.is_there()) {
                if record.kind.is("", "Pod") {
                    pods.push(record);
                } else if asks_pods_of(record) {
                    below.push(record);
                }
            }
        }
        makers.extend(&below);
        owners = below;
    }
    pods.sort_by_key(|pod| (std::cmp::Reverse(pod.facts.created_at.time()), pod.name.clone()));
    let is_well = |pod: &Record| matches!(pod.own.state, HealthState::Healthy | HealthState::None);
    let newest = pods.first().copied();
    let unwell = pods.iter().skip(1).filter(|pod| !is_well(pod)).take(PODS);
    (newest.into_iter().chain(unwell.copied()).collect(), makers)
}

/// Whether an object between a workload and its pods is one whose pods count: a Deployment's ReplicaSets.
fn asks_pods_of(record: &Record) -> bool {
    record.kind.is("apps", "ReplicaSet")
}
