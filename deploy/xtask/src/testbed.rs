//! The control plane on this machine: built from its sources once, started and stopped by a word.

mod hold;
mod node_js;
mod packages;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use testkit::{
    ETCD, HELM, K9S, KUBECTL_1_29, KUBECTL_1_31, KUBERNETES, KWOK, NATS_SERVER, OptionalClient,
    tests_are_long,
};

pub use hold::Testbed;

use crate::golang::{self, Build};
use crate::report;

#[derive(Subcommand)]
pub enum Command {
    /// Build what is missing: about ten minutes the first time, nothing afterwards.
    Build(Extent),
    /// Start a control plane in the background, with a real node if possible.
    Up(Place),
    /// Stop the control plane and keep its data.
    Down(Place),
    /// Print the path of the control plane's kubeconfig.
    Kubeconfig(Place),
    /// Run the control plane in the foreground until it receives a signal.
    #[command(hide = true)]
    Hold(Place),
}

#[derive(clap::Args)]
pub struct Extent {
    /// Include clients for long tests only: older releases of kubectl, and k9s. Takes about eight more minutes, once.
    #[arg(long)]
    all_clients: bool,
}

#[derive(clap::Args)]
pub struct Place {
    /// Folder for data, logs and kubeconfig.
    #[arg(long, default_value = ".kasbah/testbed")]
    directory: PathBuf,
    /// Use fake nodes even if a real one is possible.
    #[arg(long)]
    fake_nodes: bool,
}

impl Place {
    fn directory(&self) -> Result<PathBuf> {
        Ok(report::root()?.join(&self.directory))
    }
}

pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Build(extent) => build_for_tests(extent.all_clients),
        Command::Up(place) => {
            build(&[])?;
            hold::up(&place.directory()?, place.fake_nodes)
        }
        Command::Down(place) => hold::down(&place.directory()?),
        Command::Kubeconfig(place) => hold::kubeconfig(&place.directory()?),
        Command::Hold(place) => hold::hold(&place.directory()?, place.fake_nodes),
    }
}

/// Builds everything that is not in the cache yet, and gets what only tests use besides.
pub fn build_for_tests(all_clients: bool) -> Result<()> {
    build(ALL)?;
    if all_clients || tests_are_long() {
        for build in [
            older_kubectl(&KUBECTL_1_29, "kubectl-1.29"),
            older_kubectl(&KUBECTL_1_31, "kubectl-1.31"),
            k9s(),
        ] {
            build.run()?;
        }
    }
    packages::promtool();
    node_js::oidc_provider()?;
    node_js::client_library()?;
    node_js::web_page()?;
    node_js::chromium()
}

/// What somebody starts besides a control plane with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What plays nodes where no real one can be had.
    FakeNodes,
    /// NATS servers.
    Nats,
    /// The client that charts are installed with.
    Helm,
}

/// Everything.
pub const ALL: &[Part] = &[Part::FakeNodes, Part::Nats, Part::Helm];

impl Part {
    /// Builds it where it is not in the cache yet.
    pub fn build(self) -> Result<()> {
        self.program().run()
    }

    fn program(self) -> Build<'static> {
        match self {
            Self::FakeNodes => kwok(),
            Self::Nats => nats_server(),
            Self::Helm => helm(),
        }
    }
}

/// Builds a control plane's programs, and those of `parts`, that are not in the cache yet.
pub fn build(parts: &[Part]) -> Result<()> {
    golang::check()?;
    for build in programs(parts) {
        build.run()?;
    }
    packages::node_parts()
}

/// What [`build`] would build now, each with how long that takes.
pub fn missing(parts: &[Part]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for build in programs(parts) {
        if !build.is_done()? {
            missing.push(format!("{} ({})", build.name, build.takes));
        }
    }
    Ok(missing)
}

fn programs(parts: &[Part]) -> impl Iterator<Item = Build<'static>> {
    [kubernetes(), etcd()].into_iter().chain(parts.iter().map(|part| part.program()))
}

/// Without these the server calls itself v0.0.0, and clients take it for an ancient one.
fn kubernetes_version(release: &str) -> String {
    let version = "k8s.io/component-base/version";
    let minor = release.split('.').nth(1).unwrap_or_default();
    format!(
        "-s -w -X {version}.gitVersion={release} -X {version}.gitMajor=1 -X {version}.gitMinor={minor} \
         -X {version}.gitTreeState=clean"
    )
}

fn kubernetes() -> Build<'static> {
    Build {
        name: format!("kubernetes-{KUBERNETES}"),
        module: "kubernetes",
        packages: &[
            ("k8s.io/kubernetes/cmd/kube-apiserver", ""),
            ("k8s.io/kubernetes/cmd/kube-controller-manager", ""),
            ("k8s.io/kubernetes/cmd/kube-scheduler", ""),
            ("k8s.io/kubernetes/cmd/kubectl", ""),
            ("k8s.io/kubernetes/cmd/kubelet", ""),
            ("k8s.io/kubernetes/cmd/kube-proxy", ""),
        ],
        linker_flags: kubernetes_version(KUBERNETES),
        takes: "about 7 minutes on two cores",
    }
}

fn etcd() -> Build<'static> {
    Build {
        name: format!("etcd-{ETCD}"),
        module: "etcd",
        packages: &[("go.etcd.io/etcd/server/v3", "etcd")],
        linker_flags: String::new(),
        takes: "about half a minute",
    }
}

fn kwok() -> Build<'static> {
    Build {
        name: format!("kwok-{KWOK}"),
        module: "kwok",
        packages: &[("sigs.k8s.io/kwok/cmd/kwok", "kwok")],
        linker_flags: String::new(),
        takes: "about two minutes",
    }
}

fn nats_server() -> Build<'static> {
    Build {
        name: format!("nats-server-{NATS_SERVER}"),
        module: "nats-server",
        packages: &[("github.com/nats-io/nats-server/v2", "nats-server")],
        linker_flags: String::new(),
        takes: "less than a minute",
    }
}

fn helm() -> Build<'static> {
    Build {
        name: format!("helm-{HELM}"),
        module: "helm",
        packages: &[("helm.sh/helm/v3/cmd/helm", "helm")],
        linker_flags: "-s -w".to_owned(),
        takes: "about two minutes",
    }
}

fn older_kubectl(client: &OptionalClient, module: &'static str) -> Build<'static> {
    Build {
        name: client.cache_name(),
        module,
        packages: &[(".", "kubectl")],
        linker_flags: kubernetes_version(client.release),
        takes: "about a minute and a half",
    }
}

fn k9s() -> Build<'static> {
    Build {
        name: K9S.cache_name(),
        module: "k9s",
        packages: &[("github.com/derailed/k9s", "k9s")],
        linker_flags: format!("-s -w -X github.com/derailed/k9s/cmd.version={}", K9S.release),
        takes: "about five minutes",
    }
}

/// The kubeconfig that a running testbed in this folder writes.
pub fn kubeconfig_in(directory: &Path) -> PathBuf {
    directory.join("admin.kubeconfig")
}
