//! The programs' command lines and the files that they read.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rcgen::KeyPair;
use serde_json::json;

use super::ControlPlaneOptions;
use crate::pki::write_private;
use crate::{Authority, Folder, Process, Tools};

/// The first address of the service range, under which pods reach the API server.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// An address of the range for documentation.
const UNREACHABLE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVICE_RANGE: &str = "10.0.0.0/24";

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) tools: Tools,
    pub(super) folder: Folder,
    pub(super) options: ControlPlaneOptions,
    pub(super) etcd_port: u16,
    pub(super) peer_port: u16,
    pub(super) port: u16,
}

pub(super) struct Tokens {
    pub(super) administrator: String,
    pub(super) controller_manager: String,
    pub(super) scheduler: String,
}

impl Launch {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    /// Certificates, the service accounts' key, tokens, audit policy. A kept folder keeps the service accounts' key,
    /// so that tokens in the cluster stay valid.
    pub(super) fn write_files(&self, authority: &Authority) -> Result<Tokens> {
        let write = |name: &str, text: &str| {
            fs::write(self.path(name), text).with_context(|| format!("cannot write {name}"))
        };
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), SERVICE_ADDRESS];
        addresses.extend(self.options.reachable_at);
        authority.server(&names, &addresses)?.write(self.folder.path(), "api-server")?;
        authority
            .client("kube-apiserver-kubelet-client", &["system:masters"])?
            .write(self.folder.path(), "kubelet-client")?;
        write("ca.crt", authority.certificate())?;
        if !self.path("service-accounts.key").exists() {
            let key = KeyPair::generate()?;
            write("service-accounts.pub", &key.public_key_pem())?;
            write_private(&self.path("service-accounts.key"), &key.serialize_pem())?;
        }
        if let Some(policy) = self.options.audit.policy() {
            write("audit-policy.json", &policy.to_string())?;
        }
        let tokens = Tokens {
            administrator: random_token()?,
            controller_manager: random_token()?,
            scheduler: random_token()?,
        };
        write_private(&self.path("tokens.csv"), &self.token_file(&tokens))?;
        Ok(tokens)
    }

    fn token_file(&self, tokens: &Tokens) -> String {
        let mut lines = vec![
            format!("{},admin,admin,\"system:masters\"", tokens.administrator),
            format!("{0},{1},{1},\"\"", tokens.controller_manager, "system:kube-controller-manager"),
            format!("{0},{1},{1},\"\"", tokens.scheduler, "system:kube-scheduler"),
        ];
        for user in &self.options.users {
            lines.push(format!("{},{},{},\"{}\"", user.token, user.name, user.name, user.groups.join(",")));
        }
        lines.join("\n") + "\n"
    }

    /// What the node's programs need, in the node's own folder.
    pub(super) fn write_node_files(&self, authority: &Authority, folder: &Path) -> Result<()> {
        use crate::cluster_node::{ADDRESS, HOST, NAME};
        let server = format!("https://{HOST}:{}", self.port);
        fs::write(folder.join("ca.crt"), authority.certificate()).context("cannot write ca.crt")?;
        authority.server(&[NAME], &[IpAddr::V4(ADDRESS)])?.write(folder, "kubelet-server")?;
        for (file, user, groups) in [
            ("kubelet", format!("system:node:{NAME}"), &["system:nodes"][..]),
            ("kube-proxy", "system:kube-proxy".to_owned(), &[]),
        ] {
            let (certificate, key) = authority.client(&user, groups)?.write(folder, file)?;
            let config = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "testbed", "cluster": {
                    "server": server, "certificate-authority": folder.join("ca.crt"),
                }}],
                "users": [{"name": user, "user": {"client-certificate": certificate, "client-key": key}}],
                "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
                "current-context": "testbed",
            });
            write_private(&folder.join(format!("{file}.kubeconfig")), &config.to_string())?;
        }
        Ok(())
    }

    pub(super) fn etcd(&self) -> Result<Process> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new(self.tools.path("etcd")?);
        command.arg("--data-dir").arg(self.path("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"]);
        if self.options.directory.is_none() {
            command.arg("--unsafe-no-fsync");
        }
        Process::spawn("etcd", command, &self.path("etcd.log"))
    }

    pub(super) fn api_server(&self) -> Result<Process> {
        let mut command = Command::new(self.tools.path("kube-apiserver")?);
        let mut file = |flag: &str, name: &str| {
            command.arg(flag).arg(self.path(name));
        };
        file("--tls-cert-file", "api-server.crt");
        file("--tls-private-key-file", "api-server.key");
        file("--client-ca-file", "ca.crt");
        file("--token-auth-file", "tokens.csv");
        file("--service-account-key-file", "service-accounts.pub");
        file("--service-account-signing-key-file", "service-accounts.key");
        file("--kubelet-client-certificate", "kubelet-client.crt");
        file("--kubelet-client-key", "kubelet-client.key");
        if self.options.reachable_at.is_some() {
            file("--kubelet-certificate-authority", "ca.crt");
        }
        if self.options.audit.policy().is_some() {
            file("--audit-policy-file", "audit-policy.json");
            file("--audit-log-path", "audit.log");
            command.args(["--audit-log-maxsize", "100000"]);
        }
        command.args(["--etcd-servers", &format!("http://127.0.0.1:{}", self.etcd_port)]);
        command.args(["--secure-port", &self.port.to_string()]);
        let (bind, advertise) = match self.options.reachable_at {
            Some(address) => (Ipv4Addr::UNSPECIFIED, address),
            // Said although nobody uses it: without, the API server wants a default route to find one.
            None => (Ipv4Addr::LOCALHOST, UNREACHABLE),
        };
        command.args(["--bind-address", &bind.to_string(), "--advertise-address", &advertise.to_string()]);
        command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        command.args(["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"]);
        command.args(["--service-cluster-ip-range", SERVICE_RANGE, "--allow-privileged"]);
        command.args(["--kubelet-preferred-address-types", "InternalIP,Hostname"]);
        command.args(&self.options.api_server_flags);
        Process::spawn("kube-apiserver", command, &self.path("kube-apiserver.log"))
    }

    pub(super) fn controller_manager(&self, kubeconfig: &Path) -> Result<Process> {
        let mut command = Command::new(self.tools.path("kube-controller-manager")?);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--service-account-private-key-file").arg(self.path("service-accounts.key"));
        command.arg("--root-ca-file").arg(self.path("ca.crt"));
        command.args(["--use-service-account-credentials", "--leader-elect=false", "--secure-port=0"]);
        command.args(["--controllers=*,-nodeipam", "--kube-api-qps=1000", "--kube-api-burst=2000"]);
        Process::spawn("kube-controller-manager", command, &self.path("kube-controller-manager.log"))
    }

    pub(super) fn scheduler(&self, kubeconfig: &Path) -> Result<Process> {
        let mut command = Command::new(self.tools.path("kube-scheduler")?);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args([
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
        ]);
        Process::spawn("kube-scheduler", command, &self.path("kube-scheduler.log"))
    }
}

fn random_token() -> Result<String> {
    use ring::rand::SecureRandom;
    let mut bytes = [0_u8; 24];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("the machine gives no randomness"))?;
    Ok(hex::encode(bytes))
}
