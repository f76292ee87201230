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
        ("https://me:secret@kasbah.example.org", "must not contain credentials"),
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
            ProcessEnvironment { token: token.map(|token| Zeroizing::new(token.to_owned())), data: None };
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
    assert_eq!(said, "KASBAH_TOKEN contains no token: expected one line that begins with kasbah_");
}

const HOUR: i64 = 3_600_000;

impl Folder {
    /// Signed in at a server, with a token that ends so many milliseconds from now.
    fn signed_in(self, server: &str, ends_in: i64) -> Self {
        let world = World::real();
        let login = StoredLogin {
            server: server.to_owned(),
            ca_file: Some("/etc/login.crt".into()),
            organization: "acme".to_owned(),
            provider: "company".to_owned(),
            login: Some("ada@example.org".to_owned()),
            token: events::TokenId(uuid::Uuid::from_u128(7)),
            expires_at: Some(events::Timestamp(world.clock.now_millis() + ends_in)),
        };
        login.write("kasbah_p_login", self.folder.path(), &world).unwrap();
        self
    }

    fn resolve_file(&self, server: &str) -> Result<Settings, SettingsError> {
        let args = ConnectionArgs {
            server: Some(server.to_owned()),
            token_file: Some(self.folder.path().join("login-token")),
            ..ConnectionArgs::default()
        };
        Settings::resolve(&args, &ProcessEnvironment::default(), &World::real())
    }
}

const ELSEWHERE: &str = "https://elsewhere.example.org:8440/";

#[tokio::test]
async fn a_login_is_enough_and_its_token_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new().signed_in(ELSEWHERE, HOUR);
    let settings = folder.resolve(None, None).unwrap();
    assert_eq!(settings.server.as_str(), ELSEWHERE);
    assert_eq!(settings.token.as_str(), "kasbah_p_login");
    assert_eq!(settings.ca_file.as_deref(), Some(Path::new("/etc/login.crt")));
    assert_eq!(settings.login.as_deref(), Some("ada@example.org at https://elsewhere.example.org:8440"));
    let file = settings.token_file.unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.resolve(None, Some("kasbah_p_mine")).unwrap().token.as_str(), "kasbah_p_mine");
}

#[tokio::test]
async fn a_login_comes_before_what_up_left_and_replaces_nothing_of_it() {
    let folder = Folder::of_up().signed_in("https://127.0.0.1:8440/", HOUR);
    let settings = folder.resolve(None, None).unwrap();
    assert_eq!(settings.token.as_str(), "kasbah_p_login");
    assert_eq!(settings.gateway.as_deref(), Some("127.0.0.1:8441"));
    StoredLogin::remove(folder.folder.path(), &World::real()).unwrap();
    assert_eq!(folder.resolve(None, None).unwrap().token.as_str(), "kasbah_p_owner");
}

#[tokio::test]
async fn the_token_of_a_login_is_not_sent_to_another_server() {
    let folder = Folder::of_up().signed_in(ELSEWHERE, HOUR);
    assert_eq!(folder.resolve(None, None).unwrap().token.as_str(), "kasbah_p_login");
    let local = folder.resolve(Some("127.0.0.1:8440"), None).unwrap();
    assert_eq!((local.token.as_str(), local.login), ("kasbah_p_owner", None));
    let third = folder.resolve(Some("https://third.example.org"), None).err().unwrap();
    assert!(matches!(third, SettingsError::NoToken { .. }), "{third}");
}

#[tokio::test]
async fn a_login_that_has_ended_says_so() {
    let folder = Folder::of_up().signed_in(ELSEWHERE, -1);
    let said = folder.resolve(None, None).err().unwrap().to_string();
    let login = "ada@example.org at https://elsewhere.example.org:8440";
    assert_eq!(said, format!("the login of {login} has expired: run `kasbah login`"));
    assert_eq!(folder.resolve_file(ELSEWHERE).err().unwrap().to_string(), said);
    assert_eq!(folder.resolve(Some("127.0.0.1:8440"), None).unwrap().token.as_str(), "kasbah_p_owner");
}

/// A kubeconfig names the token's file for as long as it lives, whoever signs in where meanwhile.
#[tokio::test]
async fn a_login_by_the_file_of_its_token_is_one_at_that_server() {
    let folder = Folder::new().signed_in(ELSEWHERE, HOUR);
    let settings = folder.resolve_file(ELSEWHERE).unwrap();
    assert!(settings.login.is_some() && settings.token.as_str() == "kasbah_p_login");
    let other = folder.resolve_file("https://third.example.org").err().unwrap().to_string();
    let advice = "run `kasbah login --server https://third.example.org:8440/`";
    assert_eq!(other, format!("no user is signed in at https://third.example.org:8440/: {advice}"));
    StoredLogin::remove(folder.folder.path(), &World::real()).unwrap();
    let gone = folder.resolve_file(ELSEWHERE).err().unwrap();
    assert!(matches!(gone, SettingsError::NotSignedIn { .. }), "{gone}");
}
