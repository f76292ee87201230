use super::*;

fn server(text: &str) -> Result<String, SettingsError> {
    parse_server(text).map(|url| url.to_string())
}

#[test]
fn an_address_may_be_short() {
    for (given, meant) in [
        ("https://kasbah.example.org:8440", "https://kasbah.example.org:8440/"),
        ("https://kasbah.example.org", "https://kasbah.example.org:8440/"),
        ("https://kasbah.example.org:443/", "https://kasbah.example.org/"),
        ("kasbah.example.org", "https://kasbah.example.org:8440/"),
        ("127.0.0.1:9000", "https://127.0.0.1:9000/"),
        ("[::1]", "https://[::1]:8440/"),
        ("https://example.org/kasbah", "https://example.org:8440/kasbah"),
        ("http://localhost:8440", "http://localhost:8440/"),
        ("http://[::1]:8440", "http://[::1]:8440/"),
    ] {
        assert_eq!(server(given).unwrap(), meant, "{given}");
    }
}

#[test]
fn an_address_that_would_leak_or_makes_no_sense_is_refused() {
    for (given, part) in [
        ("http://kasbah.example.org", "plain text"),
        ("ftp://kasbah.example.org", "plain text"),
        ("https://me:secret@kasbah.example.org", "must not hold credentials"),
        ("https://", "empty host"),
        ("", "empty host"),
    ] {
        let said = server(given).unwrap_err().to_string();
        assert!(said.contains(part), "{given}: {said}");
    }
}

struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn with(self, name: &str, text: &str) -> Self {
        std::fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn of_up() -> Self {
        let file = r#"{"server": "https://127.0.0.1:8440", "ca_file": "ca.crt", "token_file": "owner-token", "gateway": "127.0.0.1:8441", "later": 1}"#;
        Self::new().with("client.json", file).with("owner-token", "kasbah_p_owner\n")
    }

    fn resolve(&self, server: Option<&str>, token: Option<&str>) -> Result<Settings, SettingsError> {
        let args = ConnectionArgs {
            server: server.map(str::to_owned),
            data: Some(self.folder.path().to_owned()),
            ..ConnectionArgs::default()
        };
        let surroundings =
            Surroundings { token: token.map(|token| Zeroizing::new(token.to_owned())), data: None };
        Settings::resolve(&args, &surroundings, &World::real())
    }
}

#[tokio::test]
async fn what_up_left_is_enough() {
    let folder = Folder::of_up();
    let settings = folder.resolve(None, None).unwrap();
    assert_eq!(settings.server.as_str(), "https://127.0.0.1:8440/");
    assert_eq!(settings.ca_file, Some(folder.folder.path().join("ca.crt")));
    assert_eq!(settings.token.as_str(), "kasbah_p_owner");
    assert_eq!(settings.gateway.as_deref(), Some("127.0.0.1:8441"));
}

#[tokio::test]
async fn the_token_of_one_server_is_not_sent_to_another() {
    let folder = Folder::of_up();
    let refused = folder.resolve(Some("https://elsewhere.example.org"), None).err().unwrap();
    assert!(matches!(refused, SettingsError::NoToken { .. }), "{refused}");
    let other = folder.resolve(Some("https://elsewhere.example.org"), Some("kasbah_p_mine")).unwrap();
    assert_eq!(other.token.as_str(), "kasbah_p_mine");
    assert_eq!(other.ca_file, None);
    let same = folder.resolve(Some("127.0.0.1:8440"), None).unwrap();
    assert_eq!(same.token.as_str(), "kasbah_p_owner");
}

#[tokio::test]
async fn the_environment_comes_before_what_up_left() {
    assert_eq!(Folder::of_up().resolve(None, Some("kasbah_p_mine")).unwrap().token.as_str(), "kasbah_p_mine");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let nothing = Folder::new().resolve(None, None).err().unwrap().to_string();
    assert!(nothing.contains("client.json does not exist; give --server"), "{nothing}");
    let file = r#"{"server": "a", "ca_file": "ca.crt", "token_file": "gone", "gateway": "a:8441"}"#;
    let no_token = Folder::new().with("client.json", file);
    let said = no_token.resolve(None, None).err().unwrap().to_string();
    assert!(said.contains("gone of --token-file"), "{said}");
    let broken = Folder::new().with("client.json", "{").resolve(None, None).err().unwrap().to_string();
    assert!(broken.contains("is not what `kasbah up` writes"), "{broken}");
}

#[tokio::test]
async fn a_bad_token_is_refused_and_not_shown() {
    let said = Folder::of_up().resolve(None, Some("hunter2 with spaces")).err().unwrap().to_string();
    assert_eq!(said, "KASBAH_TOKEN holds no token: expected one line that begins with kasbah_");
}
