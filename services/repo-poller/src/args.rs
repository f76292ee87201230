//! Settings.

use std::path::PathBuf;

use objects::size::REQUEST_BYTES;

use crate::bundle::{BuildLimits, FileLimits};
use crate::git::repository::GitLimits;

/// Settings of repo-poller.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Folder for fetched repositories; a cache that may be deleted.
    #[arg(long, env = "KASBAH_REPOSITORIES", value_name = "FOLDER")]
    pub repositories: PathBuf,
    /// Allow repositories on this machine and its private networks.
    #[arg(long, env = "KASBAH_ALLOW_PRIVATE_ADDRESSES")]
    pub allow_private_addresses: bool,
    /// Allow repositories over HTTP without TLS: others can read and change manifests and credentials on the network.
    #[arg(long, env = "KASBAH_ALLOW_PLAIN_HTTP")]
    pub allow_plain_http: bool,
    /// Allow repositories in folders of this machine.
    #[arg(long, env = "KASBAH_ALLOW_LOCAL_PATHS")]
    pub allow_local_paths: bool,
    /// PEM file with certificate authorities of Git servers, in addition to the machine's own.
    #[arg(long, env = "KASBAH_GIT_CA_FILE", value_name = "FILE")]
    pub git_ca_file: Option<PathBuf>,
    /// Maximum size of a fetched pack, in bytes.
    #[arg(long, env = "KASBAH_MAXIMUM_PACK_BYTES", default_value_t = 1024 * 1024 * 1024, value_name = "BYTES")]
    pub maximum_pack_bytes: u64,
    /// Maximum size of a manifest file, in bytes.
    #[arg(long, env = "KASBAH_MAXIMUM_FILE_BYTES", default_value_t = FileLimits::default().bytes, value_name = "BYTES")]
    pub maximum_file_bytes: u64,
    /// Maximum text size of one object, in bytes; raise it only if etcd accepts larger requests.
    #[arg(
        long,
        env = "KASBAH_MAXIMUM_OBJECT_BYTES",
        default_value_t = FileLimits::default().object_bytes,
        value_name = "BYTES",
        value_parser = object_bytes
    )]
    pub maximum_object_bytes: usize,
    /// Maximum number of objects of one source.
    #[arg(
        long,
        env = "KASBAH_MAXIMUM_SOURCE_OBJECTS",
        default_value_t = BuildLimits::default().objects,
        value_name = "COUNT"
    )]
    pub maximum_source_objects: usize,
    /// Maximum size of all files of one source, in bytes.
    #[arg(
        long,
        env = "KASBAH_MAXIMUM_SOURCE_BYTES",
        default_value_t = BuildLimits::default().bytes,
        value_name = "BYTES"
    )]
    pub maximum_source_bytes: u64,
}

fn object_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if bytes > REQUEST_BYTES {
        return Err(format!("at most {REQUEST_BYTES}, the maximum request size of API servers"));
    }
    Ok(bytes)
}

impl Args {
    /// The defaults, with this folder.
    #[must_use]
    pub fn with_folder(repositories: PathBuf) -> Self {
        let limits = BuildLimits::default();
        Self {
            repositories,
            allow_private_addresses: false,
            allow_plain_http: false,
            allow_local_paths: false,
            git_ca_file: None,
            maximum_pack_bytes: 1024 * 1024 * 1024,
            maximum_file_bytes: limits.file.bytes,
            maximum_object_bytes: limits.file.object_bytes,
            maximum_source_objects: limits.objects,
            maximum_source_bytes: limits.bytes,
        }
    }

    pub(crate) fn build_limits(&self) -> BuildLimits {
        BuildLimits {
            file: FileLimits {
                bytes: self.maximum_file_bytes,
                object_bytes: self.maximum_object_bytes,
                ..FileLimits::default()
            },
            objects: self.maximum_source_objects,
            bytes: self.maximum_source_bytes,
            ..BuildLimits::default()
        }
    }

    pub(crate) const fn git_limits(&self) -> GitLimits {
        GitLimits { local_paths_allowed: self.allow_local_paths, pack_bytes: self.maximum_pack_bytes }
    }
}
