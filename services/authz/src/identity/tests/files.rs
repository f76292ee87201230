use super::*;

const GITLAB: &str = "  - name: gitlab
    kind: gitlab-jobs
    issuer: https://gitlab.example.org
    audience: https://kasbah.example.org:8440
";
const COMPANY: &str = "  - name: company
    kind: people
    issuer: https://login.example.org/
    audience: kasbah
";

fn load(entries: &str) -> Result<IdentityProviders, ProvidersError> {
    let folder = tempfile::tempdir().unwrap();
    let issuer = TokenIssuer::start().unwrap();
    std::fs::copy(issuer.ca_file(), folder.path().join("ca.pem")).unwrap();
    std::fs::write(folder.path().join("key.pem"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    std::fs::write(folder.path().join("empty.pem"), "nothing").unwrap();
    let file = folder.path().join("identity.yaml");
    // Machines of tests may have no authorities of their own.
    let entries = entries.replace("    audience:", "    ca_file: ca.pem\n    audience:");
    std::fs::write(&file, format!("identity_providers:\n{entries}")).unwrap();
    IdentityProviders::load(&file, &World::real())
}

fn refused(entries: &str) -> String {
    load(entries).unwrap_err().to_string()
}

#[tokio::test]
async fn a_provider_is_what_the_file_says() {
    let more = "    login_claim: preferred_username\n    scopes: [openid, groups]\n    client_secret: hunter2\n    token_lifetime: 30d\n";
    let providers = load(&format!("{GITLAB}{COMPANY}{more}")).unwrap();
    let views = providers.views();
    assert_eq!(views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["gitlab", "company"]);
    assert_eq!(
        (views[0].kind, views[0].issuer.as_str()),
        (ProviderKind::GitlabJobs, "https://gitlab.example.org")
    );
    assert_eq!((views[0].audience.as_str(), views[0].scopes.len()), ("https://kasbah.example.org:8440", 0));
    assert!(views[0].certificate_authority.as_ref().unwrap().contains("BEGIN CERTIFICATE"));
    assert_eq!(views[1].issuer, "https://login.example.org/");
    assert_eq!(views[1].scopes, ["openid", "groups"]);
    assert_eq!((views[1].client_secret.as_deref(), &views[1].trust), (Some("hunter2"), &None));
    let company = providers.get("company").unwrap();
    assert_eq!(company.token_lifetime, Duration::from_secs(30 * 24 * 3600));
    assert_eq!(company.view(), views[1]);
    assert!(providers.get("other").is_none());
    let shown = format!("{providers:?}");
    assert!(shown.contains("gitlab") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn what_is_not_said_is_the_usual() {
    let github = |issuer: &str| {
        format!("  - name: github\n    kind: github-jobs\n    issuer: {issuer}\n    audience: kasbah\n")
    };
    let hosted = github("https://token.actions.githubusercontent.com");
    let own = github("https://github.example.org:8443/_services/token");
    let given = format!("{GITLAB}    repositories: /srv/git/\n");
    let found = |entries: &str, name: &str| {
        let providers = load(entries).unwrap();
        let provider = providers.get(name).unwrap();
        (provider.settings.repositories.clone(), provider.token_lifetime.as_secs(), provider.view().scopes)
    };
    assert_eq!(found(GITLAB, "gitlab"), ("https://gitlab.example.org".to_owned(), 3600, vec![]));
    assert_eq!(found(&given, "gitlab").0, "/srv/git");
    assert_eq!(found(&hosted, "github").0, "https://github.com");
    assert_eq!(found(&own, "github").0, "https://github.example.org:8443");
    let (_, lifetime, scopes) = found(COMPANY, "company");
    assert_eq!((lifetime, scopes), (12 * 3600, ["openid", "email", "profile"].map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        (GITLAB.replace("name: gitlab", "name: GitLab"), "identity provider GitLab: name: must be"),
        (GITLAB.replace("    kind: gitlab-jobs\n", ""), "gitlab: missing field `kind`"),
        (GITLAB.replace("gitlab-jobs", "jenkins"), "kind: unknown variant `jenkins`"),
        (format!("{GITLAB}    colour: red\n"), "unknown field `colour`"),
        (
            GITLAB.replace("  - name: gitlab\n", "  - name: 7\n"),
            "identity provider number 1: name: invalid type",
        ),
        (format!("{GITLAB}{GITLAB}"), "gitlab: name: another provider has it"),
        (
            format!("{GITLAB}{}", GITLAB.replace("name: gitlab", "name: second")),
            "second: audience: gitlab has",
        ),
        (format!("{GITLAB}    login_claim: sub\n"), "login_claim: is for providers of people only"),
        (format!("{GITLAB}    client_secret: a\n"), "client_secret: is for providers of people only"),
        (format!("{GITLAB}    scopes: [openid]\n"), "scopes: is for providers of people only"),
        (format!("{COMPANY}    repositories: https://a\n"), "repositories: is for providers of jobs only"),
        (format!("{COMPANY}    scopes: [email]\n"), "scopes: must have openid"),
        (format!("{COMPANY}    scopes: [openid, 'a b']\n"), "scopes: must be 1 to"),
        (format!("{COMPANY}    client_secret: [hunter2]\n"), "client_secret: must be text"),
        (format!("{GITLAB}    page_client_id: a\n"), "page_client_id: is for providers of people only"),
        (format!("{COMPANY}    page_client_secret: hunter2\n"), "of no use without page_client_id"),
        (format!("{COMPANY}    page_client_secret: [hunter2]\n"), "page_client_secret: must be text"),
        (format!("{GITLAB}    token_lifetime: soon\n"), "token_lifetime: expected a duration"),
        (format!("{GITLAB}    token_lifetime: 59s\n"), "token_lifetime: must be 1m to 24h"),
        (format!("{GITLAB}    token_lifetime: 25h\n"), "token_lifetime: must be 1m to 24h"),
        (format!("{COMPANY}    token_lifetime: 31d\n"), "token_lifetime: must be 1m to 30d"),
        (format!("{GITLAB}    repositories: git@a:b\n"), "repositories: is not a URL"),
        (GITLAB.replace("audience: https://kasbah.example.org:8440", "audience: ''"), "audience: must be"),
    ];
    for (entries, wanted) in cases {
        let message = refused(&entries);
        assert!(
            message.contains("identity.yaml, identity provider") && message.contains(wanted),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn an_issuer_is_reached_over_tls_or_on_this_machine() {
    for good in ["http://127.0.0.1:8080", "http://localhost/x", "'http://[::1]:8080'"] {
        assert!(load(&GITLAB.replace("https://gitlab.example.org", good)).is_ok(), "{good}");
    }
    for bad in [
        "http://gitlab.example.org",
        "http://127.0.0.1.example.org",
        "ftp://gitlab.example.org",
        "https://me:hunter2@gitlab.example.org",
        "https://@gitlab.example.org",
        "https://gitlab.example.org?a",
        "'https://gitlab.example.org#'",
        "gitlab.example.org",
        "'https://gitlab.example.org '",
        "https://",
    ] {
        let message = refused(&GITLAB.replace("https://gitlab.example.org", bad));
        assert!(message.contains("gitlab: issuer: ") && !message.contains("hunter2"), "{bad}: {message}");
    }
}

#[tokio::test]
async fn authorities_are_certificates_beside_the_file() {
    for (file, wanted) in [
        ("none.pem", "ca_file: cannot read"),
        ("key.pem", "holds a private key"),
        ("empty.pem", "ca_file: the certificate authority holds no certificate"),
    ] {
        let entry =
            GITLAB.replace("    audience: https", &format!("    ca_file: {file}\n    'audience': https"));
        let message = refused(&entry);
        assert!(message.contains(wanted), "{message}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_list_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identity.yaml");
    let load = || IdentityProviders::load(&file, &World::real()).unwrap_err().to_string();
    assert!(load().starts_with("cannot read"));
    for text in ["", "providers: []", "identity_providers: 7", "identity_providers: [", "a: &a [*a"] {
        std::fs::write(&file, text).unwrap();
        let message = load();
        assert!(message.contains("holds no list of identity providers"), "{message}");
    }
    std::fs::write(&file, "identity_providers:\n  - client_secret: hunter2\n    - x").unwrap();
    assert!(!load().contains("hunter2"), "{}", load());
    std::fs::write(&file, "identity_providers: []").unwrap();
    assert!(IdentityProviders::load(&file, &World::real()).unwrap().views().is_empty());
}
