//! Service meshes: what a pod and a policy say of mutual TLS.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::selector::Selector;

/// Ports of one policy that are kept.
const PORTS: usize = 50;
/// Environment variable by which Linkerd's injector tells a proxy what it lets in.
const LINKERD_POLICY: &str = "LINKERD2_PROXY_INBOUND_DEFAULT_POLICY";

/// Whether connections to a workload are encrypted and both sides known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mtls {
    /// Never.
    Off,
    /// Where the other side can.
    Permissive,
    /// Always: other connections are refused.
    Strict,
}

impl Mtls {
    /// As it is answered.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Permissive => "permissive",
            Self::Strict => "strict",
        }
    }

    /// A mode of Istio; `None`: that of the policy above.
    fn of_istio(mode: &str) -> Option<Self> {
        match mode {
            "DISABLE" => Some(Self::Off),
            "PERMISSIVE" => Some(Self::Permissive),
            "STRICT" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// A `PeerAuthentication` of Istio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerAuthentication {
    /// The pods that it is for; `None`: all of its namespace, or of the mesh.
    pub selector: Option<Selector>,
    /// The mode; `None`: that of the policy above.
    pub mode: Option<Mtls>,
    /// Other modes of ports.
    pub ports: Box<[(u16, Mtls)]>,
}

impl PeerAuthentication {
    pub(super) fn of(body: &Value) -> Self {
        let mode = |value: &Value, pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).and_then(Mtls::of_istio)
        };
        let ports = body.pointer("/spec/portLevelMtls").and_then(Value::as_object);
        let ports = ports.into_iter().flatten();
        let ports = ports.filter_map(|(port, value)| Some((port.parse().ok()?, mode(value, "/mode")?)));
        Self {
            selector: Selector::of_labels(body, "/spec/selector/matchLabels"),
            mode: mode(body, "/spec/mtls/mode"),
            ports: ports.take(PORTS).collect(),
        }
    }
}

/// The proxy of a pod that is in a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// Istio's, beside the containers.
    Istio,
    /// Istio's, on the node.
    Ambient,
    /// Linkerd's, and what it lets in where no policy says otherwise.
    Linkerd(Mtls),
}

impl Proxy {
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let containers = ["/spec/initContainers", "/spec/containers"];
        let containers = containers.into_iter().filter_map(|pointer| pod.pointer(pointer)?.as_array());
        for container in containers.flatten() {
            match container.get("name").and_then(Value::as_str) {
                Some("istio-proxy") => return Some(Self::Istio),
                Some("linkerd-proxy") => return Some(Self::Linkerd(linkerd_mode(container))),
                _ => {}
            }
        }
        let annotations = pod.pointer("/metadata/annotations");
        let redirection = annotations.and_then(|all| all.get("ambient.istio.io/redirection")?.as_str());
        (redirection == Some("enabled")).then_some(Self::Ambient)
    }

    /// The mesh's name.
    #[must_use]
    pub const fn mesh(self) -> &'static str {
        match self {
            Self::Istio | Self::Ambient => "istio",
            Self::Linkerd(_) => "linkerd",
        }
    }
}

/// Linkerd's proxies always encrypt among each other; a strict one refuses all other connections.
fn linkerd_mode(proxy: &Value) -> Mtls {
    let variables = proxy.get("env").and_then(Value::as_array).into_iter().flatten();
    let mut policies = variables
        .filter(|variable| variable.get("name").and_then(Value::as_str) == Some(LINKERD_POLICY))
        .filter_map(|variable| variable.get("value")?.as_str());
    match policies.next() {
        Some("all-authenticated" | "cluster-authenticated" | "deny") => Mtls::Strict,
        _ => Mtls::Permissive,
    }
}
