//! People sign in with a real identity provider, by the program that they have.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use testkit::{Installation, InstallationOptions, OidcProvider, Page};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub const ADA: &str = "ada@example.org";
const LIMIT: Duration = Duration::from_secs(60);

/// A server whose operator allows one provider, which its organization believes, and where Ada is a developer.
struct Scene {
    provider: OidcProvider,
    kasbah: Installation,
    folder: tempfile::TempDir,
}

/// A server whose operator allows this provider with one more setting, and which knows Ada in a role.
pub async fn trusting(provider: &OidcProvider, folder: &Path, setting: &str, role: &str) -> Installation {
    let file = folder.join("providers.yaml");
    let text = format!(
        "identity_providers:\n  - name: company\n    kind: people\n    issuer: {}\n    audience: kasbah\n    {setting}\n",
        provider.issuer()
    );
    std::fs::write(&file, text).unwrap();
    let server = vec!["--identity-providers".to_owned(), file.display().to_string()];
    let options = InstallationOptions { server, ..InstallationOptions::default() };
    let kasbah = Installation::start(options).await.unwrap();
    kasbah.cli(["provider", "trust", "company"]).unwrap();
    kasbah.cli(["user", "create", ADA, "--role", role]).unwrap();
    kasbah
}

/// What people have: a folder of their own, and nothing of the owner's.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(testkit::program("kasbah").unwrap());
    for name in ["KASBAH_TOKEN", "KASBAH_TOKEN_FILE", "KASBAH_SERVER", "KASBAH_CA_FILE", "DISPLAY"] {
        command.env_remove(name);
    }
    command.env("KASBAH_DATA", folder).env("HOME", folder).env("XDG_CACHE_HOME", folder.join("cache"));
    command.args(arguments).kill_on_drop(true);
    command
}

impl Scene {
    async fn start() -> Self {
        let provider = OidcProvider::start("kasbah").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kasbah = trusting(&provider, folder.path(), "login_claim: email", "developer").await;
        Self { provider, kasbah, folder }
    }

    /// Ada's data folder.
    fn data(&self) -> PathBuf {
        self.folder.path().join("ada")
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        command(&self.data(), arguments).output().await.unwrap()
    }

    /// Begins to sign in; the address that the person is to open.
    async fn login(&self, flow: &str) -> (Login, String) {
        let (server, authority) = (self.kasbah.api(), self.kasbah.authority());
        let authority = authority.display().to_string();
        let arguments = ["login", "--server", &server, "--ca-file", &authority, flow, "-o", "json"];
        let mut command = command(&self.data(), &arguments);
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut login = Login { said: BufReader::new(child.stderr.take().unwrap()), child };
        let wanted = if flow == "--device" { "user_code=" } else { "code_challenge=" };
        let address = tokio::time::timeout(LIMIT, login.line_with(wanted)).await.unwrap();
        (login, address)
    }

    async fn sign_in(&self, flow: &str, person: &str) -> (Output, Page) {
        let (login, address) = self.login(flow).await;
        let page = self.provider.browser().unwrap().sign_in(&address, person).await.unwrap();
        (login.end().await, page)
    }
}

/// A program that waits for somebody to sign in.
struct Login {
    child: Child,
    said: BufReader<tokio::process::ChildStderr>,
}

impl Login {
    async fn line_with(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).await.unwrap() > 0, "it said only {all:?}");
            if line.contains(part) {
                return line.trim().to_owned();
            }
            all.push_str(&line);
        }
    }

    async fn end(mut self) -> Output {
        let mut stderr = Vec::new();
        let ended = async {
            self.said.read_to_end(&mut stderr).await.unwrap();
            self.child.wait_with_output().await.unwrap()
        };
        let output = tokio::time::timeout(LIMIT, ended).await.unwrap();
        Output { stderr, ..output }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_signs_in_with_a_browser_works_and_signs_out() {
    let scene = Scene::start().await;
    let (output, page) = scene.sign_in("--no-open", ADA).await;
    assert!(page.text.starts_with("You are signed in"), "{}", page.text);
    let login = json(&output);
    assert_eq!((&login["login"], &login["provider"]), (&ADA.into(), &"company".into()), "{login}");
    assert!(login["expires_at"].is_string() && !login.to_string().contains("kasbah_p"), "{login}");

    let tokens = json(&scene.run(&["token", "list", "-o", "json"]).await);
    let mut tokens = tokens.as_array().unwrap().iter();
    assert!(tokens.any(|token| token["id"] == login["token"]), "her own token is not listed");

    let token_file = scene.data().join("login-token").display().to_string();
    let server = scene.kasbah.api();
    let authority = scene.kasbah.authority().display().to_string();
    let kubectl =
        ["credential", "kubectl", "--server", &server, "--token-file", &token_file, "--ca-file", &authority];
    let credential = json(&scene.run(&kubectl).await);
    assert!(credential["status"]["token"].as_str().is_some_and(|token| token.starts_with("kasbah_")));

    let copy = scene.folder.path().join("copy");
    std::fs::copy(&token_file, &copy).unwrap();
    let out = json(&scene.run(&["logout", "-o", "json"]).await);
    assert_eq!(out["revoked"], true, "{out}");
    let copy = copy.display().to_string();
    let with_copy = ["agent", "list", "--server", &server, "--ca-file", &authority, "--token-file", &copy];
    let refused = scene.run(&with_copy).await;
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    let nobody = scene.run(&kubectl).await;
    assert!(stderr(&nobody).contains("no user is signed in at"), "{}", stderr(&nobody));
    assert_eq!(scene.run(&["logout"]).await.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_signs_in_on_another_device() {
    let scene = Scene::start().await;
    let (output, _) = scene.sign_in("--device", ADA).await;
    assert_eq!(json(&output)["login"], ADA);
    let agents = scene.run(&["agent", "list", "-o", "json"]).await;
    assert_eq!(json(&agents), Value::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_no_or_is_nobody_there_is_not_let_in() {
    let scene = Scene::start().await;
    let (output, _) = scene.sign_in("--no-open", "eve@example.org").await;
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let (login, address) = scene.login("--no-open").await;
    scene.provider.browser().unwrap().refuse(&address).await.unwrap();
    let refused = login.end().await;
    assert!(stderr(&refused).contains("the identity provider reports access_denied"), "{}", stderr(&refused));
    assert!(!scene.data().join("login.json").exists());
}

/// Whoever signs in again has one live token of it, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_login_ends_the_first() {
    let scene = Scene::start().await;
    let first = json(&scene.sign_in("--no-open", ADA).await.0);
    let second = json(&scene.sign_in("--no-open", ADA).await.0);
    let tokens = json(&scene.run(&["token", "list", "-o", "json"]).await);
    let revoked = |login: &Value| {
        let token = tokens.as_array().unwrap().iter().find(|token| token["id"] == login["token"]);
        token.unwrap()["revoked_at"].is_string()
    };
    assert!(revoked(&first) && !revoked(&second), "{tokens}");
}
