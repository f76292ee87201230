//! `kasbah up` as a process: settings, first start, addresses, drain.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use world::World;

const READY: &str = "Kasbah is ready.";

fn kasbah(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kasbah"));
    command.env_clear().env("HOME", data).args(["up", "--data"]).arg(data.join("data"));
    command
}

/// Everything on free ports.
fn on_free_ports(data: &Path) -> Command {
    let mut command = kasbah(data);
    for option in ["--api-listen", "--tunnel-listen", "--clusters-listen", "--admin-listen"] {
        command.args([option, "127.0.0.1:0"]);
    }
    command
}

struct Up {
    child: Child,
    said: BTreeMap<String, String>,
}

impl Up {
    /// Starts it and waits until it says that it is ready.
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = BTreeMap::new();
        if lines.next().as_deref() == Some(READY) {
            for line in lines {
                let (name, value) = line.trim().split_once("   ").unwrap();
                said.insert(name.to_owned(), value.trim().to_owned());
                if name == "owner's token" {
                    return Self { child, said };
                }
            }
        }
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        panic!("not ready, {}: {errors}", child.wait().unwrap());
    }

    /// Asks it to stop; its exit code and log.
    fn stop(self) -> (Option<i32>, String) {
        self.stop_by(Signal::TERM)
    }

    fn stop_by(mut self, signal: Signal) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), errors)
    }

    fn health(&self, path: &str) -> String {
        let address = self.said["health"].trim_start_matches("http://").trim_end_matches("/readyz");
        testkit::admin_page(address, path).unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Already gone where the test stopped it.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn refused(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_setting_is_refused_by_name_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kasbah.toml");
    for (text, option, variable, wanted) in [
        ("", Some("--admin-listen=nowhere"), None, "--admin-listen"),
        ("", Some("--drain=soon"), None, "--drain"),
        ("", Some("--no-such-option"), None, "--no-such-option"),
        ("", None, Some(("KASBAH_API_LISTEN", "nowhere")), "--api-listen"),
        (
            "api-lisen = \"127.0.0.1:0\"",
            None,
            None,
            "there is no setting `api-lisen`; did you mean `api-listen`?",
        ),
        ("[tunnel]\nlisten = 7", None, None, "setting `tunnel.listen`: invalid value '7'"),
        ("drain = [1]", None, None, "setting `drain`: expected one value, found a list"),
        ("drain =", None, None, "is not TOML"),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut command = kasbah(folder.path());
        command.arg("--config").arg(&file).args(option).envs(variable);
        let (code, errors) = refused(command);
        assert_eq!(code, Some(64), "{errors}");
        assert!(errors.contains(wanted), "{errors}");
        assert!(!folder.path().join("data").exists(), "a folder was made");
    }
}

#[test]
fn the_command_line_beats_the_environment_which_beats_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let ports: Vec<u16> = {
        let held: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    };
    let [by_file, by_variable, by_option] = ports[..] else { panic!("three ports") };
    let file = folder.path().join("kasbah.toml");
    std::fs::write(&file, format!("[admin]\nlisten = \"127.0.0.1:{by_file}\"\n")).unwrap();
    let command = |variable: bool, option: bool| {
        let mut command = kasbah(folder.path());
        command
            .args(
                ["--api-listen", "--tunnel-listen", "--clusters-listen"]
                    .map(|option| format!("{option}=127.0.0.1:0")),
            )
            .env("KASBAH_CONFIG", &file);
        if variable {
            command.env("KASBAH_ADMIN_LISTEN", format!("127.0.0.1:{by_variable}"));
        }
        if option {
            command.arg(format!("--admin-listen=127.0.0.1:{by_option}"));
        }
        command
    };
    for (variable, option, port) in
        [(false, false, by_file), (true, false, by_variable), (true, true, by_option)]
    {
        let up = Up::start(command(variable, option));
        assert_eq!(up.said["health"], format!("http://127.0.0.1:{port}/readyz"));
        assert_eq!(up.stop().0, Some(0));
    }
}

#[test]
fn the_first_start_leaves_what_the_client_needs_and_the_next_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let up = Up::start(on_free_ports(folder.path()));
    assert!(up.health("/readyz").ends_with("ready\n"), "{}", up.health("/readyz"));
    assert!(up.health("/healthz").starts_with("HTTP/1.0 200"));
    assert!(up.health("/metrics").contains("\nkasbah_console_pushes_total 0\n"));
    assert_eq!(up.said["owner's token"], data.join("owner-token").display().to_string());
    assert_eq!(std::fs::metadata(data.join("owner-token")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(read("owner-token").starts_with("kasbah_p_"));
    let client: serde_json::Value = serde_json::from_str(&read("client.json")).unwrap();
    assert_eq!(client["server"], up.said["API"]);
    assert_eq!(client["gateway"], up.said["agents dial"]);
    assert_eq!(client["page"], up.said["web page"]);
    assert_eq!(up.said["web page"], up.said["API"].replace("https://", "http://"));
    let (token, authority) = (read("owner-token"), read("ca.crt"));
    let (code, log) = up.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(token.trim()), "the token stands in the log");
    let again = Up::start(on_free_ports(folder.path()));
    assert_eq!((read("owner-token"), read("ca.crt")), (token, authority));
    assert_eq!(again.stop_by(Signal::INT).0, Some(0));
}

#[test]
fn who_is_stopped_before_it_is_ready_ends_in_order() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let mut command = on_free_ports(folder.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let up = Up { child, said: BTreeMap::new() };
        // Signals are heard before the folder is made.
        while !folder.path().join("data").exists() {
            std::thread::yield_now();
        }
        let (code, log) = up.stop();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn a_lost_token_is_replaced_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/owner-token");
    assert_eq!(Up::start(on_free_ports(folder.path())).stop().0, Some(0));
    let first = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let up = Up::start(on_free_ports(folder.path()));
    let second = std::fs::read_to_string(&path).unwrap();
    assert_ne!(first, second);
    let status = |token: &str| api_status(&up, token.trim());
    assert_eq!(status(&second), 200);
    assert_eq!(status(&first), 401, "the lost token still works");
    assert_eq!(status("kasbah_p_unknown"), 401);
}

fn api_status(up: &Up, token: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let authority = std::fs::read(&up.said["authority"]).unwrap();
    runtime.block_on(async {
        let tls = chassis::tls::client_config_trusting(&World::real(), &authority, &[]).unwrap();
        let tls = std::sync::Arc::unwrap_or_clone(tls);
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap();
        let url = format!("{}/api/v1/organizations", up.said["API"]);
        client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
    })
}

#[test]
fn a_second_process_on_one_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(on_free_ports(folder.path()));
    let (code, errors) = refused(on_free_ports(folder.path()));
    assert_eq!(code, Some(1));
    assert!(errors.contains("is in use by another process"), "{errors}");
    assert_eq!(up.stop().0, Some(0));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = kasbah(folder.path());
    command.arg(format!("--tunnel-listen={}", taken.local_addr().unwrap()));
    command.args(["--api-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]);
    let (code, errors) = refused(command);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--tunnel-listen"), "{errors}");
}

#[test]
fn a_name_that_cannot_stand_in_a_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = on_free_ports(folder.path());
    command.arg("--tls-name=https://kasbah.example");
    let (code, errors) = refused(command);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--tls-name"), "{errors}");
}

#[test]
fn a_certificate_that_machines_trust_anyway_needs_no_authority() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Up::start(on_free_ports(folder.path())).stop().0, Some(0));
    let (certificate, key) = own_certificate(folder.path());
    let mut command = on_free_ports(folder.path());
    command.arg("--tls-certificate-file").arg(certificate).arg("--tls-key-file").arg(key);
    let up = Up::start({
        command.arg("--tls-name=kasbah.example");
        command
    });
    assert!(up.said["API"].starts_with("https://kasbah.example:"), "{:?}", up.said);
    assert!(up.said["agents dial"].starts_with("kasbah.example:"), "{:?}", up.said);
    assert!(!up.said.contains_key("authority"), "{:?}", up.said);
    assert!(!folder.path().join("data/ca.crt").exists(), "it is not this server's any more");
    let client = std::fs::read_to_string(folder.path().join("data/client.json")).unwrap();
    let client: serde_json::Value = serde_json::from_str(&client).unwrap();
    assert_eq!(client["ca_file"], serde_json::Value::Null);
    assert_eq!(up.stop().0, Some(0));
    let again = Up::start(on_free_ports(folder.path()));
    assert!(folder.path().join("data/ca.crt").exists());
    assert_eq!(again.stop().0, Some(0));
}

/// Files with a certificate and its key.
fn own_certificate(folder: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let now = events::Timestamp(World::real().clock.now_millis());
    let authority = chassis::tls::Authority::generate(now).unwrap();
    let day = std::time::Duration::from_secs(24 * 3600);
    let issued = authority.issue(&["kasbah.example".to_owned()], now, day).unwrap();
    let files = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&files.0, issued.certificate.as_bytes()).unwrap();
    std::fs::write(&files.1, issued.key.as_bytes()).unwrap();
    files
}

#[test]
fn a_certificate_of_no_use_is_refused_with_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = own_certificate(folder.path());
    let said = |options: &[(&str, &Path)]| {
        let mut command = on_free_ports(folder.path());
        for (option, file) in options {
            command.arg(option).arg(file);
        }
        refused(command)
    };
    let (code, errors) = said(&[("--tls-certificate-file", &certificate)]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--tls-certificate-file is given without --tls-key-file"), "{errors}");
    let (_, errors) = said(&[("--tls-certificate-file", &certificate), ("--tls-key-file", &key)]);
    assert!(errors.contains("--tls-name") && errors.contains("only for kasbah.example"), "{errors}");
    let (code, errors) = said(&[("--tls-certificate-file", &key), ("--tls-key-file", &key)]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--tls-certificate-file") && errors.contains("no certificate"), "{errors}");
    let (_, errors) = said(&[
        ("--tls-certificate-file", &certificate),
        ("--tls-key-file", &key),
        ("--tls-ca-file", &folder.path().join("gone")),
        ("--tls-name", Path::new("kasbah.example")),
    ]);
    assert!(errors.contains("--tls-ca-file: cannot read"), "{errors}");
    let (_, errors) = said(&[
        ("--tls-certificate-file", &certificate),
        ("--tls-key-file", &key),
        ("--tls-ca-file", &key),
        ("--tls-name", Path::new("kasbah.example")),
    ]);
    assert!(errors.contains("--tls-ca-file") && errors.contains("holds a private key"), "{errors}");
    let (_, errors) = said(&[("--git-ca-file", &folder.path().join("gone"))]);
    assert!(errors.contains("--git-ca-file") && errors.contains("cannot be read"), "{errors}");
    let (_, errors) = said(&[("--git-ca-file", &key)]);
    assert!(errors.contains("--git-ca-file") && errors.contains("holds no certificate"), "{errors}");
}

#[tokio::test]
async fn nats_servers_are_trusted_by_the_authority_that_is_given_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, key) = (folder.path().join("nats-ca.crt"), folder.path().join("master.key"));
    let made = testkit::Authority::new("nats").unwrap();
    std::fs::write(&authority, made.certificate()).unwrap();
    std::fs::write(&key, [7; 32]).unwrap();
    let server = testkit::NatsServer::start_with_tls(&made).await.unwrap();
    let up = || {
        let mut command = on_free_ports(folder.path());
        command.arg("--nats").arg(server.shipped_url("kasbah").replace("nats://", "tls://"));
        command.arg("--master-key-file").arg(&key);
        command
    };
    let (_, said) = refused(up());
    assert!(said.contains("--nats: cannot reach the bus") && said.contains("UnknownIssuer"), "{said}");
    let mut trusting = up();
    trusting.arg("--nats-ca-file").arg(&authority);
    Up::start(trusting).stop();
}

#[test]
fn help_shows_defaults_and_exit_codes() {
    let run = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_kasbah")).args(words).env("COLUMNS", "200").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, help) = run(&["up", "--help"]);
    assert_eq!(code, Some(0));
    for wanted in
        ["[default: 127.0.0.1:8440]", "[default: 127.0.0.1:8441]", "[default: 127.0.0.1:8442]", "KASBAH_DATA"]
    {
        assert!(help.contains(wanted), "{wanted} is missing in {help}");
    }
    let (_, help) = run(&["--help"]);
    assert!(help.contains("Exit codes:") && help.contains("64  settings are wrong"), "{help}");
}

/// Reads one HTTP request, or what there is, and answers it.
fn read_request(connection: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    let mut piece = [0; 64 * 1024];
    loop {
        let count = connection.read(&mut piece).unwrap();
        request.extend_from_slice(&piece[..count]);
        let head = request.windows(4).position(|window| window == b"\r\n\r\n").map(|end| end + 4);
        let whole = head.is_some_and(|head| {
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            request.len() >= head + length.map_or(0, |length| length.parse().unwrap())
        });
        if whole || count == 0 {
            let _closed = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            return request;
        }
    }
}

#[test]
fn spans_reach_the_collector_that_is_named() {
    // Of the bus, and of the API.
    const WANTED: [&[u8]; 2] = [b"authz.authenticate", b"GET /api/v1/organizations"];
    const ENOUGH: &[u8] = b"enough";
    let folder = tempfile::tempdir().unwrap();
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    let receiving = std::thread::spawn(move || {
        let contains =
            |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
        let mut all = Vec::new();
        for connection in collector.incoming() {
            all.extend(read_request(&mut connection.unwrap()));
            if contains(&all, ENOUGH) {
                return false;
            }
            if WANTED.iter().all(|wanted| contains(&all, wanted)) {
                return true;
            }
        }
        false
    });
    let mut command = on_free_ports(folder.path());
    command.arg(format!("--otlp-endpoint=http://{address}"));
    let up = Up::start(command);
    let token = std::fs::read_to_string(folder.path().join("data/owner-token")).unwrap();
    assert_eq!(api_status(&up, token.trim()), 200);
    let (code, log) = up.stop();
    // Only when it was not received, somebody still listens.
    let _ended = TcpStream::connect(address).and_then(|mut socket| {
        socket.write_all(ENOUGH)?;
        socket.shutdown(std::net::Shutdown::Write)
    });
    assert!(receiving.join().unwrap(), "no span arrived: {log}");
    assert_eq!(code, Some(0), "{log}");
}
