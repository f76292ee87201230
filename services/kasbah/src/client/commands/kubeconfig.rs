//! `kasbah kubeconfig`.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueHint;
use events::AgentId;
use serde_json::Value;

use crate::client::failure::Failure;
use crate::client::kubeconfig::{Context, Credential};
use crate::client::print::yaml;
use crate::client::session::Session;

/// The port of clusters' APIs when nothing says another.
const CLUSTERS_PORT: u16 = 8443;

/// Stands for an agent's id in the URL of clusters' APIs.
const AGENT: &str = "{agent}";

/// Which kubeconfig.
#[derive(Debug, clap::Args)]
pub struct Kubeconfig {
    /// Agent of the cluster: name, group/project:name, or id
    #[arg(long)]
    agent: String,
    /// Namespace for requests without one
    #[arg(long, short)]
    namespace: Option<String>,
    /// File for the context; by default ~/.kube/kasbah.yaml, which only Kasbah uses
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Write the context into your own kubeconfig: the first file of KUBECONFIG, or ~/.kube/config
    #[arg(long, conflicts_with = "file")]
    merge: bool,
    /// Make it the file's current context; by default it becomes current only if the file has none
    #[arg(long = "use")]
    is_used: bool,
    /// Print a kubeconfig with this context alone, and change no file
    #[arg(long, conflicts_with_all = ["file", "merge", "is_used"])]
    print: bool,
    /// URL of clusters' APIs; by default the server's setting, or the API's host with port 8443. With `{agent}` in it, each agent has
    /// its own host name
    #[arg(long, env = "KASBAH_CLUSTERS", value_name = "URL")]
    clusters: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When there is no such agent, or the file cannot be read or written.
pub async fn run(wanted: Kubeconfig, session: &Session) -> Result<(), Failure> {
    let agent = session.agent(&wanted.agent).await?;
    let clusters = clusters_url(session, wanted.clusters.as_deref());
    let context = Context {
        name: format!("{}:{}", agent.project_path, agent.name),
        server: url_of(&clusters, agent.id),
        certificate_authority: session.authority()?.map(|pem| STANDARD.encode(pem)),
        namespace: wanted.namespace,
        credential: Credential::Program(credential_program(session)?),
    };
    let wrong = |error: crate::client::kubeconfig::NoKubeconfig| Failure::usage("--file", error.to_string());
    if wanted.print {
        let alone = context.merge_into(Value::Null, true).map_err(wrong)?;
        return session.printer.text(yaml(&alone)?.trim_end());
    }
    let (given, merges) = (wanted.file, wanted.merge);
    let file = given.or_else(|| if merges { persons_file() } else { own_file() });
    let file = file
        .ok_or_else(|| Failure::usage("--file", "is required, because neither KUBECONFIG nor HOME is set"))?;
    let merged = context.merge_into(read(session, &file)?, wanted.is_used).map_err(wrong)?;
    write(session, &file, &yaml(&merged)?)?;
    let is_current = merged.get("current-context").and_then(Value::as_str) == Some(context.name.as_str());
    session.printer.text(&written_text(&context.name, &file, is_current, merges))
}

/// What was done, and how kubectl finds it.
fn written_text(context: &str, file: &Path, is_current: bool, is_found: bool) -> String {
    let file = file.display();
    let state = if is_current { "is current in" } else { "is in" };
    let mut text = format!("Context {context} {state} {file}.");
    let how = match (is_found, is_current) {
        (true, true) => return text,
        (true, false) => format!("kubectl --context {context} …"),
        (false, true) => format!("export KUBECONFIG={file}"),
        (false, false) => format!("kubectl --kubeconfig {file} --context {context} …"),
    };
    text.push_str(&format!("\nUse it with: {how}"));
    if !is_current {
        text.push_str("\nThe current context is unchanged: --use changes it.");
    }
    text
}

/// Where clusters' APIs are.
pub(super) fn clusters_url(session: &Session, given: Option<&str>) -> String {
    given.or(session.settings.clusters.as_deref()).map_or_else(
        || format!("https://{}:{CLUSTERS_PORT}", session.settings.host()),
        |url| url.trim_end_matches('/').to_owned(),
    )
}

/// Where an agent's cluster is: at a host of its own where the URL of all has a place for it, else below a path.
pub(super) fn url_of(clusters: &str, agent: AgentId) -> String {
    if clusters.contains(AGENT) {
        return clusters.replace(AGENT, &agent.to_string());
    }
    format!("{clusters}/agents/{agent}")
}

/// The program that prints a credential, with all that it needs wherever it is started.
fn credential_program(session: &Session) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe()
        .map_err(|detail| Failure::Io { doing: "find this program".to_owned(), detail })?;
    let mut words = vec![program.display().to_string(), "credential".to_owned(), "kubectl".to_owned()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("--server", session.settings.server.to_string());
    for (option, file) in
        [("--token-file", &session.settings.token_file), ("--ca-file", &session.settings.ca_file)]
    {
        if let Some(file) = file {
            let absolute = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            add(option, absolute.display().to_string());
        }
    }
    Ok(words)
}

/// The file of Kasbah's own contexts.
fn own_file() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/kasbah.yaml"))
}

/// The file that kubectl changes by itself.
fn persons_file() -> Option<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG");
    let first = listed
        .as_ref()
        .and_then(|list| std::env::split_paths(list).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config")))
}

pub(super) fn read(session: &Session, file: &Path) -> Result<Value, Failure> {
    match session.world.disk.read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            if text.trim().is_empty() {
                return Ok(Value::Null);
            }
            serde_saphyr::from_str(&text).map_err(|error| {
                Failure::usage("--file", format!("{} is not a kubeconfig: {error}", file.display()))
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(detail) => Err(Failure::Io { doing: format!("read {}", file.display()), detail }),
    }
}

/// Readable by its user alone, as other entries of it may hold secrets.
pub(super) fn write(session: &Session, file: &Path, text: &str) -> Result<(), Failure> {
    let failure = |detail| Failure::Io { doing: format!("write {}", file.display()), detail };
    let file = std::path::absolute(file).map_err(failure)?;
    if let Some(folder) = file.parent() {
        session.world.disk.create_folder(folder).map_err(failure)?;
    }
    session.world.disk.replace(&file, text.as_bytes(), true).map_err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_says_how_kubectl_finds_it() {
        let text = |is_current, is_found| written_text("a:b", Path::new("/f"), is_current, is_found);
        assert_eq!(text(true, true), "Context a:b is current in /f.");
        assert_eq!(text(true, false), "Context a:b is current in /f.\nUse it with: export KUBECONFIG=/f");
        let stays = "The current context is unchanged: --use changes it.";
        let expected = format!("Context a:b is in /f.\nUse it with: kubectl --context a:b …\n{stays}");
        assert_eq!(text(false, true), expected);
        assert!(text(false, false).contains("kubectl --kubeconfig /f --context a:b …"));
    }

    #[test]
    fn a_cluster_is_below_a_path_or_at_a_host_of_its_own() {
        let id = "01a20945-a5cc-7508-b575-0fdafa0c3680";
        let of = |clusters| url_of(clusters, id.parse().unwrap());
        assert_eq!(of("https://kasbah.example:8443"), format!("https://kasbah.example:8443/agents/{id}"));
        assert_eq!(of("https://{agent}.clusters.example"), format!("https://{id}.clusters.example"));
    }
}
