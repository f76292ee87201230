//! Settings.

use std::path::PathBuf;

use objects::size::REQUEST_BYTES;

use crate::bundle::{BuildLimits, FileLimits};
use crate::git::repository::GitLimits;

/// Settings of repo-poller.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Folder for what was fetched of repositories; a cache that may be thrown away.
    #[arg(long, env = "KASBAH_REPOSITORIES", value_name = "FOLDER")]
    pub repositories: PathBuf,
    /// Lets repositories lie on this machine and its networks.
    #[arg(long, env = "KASBAH_ALLOW_PRIVATE_ADDRESSES")]
    pub allow_private_addresses: bool,
    /// Lets repositories be read over HTTP without TLS: manifests and credentials can be read and changed on the way.
    #[arg(long, env = "KASBAH_ALLOW_PLAIN_HTTP")]
    pub allow_plain_http: bool,
    /// Lets repositories be folders of this machine.
    #[arg(long, env = "KASBAH_ALLOW_LOCAL_PATHS")]
    pub allow_local_paths: bool,
    /// Certificate authorities of Git servers, in PEM form, beside the machine's own.
    #[arg(long, env = "KASBAH_GIT_CA_FILE", value_name = "FILE")]
    pub git_ca_file: Option<PathBuf>,
    /// Largest pack that is fetched, in bytes.
    #[arg(long, env = "KASBAH_MAXIMUM_PACK_BYTES", default_value_t = 1024 * 1024 * 1024, value_name = "BYTES")]
    pub maximum_pack_bytes: u64,
    /// Largest manifest file, in bytes.
    #[arg(long, env = "KASBAH_MAXIMUM_FILE_BYTES", default_value_t = FileLimits::default().bytes, value_name = "BYTES")]
    pub maximum_file_bytes: u64,
    /// Most text of one object, in bytes; more than the default only where etcd takes larger requests.
    #[arg(
        long,
        env = "KASBAH_MAXIMUM_OBJECT_BYTES",
        default_value_t = FileLimits::default().object_bytes,
        value_name = "BYTES",
        value_parser = object_bytes
    )]
    pub maximum_object_bytes: usize,
    /// Most objects of one source.
    #[arg(
        long,
        env = "KASBAH_MAXIMUM_SOURCE_OBJECTS",
        default_value_t = BuildLimits::default().objects,
        value_name = "COUNT"
    )]
    pub maximum_source_objects: usize,
    /// Most bytes of all files of one source.
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
        return Err(format!("at most {REQUEST_BYTES}, as API servers read no more of a request"));
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
