//! The harness: real parts for tests, for the load scenarios and for `cargo xtask`.
//!
//! Purpose: start real programs on this machine (an API server with etcd, a node with containers, a Git server
//! over HTTP), inject faults (kill, restart, disconnect, delay), and wait for conditions instead of sleeping.
//!
//! Laws:
//! - Every started program ends with its handle, and with the process that started it, even if that process is
//!   killed.
//! - Ports, folders and names are free ones, so any number of tests can run in parallel.
//! - A missing part is an error that names the command to get it. Only limits of the machine (no root, no
//!   namespaces), and an [`OptionalClient`] that was not built, are a [`Skipped`] with its reason.
//!
//! Deliberately absent: mocks, knowledge of Kasbah's own services (so that it can drive them all
//! from outside), and a Kubernetes client beyond plain requests and `kubectl`.
#![allow(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a harness measures real time, runs on a runtime of its own, and fails a test by panicking"
)]

mod admin;
mod background;
mod balancer;
mod chromium;
mod client_library;
mod cluster;
pub mod cluster_node;
mod collector;
mod control_plane;
mod dice;
mod eventually;
mod fake_nodes;
mod git_server;
pub mod graphql;
mod image;
mod installation;
mod nats_server;
mod node;
mod node_js;
mod oidc_provider;
mod optional_client;
mod pki;
mod ports;
mod process;
mod programs;
mod proxy;
mod replicas;
mod shared;
mod tls_front;
mod token_issuer;
mod tools;
mod web_page;
mod work_tree;
mod workspace;

pub use admin::admin_page;
pub use balancer::Balancer;
pub use chromium::{drive_chromium, drive_chromium_for};
pub use client_library::client_library;
pub use cluster::{Answer, Cluster, client_trusting, tls_trusting};
pub use collector::{Collector, Span};
pub use control_plane::{Audit, ControlPlane, ControlPlaneOptions, User};
pub use dice::Dice;
pub use eventually::eventually;
pub use fake_nodes::FakeNodes;
pub use git_server::{Fault, GitRequest, GitServer, GitServerOptions, Push, Webhook, WebhookStyle};
pub use image::Image;
pub use installation::{ALLOWED_ON_THIS_MACHINE, Installation, InstallationOptions};
pub use nats_server::{NatsCluster, NatsServer};
pub use node::Node;
pub use node_js::{
    CHROMIUM, CLIENT_LIBRARY, NODE_JS, NpmPackages, OIDC_PROVIDER, WEB_PAGE, node_js, node_js_name,
};
pub use oidc_provider::{Browser, OidcProvider, Page};
pub use optional_client::{K9S, KUBECTL_1_29, KUBECTL_1_31, LONG_TESTS, OptionalClient, tests_are_long};
pub use pki::{Authority, Certified, write_private};
pub use ports::free_port;
pub use process::{Process, memory_of};
pub use programs::{STATIC_AGENT, as_at_a_prompt, build_static_agent, cargo, program, static_agent};
pub use proxy::Proxy;
pub use replicas::{Replicas, ReplicasOptions};
pub use rustix::process::Signal;
pub use shared::{SHARED_KUBECONFIG, SharedControlPlane, shared_control_plane};
pub use tls_front::{TlsFront, tls_showing};
pub use token_issuer::{IssuerFault, TokenIssuer};
pub use tools::{
    ETCD, HELM, KUBERNETES, KWOK, NATS_SERVER, TESTBED_BIN, Tools, cache_folder, node_parts_name, promtool,
    promtool_name, wrong_clock,
};
pub use web_page::{axe, build_web_page};
pub use work_tree::WorkTree;
pub use workspace::Folder;

/// Why something that this machine cannot do was left out; tests print it and return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}
