//! Kubeconfigs that differ from the cluster's own.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Authority, Cluster};

/// A kubeconfig with another token.
pub fn with_token(cluster: &Cluster, token: &str, path: &Path) {
    changed(cluster, path, |config| config["users"][0]["user"] = json!({"token": token}));
}

/// A kubeconfig with another address.
pub fn at(cluster: &Cluster, server: &str, path: &Path) {
    changed(cluster, path, |config| config["clusters"][0]["cluster"]["server"] = json!(server));
}

/// A kubeconfig with another address, which another authority vouches for.
pub fn of_authority(cluster: &Cluster, server: &str, authority: &Authority, path: &Path) {
    let certificate = STANDARD.encode(authority.certificate());
    changed(cluster, path, |config| {
        config["clusters"][0]["cluster"] =
            json!({"server": server, "certificate-authority-data": certificate});
    });
}

fn changed(cluster: &Cluster, path: &Path, change: impl FnOnce(&mut Value)) {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}
