//! Where the pinned programs of the testbed are.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

/// The pinned release of the API server, controller manager, scheduler, kubelet, kube-proxy and kubectl.
pub const KUBERNETES: &str = "v1.36.3";
/// The pinned release of etcd.
pub const ETCD: &str = "v3.6.8";
/// The pinned release of kwok, which plays nodes where no real one can be had.
pub const KWOK: &str = "v0.7.0";
/// The pinned release of helm.
pub const HELM: &str = "v3.22.0";
/// The pinned release of nats-server.
pub const NATS_SERVER: &str = "v2.15.2";
/// Environment variable that names a folder with all the programs, before the cache is looked at.
pub const TESTBED_BIN: &str = "KASBAH_TESTBED_BIN";

/// The folder for what is built or fetched once a version: `$KASBAH_CACHE`, else `kasbah` in the user's cache folder.
pub fn cache_folder() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(path) = absolute("KASBAH_CACHE") {
        return Ok(path);
    }
    if let Some(path) = absolute("XDG_CACHE_HOME") {
        return Ok(path.join("kasbah"));
    }
    let home = absolute("HOME").context("neither KASBAH_CACHE nor HOME is set to an absolute path")?;
    Ok(home.join(".cache").join("kasbah"))
}

/// Finds the programs of the testbed.
#[derive(Debug, Clone)]
pub struct Tools {
    folders: Vec<PathBuf>,
}

impl Tools {
    /// Looks in the folder named by [`TESTBED_BIN`], then in the cache.
    pub fn find() -> Result<Self> {
        let cache = cache_folder()?;
        let mut folders: Vec<PathBuf> = env::var_os(TESTBED_BIN).map(PathBuf::from).into_iter().collect();
        let tools = [
            format!("kubernetes-{KUBERNETES}"),
            format!("etcd-{ETCD}"),
            format!("kwok-{KWOK}"),
            format!("helm-{HELM}"),
            format!("nats-server-{NATS_SERVER}"),
        ];
        folders.extend(tools.iter().map(|tool| cache.join(tool).join("bin")));
        Ok(Self { folders })
    }

    /// The folder with containerd, runc and the other parts of a real node.
    pub fn node_parts(&self) -> Result<PathBuf> {
        let parts = cache_folder()?.join(node_parts_name());
        ensure!(
            parts.join("pause").is_file(),
            "the node's parts are missing: run `cargo xtask testbed build` once"
        );
        Ok(parts)
    }

    /// The library that has a program see another time.
    fn another_time(&self) -> Result<PathBuf> {
        let libraries = self.node_parts()?.join("usr/lib");
        let folders = std::fs::read_dir(&libraries)?.filter_map(Result::ok).map(|folder| folder.path());
        let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
        found.find(|path| path.is_file()).context("the package libfaketime is not to be had on this machine")
    }

    /// The path of one program, or an error that says how to get it.
    pub fn path(&self, program: &str) -> Result<PathBuf> {
        let found = self.folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
        match found {
            Some(path) => Ok(path),
            None => bail!("{program} is not built yet: run `cargo xtask testbed build` once"),
        }
    }
}

/// Variables with which a program sees a wall clock that is wrong by so many seconds. It measures time as ever.
///
/// # Errors
/// When this machine has no way to do that.
pub fn wrong_clock(seconds: i64) -> Result<Vec<(String, String)>> {
    let library = Tools::find()?.another_time()?;
    let variables = [
        ("LD_PRELOAD", library.to_string_lossy().into_owned()),
        ("FAKETIME", format!("{seconds:+}")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The folder of the node's parts in the cache: they come from the system's packages, so they are one set a release of it.
pub fn node_parts_name() -> String {
    format!("node-{}-2", system_release())
}

/// The folder of promtool in the cache, which comes from the system's packages, too.
pub fn promtool_name() -> String {
    format!("promtool-{}", system_release())
}

/// Prometheus' own check of rules: the one in the cache, else the one that is installed.
pub fn promtool() -> PathBuf {
    let cached = cache_folder().map(|cache| cache.join(promtool_name()).join("promtool"));
    cached.ok().filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("promtool"))
}

fn system_release() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or("any").trim_matches('"').to_owned()
    };
    format!("{}-{}", field("ID"), field("VERSION_ID"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_wrong_clock_is_wrong_by_as_much() {
        for off in [-7200, 7200] {
            let variables = match wrong_clock(off) {
                Ok(variables) => variables,
                Err(error) => {
                    println!("skipped: {error}");
                    return;
                }
            };
            let seen = Command::new("date").arg("+%s").envs(variables).output().unwrap();
            let seen: i64 = String::from_utf8_lossy(&seen.stdout).trim().parse().unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let apart = seen - i64::try_from(now).unwrap();
            assert!((apart - off).abs() < 600, "{apart} s");
        }
    }
}
