//! How an object is doing, judged from what it says about itself.
//!
//! Evaluation goes: deletion under way, then a rule that the configuration declares, then the built-in rule of the kind, then the generic rules that controllers follow
//! by convention (observed generation, the conditions Reconciling, Stalled and Ready). Conditions are looked up by
//! type, never by position, and those of an older generation do not count. The instant is a parameter: what changes with time alone says so in
//! [`Health::recheck_at`].

mod below;
mod gateway;
mod generic;
mod network;
mod pod;
mod rules;
mod scaling;
mod storage;
mod view;
mod workloads;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::below::{selector_of_pods, with_pods};
pub use self::rules::{MAXIMUM_RULES, RuleSet, expressions_of, rule_for, version_of};
pub use self::storage::binds_on_first_use;
use self::view::View;
use crate::identity::split_api_version;
use serde_json::Value;

/// How an object is doing, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthStatus {
    /// What was asked for is there.
    Healthy,
    /// Stopped on purpose.
    Suspended,
    /// On its way, or waiting.
    Progressing,
    /// Not there at all.
    Missing,
    /// Failed, or failing.
    Degraded,
    /// Cannot be told.
    Unknown,
}

impl HealthStatus {
    /// The status in a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Suspended => "Suspended",
            Self::Progressing => "Progressing",
            Self::Missing => "Missing",
            Self::Degraded => "Degraded",
            Self::Unknown => "Unknown",
        }
    }
}

impl std::fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which rule judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleSource {
    /// The object is being deleted, whatever its kind.
    Deletion,
    /// A rule that the configuration declares.
    Declared,
    /// A rule for the kind.
    BuiltIn,
    /// The conventions that most controllers follow.
    Generic,
    /// There was no object to judge.
    Absence,
}

/// The verdict on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How it is doing.
    pub status: HealthStatus,
    /// Why, for people; empty when there is nothing to say.
    pub message: String,
    /// Being deleted.
    pub terminating: bool,
    /// No wait brings it about, so nothing is to wait for it: for something that may never come here (a load balancer's address, a
    /// volume's first consumer, metrics for an autoscaler), for a CronJob's next run, or for a pod that is counted under its Job.
    pub optional: bool,
    /// When to judge again even if the object does not change; milliseconds since 1970.
    pub recheck_at: Option<i64>,
    /// Which rule judged.
    pub source: RuleSource,
}

impl Health {
    /// A verdict of a kind's own rule.
    fn new(status: HealthStatus, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            terminating: false,
            optional: false,
            recheck_at: None,
            source: RuleSource::BuiltIn,
        }
    }

    fn healthy() -> Self {
        Self::new(HealthStatus::Healthy, "")
    }

    fn progressing(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Progressing, message)
    }

    fn degraded(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Degraded, message)
    }

    fn suspended(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Suspended, message)
    }

    const fn optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self
    }

    /// The verdict on an object that should be there and is not.
    #[must_use]
    pub fn missing() -> Self {
        Self { source: RuleSource::Absence, ..Self::new(HealthStatus::Missing, "not in the cluster") }
    }

    /// Whether a wait for this object may end well: healthy, stopped on purpose, or nothing that waiting brings about.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.terminating
            && match self.status {
                HealthStatus::Healthy | HealthStatus::Suspended => true,
                HealthStatus::Progressing | HealthStatus::Degraded => self.optional,
                HealthStatus::Missing | HealthStatus::Unknown => false,
            }
    }
}

/// What may be decided otherwise from one cluster to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthOptions {
    /// How long a pod may be unschedulable before it is degraded, in milliseconds. Default five minutes.
    pub unschedulable_after_ms: i64,
    /// A Service of type LoadBalancer without an address is optional. Default yes.
    pub load_balancer_optional: bool,
    /// An Ingress without an address is optional. Default yes.
    pub ingress_optional: bool,
    /// Names of the storage classes that bind a volume only when its first consumer is scheduled: a claim that
    /// waits for one is optional. Default none.
    pub first_consumer_classes: BTreeSet<String>,
    /// Rules that the configuration declares. Default none.
    pub rules: Arc<RuleSet>,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            unschedulable_after_ms: 5 * 60 * 1000,
            load_balancer_optional: true,
            ingress_optional: true,
            first_consumer_classes: BTreeSet::new(),
            rules: Arc::default(),
        }
    }
}

/// Judges a live object that states its `apiVersion` and `kind`, at the instant `now_ms` (milliseconds since 1970). `None`: it has no
/// health, as there is no rule for its kind and it tells nothing of itself; nothing waits for it, and it counts in no roll-up.
#[must_use]
pub fn evaluate(object: &Value, now_ms: i64, options: &HealthOptions) -> Option<Health> {
    let view = View::new(object);
    if object.as_object().is_none() {
        return Some(Health::new(HealthStatus::Unknown, "not an object"));
    }
    if !view.at("metadata.deletionTimestamp").is_null() {
        return Some(Health {
            terminating: true,
            source: RuleSource::Deletion,
            ..Health::progressing(deletion_message(view))
        });
    }
    let api_version = view.text("apiVersion").unwrap_or_default();
    let Some((group, _)) = split_api_version(api_version) else {
        return Some(Health::new(HealthStatus::Unknown, "the object states no apiVersion"));
    };
    let kind = view.text("kind").unwrap_or_default();
    let declared = options.rules.judge(group, kind, view);
    declared.or_else(|| built_in(group, kind, view, now_ms, options)).or_else(|| generic::rule(view))
}

/// Whether being there is all that can be asked of objects of a kind: only their metadata is looked at, so that values of Secrets and large
/// contents are never fetched. No declared rule judges them.
#[must_use]
pub fn is_known_by_metadata(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "",
            "ConfigMap"
                | "Secret"
                | "ServiceAccount"
                | "LimitRange"
                | "ResourceQuota"
                | "Endpoints"
                | "PodTemplate"
        ) | (
            "rbac.authorization.k8s.io"
                | "scheduling.k8s.io"
                | "node.k8s.io"
                | "admissionregistration.k8s.io"
                | "storage.k8s.io",
            _
        ) | ("networking.k8s.io", "NetworkPolicy" | "IngressClass")
            | ("discovery.k8s.io", _)
    )
}

/// Whether the verdict on objects of a kind may be another one although they are as they were: it depends on the time, or on other objects.
#[must_use]
pub fn depends_on_more(group: &str, kind: &str) -> bool {
    matches!((group, kind), ("", "Pod" | "PersistentVolumeClaim"))
}

/// The worst of several statuses; `None` of none, which is a state of its own and not healthy.
#[must_use]
pub fn worst(statuses: impl IntoIterator<Item = HealthStatus>) -> Option<HealthStatus> {
    statuses.into_iter().max()
}

fn deletion_message(view: View<'_>) -> String {
    let finalizers: Vec<&str> =
        view.list("metadata.finalizers").iter().filter_map(|finalizer| finalizer.value().as_str()).collect();
    if finalizers.is_empty() {
        "being deleted".to_owned()
    } else {
        format!("being deleted, waits for {}", finalizers.join(", "))
    }
}

fn built_in(group: &str, kind: &str, view: View<'_>, now_ms: i64, options: &HealthOptions) -> Option<Health> {
    // What has to be asked before the controller's view of the object counts.
    let rule: &dyn Fn() -> Health = match (group, kind) {
        ("", "Pod") => return Some(pod::rule(view, now_ms, options)),
        ("apps" | "extensions", "Deployment") => return Some(workloads::deployment(view)),
        ("apps" | "extensions", "ReplicaSet") => &|| workloads::replica_set(view),
        ("", "ReplicationController") => &|| workloads::replica_set(view),
        ("apps", "StatefulSet") => &|| workloads::stateful_set(view),
        ("apps" | "extensions", "DaemonSet") => &|| workloads::daemon_set(view),
        ("batch", "Job") => &|| workloads::job(view),
        ("batch", "CronJob") => &|| workloads::cron_job(view),
        ("argoproj.io", "Rollout") => &|| workloads::rollout(view),
        ("argoproj.io", "Workflow") => &|| workloads::workflow(view),
        ("", "Service") => &|| network::service(view, options),
        ("networking.k8s.io" | "extensions", "Ingress") => &|| network::ingress(view, options),
        ("apiregistration.k8s.io", "APIService") => &|| scaling::api_service(view),
        ("autoscaling", "HorizontalPodAutoscaler") => &|| scaling::autoscaler(view),
        ("policy", "PodDisruptionBudget") => &|| scaling::disruption_budget(view),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &|| scaling::definition(view),
        ("", "PersistentVolumeClaim") => &|| storage::claim(view, options),
        ("gateway.networking.k8s.io", "Gateway") => &|| gateway::gateway(view),
        ("gateway.networking.k8s.io", "GatewayClass") => &|| gateway::gateway_class(view),
        ("gateway.networking.k8s.io", "HTTPRoute" | "GRPCRoute") => &|| gateway::route(view),
        ("gateway.networking.k8s.io", "BackendTLSPolicy") => &|| gateway::backend_tls_policy(view),
        _ => return None,
    };
    Some(generic::stale(view).unwrap_or_else(rule))
}

#[cfg(test)]
mod tests;
