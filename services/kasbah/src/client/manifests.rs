//! What installs an agent in a cluster as a pod.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::failure::Failure;
use super::print::yaml;

/// What the agent may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentReach {
    /// Everything in the cluster.
    Cluster,
    /// Only these namespaces.
    Namespaces(Vec<String>),
}

/// Everything that the manifests say.
#[derive(Clone)]
pub struct Installation {
    /// The agent's name.
    pub agent: String,
    /// Namespace that it runs in.
    pub namespace: String,
    /// What it may reach.
    pub reach: AgentReach,
    /// Its image.
    pub image: String,
    /// `host:port` that it dials.
    pub gateway: String,
    /// Its token.
    pub token: String,
    /// The certificate authority of the server, PEM; the image's own authorities if there is none.
    pub certificate_authority: Option<String>,
    /// Public root key that it pins.
    pub root_key: String,
}

/// Where the Secret is mounted.
const FOLDER: &str = "/etc/kasbah";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const ADMIN_PORT: u16 = 8442;
/// One applies, the other stands by.
const REPLICAS: u32 = 2;
/// The user that the image runs as.
const USER: u32 = 65_532;
/// Verbs that applying, watching and pruning need.
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

impl Installation {
    /// The objects, in the order in which they are to be applied.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![self.own_namespace(), self.service_account()];
        objects.extend(self.lease_rights());
        match &self.reach {
            AgentReach::Cluster => objects.extend(self.cluster_rights()),
            AgentReach::Namespaces(namespaces) => {
                objects.extend(namespaces.iter().flat_map(|namespace| self.namespace_rights(namespace)));
            }
        }
        objects.extend([self.secret(), self.deployment(), self.disruption_budget()]);
        objects
    }

    /// The objects as one YAML stream.
    ///
    /// # Errors
    /// When they cannot be expressed.
    pub fn yaml(&self) -> Result<String, Failure> {
        self.objects().iter().map(|object| Ok(format!("---\n{}", yaml(object)?))).collect()
    }

    fn name(&self) -> String {
        account_name(&self.agent)
    }

    /// Of objects that no namespace keeps apart from those of an agent of the same name.
    fn cluster_name(&self) -> String {
        format!("kasbah-agent:{}:{}", self.namespace, self.agent)
    }

    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/name": "kasbah-agent", "app.kubernetes.io/instance": self.agent})
    }

    fn metadata(&self, namespace: &str) -> Value {
        json!({"name": self.name(), "namespace": namespace, "labels": self.labels()})
    }

    fn own_namespace(&self) -> Value {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}})
    }

    fn service_account(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(&self.namespace)})
    }

    fn bound_role(&self, metadata: &Value, cluster: bool, rules: &Value) -> [Value; 2] {
        let kind = if cluster { "ClusterRole" } else { "Role" };
        bound_role(metadata, kind, rules, &(self.name(), &self.namespace))
    }

    /// The Lease that says which replica applies.
    fn lease_rights(&self) -> [Value; 2] {
        let name = format!("{}-lease", self.name());
        let metadata = json!({"name": name, "namespace": self.namespace, "labels": self.labels()});
        let verbs = ["get", "list", "watch", "create", "update", "patch"];
        self.bound_role(
            &metadata,
            false,
            &json!([
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
            ]),
        )
    }

    /// Whatever Git may hold, roles among it; as other service accounts where a source says so. As people and jobs only what
    /// `kasbah agent rights` prints of the agent's configuration.
    fn cluster_rights(&self) -> [Value; 2] {
        let metadata = json!({"name": self.cluster_name(), "labels": self.labels()});
        self.bound_role(&metadata, true, &json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": VERBS},
            {"apiGroups": [RBAC_GROUP], "resources": ["roles", "clusterroles"], "verbs": ["bind", "escalate"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        ]))
    }

    /// Everything in one namespace, but no right that it does not have itself.
    fn namespace_rights(&self, namespace: &str) -> [Value; 2] {
        self.bound_role(
            &self.metadata(namespace),
            false,
            &json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": VERBS},
                {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
            ]),
        )
    }

    fn secret(&self) -> Value {
        let entries = [
            ("token", Some(&self.token)),
            ("root-key", Some(&self.root_key)),
            ("ca.crt", self.certificate_authority.as_ref()),
        ];
        let data: serde_json::Map<String, Value> = entries
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), Value::String(STANDARD.encode(value?)))))
            .collect();
        let metadata = self.metadata(&self.namespace);
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data})
    }

    fn deployment(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(&self.namespace),
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": self.labels()},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": {"metadata": {"labels": self.labels()}, "spec": self.pod()},
            },
        })
    }

    fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": self.metadata(&self.namespace),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": self.labels()}},
        })
    }

    fn pod(&self) -> Value {
        json!({
            "serviceAccountName": self.name(),
            "terminationGracePeriodSeconds": 30,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": self.labels()},
            }],
            "containers": [self.container()],
            "volumes": [{"name": "kasbah", "secret": {"secretName": self.name(), "defaultMode": 0o440}}],
        })
    }

    fn container(&self) -> Value {
        let probe = |path: &str, seconds: u32| json!({"httpGet": {"path": path, "port": "admin"}, "periodSeconds": seconds, "timeoutSeconds": 5});
        json!({
            "name": "agent",
            "image": self.image,
            "env": self.environment(),
            "ports": [{"name": "admin", "containerPort": ADMIN_PORT}],
            "livenessProbe": probe("/healthz", 10),
            "readinessProbe": probe("/readyz", 5),
            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": "kasbah", "mountPath": FOLDER, "readOnly": true}],
        })
    }

    fn environment(&self) -> Value {
        let mut variables = vec![
            json!({"name": "KASBAH_SERVER", "value": self.gateway}),
            json!({"name": "KASBAH_TOKEN_FILE", "value": format!("{FOLDER}/token")}),
            json!({"name": "KASBAH_ROOT_KEY_FILE", "value": format!("{FOLDER}/root-key")}),
            json!({"name": "KASBAH_ADMIN_LISTEN", "value": format!("0.0.0.0:{ADMIN_PORT}")}),
            json!({"name": "KASBAH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}),
        ];
        if self.certificate_authority.is_some() {
            variables.push(json!({"name": "KASBAH_CA_FILE", "value": format!("{FOLDER}/ca.crt")}));
        }
        Value::Array(variables)
    }
}

/// The service account of an agent.
pub(super) fn account_name(agent: &str) -> String {
    format!("kasbah-agent-{agent}")
}

/// A role of this kind, and its binding to a service account, by name and namespace.
pub(super) fn bound_role(
    metadata: &Value,
    kind: &str,
    rules: &Value,
    (account, namespace): &(String, &str),
) -> [Value; 2] {
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": namespace});
    [
        json!({"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": RBAC, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": metadata.get("name")},
            "subjects": [subject],
        }),
    ]
}

#[cfg(test)]
mod tests;
