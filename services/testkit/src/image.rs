//! Container images without a registry: any static program as an OCI layout that containerd imports.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// What goes into an image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    reference: String,
    entries: Vec<Entry>,
    config: Value,
}

#[derive(Debug, Clone)]
enum Entry {
    Folder { path: String, mode: u32 },
    Program { path: String, source: PathBuf },
    Text { path: String, text: &'static str },
    Link { path: String, target: &'static str },
}

impl Image {
    /// One static program as the entry point, run as the unprivileged user 65532, in an otherwise empty file system.
    pub fn of_program(reference: &str, program: &Path) -> Self {
        let entries = vec![
            Entry::Program { path: "entrypoint".into(), source: program.to_owned() },
            Entry::Folder { path: "tmp".into(), mode: 0o1777 },
        ];
        let config = json!({"Entrypoint": ["/entrypoint"], "Env": ["PATH=/"], "User": "65532:65532", "WorkingDir": "/"});
        Self { reference: reference.to_owned(), entries, config }
    }

    /// A static busybox with all of its commands, laid out like the public image of that name.
    pub fn of_busybox(reference: &str, busybox: &Path) -> Result<Self> {
        let list = Command::new(busybox).arg("--list").output().context("cannot run busybox")?;
        let mut entries: Vec<Entry> =
            ["bin", "etc", "home", "usr", "usr/bin", "var", "var/www", "dev", "proc", "sys", "run"]
                .into_iter()
                .map(|path| Entry::Folder { path: path.to_owned(), mode: 0o755 })
                .collect();
        entries.push(Entry::Folder { path: "root".into(), mode: 0o700 });
        entries.push(Entry::Folder { path: "tmp".into(), mode: 0o1777 });
        entries.push(Entry::Program { path: "bin/busybox".into(), source: busybox.to_owned() });
        for name in String::from_utf8_lossy(&list.stdout).split_whitespace().filter(|name| *name != "busybox")
        {
            entries.push(Entry::Link { path: format!("bin/{name}"), target: "busybox" });
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n";
        entries.push(Entry::Text { path: "etc/passwd".into(), text: passwd });
        entries.push(Entry::Text { path: "etc/group".into(), text: "root:x:0:\nnobody:x:65534:\n" });
        let config = json!({"Cmd": ["sh"], "Env": ["PATH=/bin:/usr/bin"]});
        Ok(Self { reference: reference.to_owned(), entries, config })
    }

    /// The full reference, such as `docker.io/library/busybox:1.36`.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Writes the image as an OCI layout in a tar file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let layer = self.layer()?;
        let layer_digest = sha256(&layer);
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        }))?;
        let described = |media_type: &str, blob: &[u8]| {
            json!({
                "mediaType": format!("application/vnd.oci.image.{media_type}"),
                "digest": format!("sha256:{}", sha256(blob)),
                "size": blob.len(),
            })
        };
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("config.v1+json", &config),
            "layers": [described("layer.v1.tar", &layer)],
        }))?;
        let mut entry = described("manifest.v1+json", &manifest);
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("platform".into(), json!({"architecture": architecture(), "os": "linux"}));
            fields.insert("annotations".into(), json!({"io.containerd.image.name": self.reference}));
        }
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;

        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut tar = tar::Builder::new(file);
        append(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut tar, "index.json", 0o644, &index)?;
        for blob in [&layer, &config, &manifest] {
            append(&mut tar, &format!("blobs/sha256/{}", sha256(blob)), 0o644, blob)?;
        }
        tar.into_inner()?.flush()?;
        Ok(())
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for entry in &self.entries {
            match entry {
                Entry::Program { path, source } => {
                    let bytes =
                        fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
                    append(&mut tar, path, 0o755, &bytes)?;
                }
                Entry::Text { path, text } => append(&mut tar, path, 0o644, text.as_bytes())?,
                Entry::Folder { path, mode } => {
                    let mut header = header(tar::EntryType::Directory, *mode, 0);
                    tar.append_data(&mut header, path, std::io::empty())?;
                }
                Entry::Link { path, target } => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, path, target)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, bytes.len() as u64);
    Ok(tar.append_data(&mut header, path, bytes)?)
}

/// Always the same bytes for the same content: no times, no users.
fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::Folder;

    #[test]
    fn every_digest_names_a_blob_of_the_archive() {
        let folder = Folder::temporary().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, b"\x7fELF and so on").unwrap();
        let path = folder.path().join("image.tar");
        Image::of_program("example.com/agent:1", &program).write(&path).unwrap();

        let mut files = std::collections::HashMap::new();
        for entry in tar::Archive::new(File::open(&path).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = &files[&format!("blobs/sha256/{digest}")];
            assert_eq!(descriptor["size"], bytes.len());
            assert_eq!(sha256(bytes), digest);
            bytes.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "example.com/agent:1");
        let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
        assert!(layer.windows(4).any(|bytes| bytes == b"\x7fELF"));
    }
}
