use super::*;

fn refused(kind: RefusalKind) -> Failure {
    Failure::Refused { refusal: Refusal::new(kind, "because"), retry_after: None }
}

#[test]
fn every_kind_of_refusal_has_its_documented_code() {
    for (kind, code) in [
        (RefusalKind::Invalid, 2),
        (RefusalKind::Unauthenticated, 4),
        (RefusalKind::Denied, 4),
        (RefusalKind::NotFound, 3),
        (RefusalKind::Conflict, 5),
        (RefusalKind::Unavailable, 6),
        (RefusalKind::Internal, 1),
    ] {
        let failure = refused(kind);
        assert_eq!(failure.code(), code, "{kind:?}");
        assert!(exit::HELP.contains(&format!("\n  {code} ")), "{code} is not in --help");
    }
}

#[test]
fn settings_network_and_certificates_differ() {
    assert_eq!(Failure::Settings(SettingsError::NoFolder).code(), 64);
    let unreachable = |refused| Failure::Unreachable {
        server: "https://a:1".into(),
        detail: "connection refused".into(),
        refused,
    };
    assert_eq!(unreachable(false).code(), 6);
    let said = unreachable(true).to_string();
    assert_eq!(said, "cannot reach https://a:1: connection refused; is `kasbah up` running there?");
    assert!(unreachable(false).to_string().ends_with("; check --server"));
    assert_eq!(Failure::Certificate(CertificateProblem::NotTls { host: "a".into() }).code(), 1);
    assert_eq!(Failure::usage("--scope", "what").code(), 2);
}

#[test]
fn a_comparison_has_the_codes_of_kubectl() {
    assert_eq!(Failure::Differs.code(), 1);
    for failure in
        [refused(RefusalKind::NotFound), refused(RefusalKind::Internal), SettingsError::NoFolder.into()]
    {
        let words = failure.to_string();
        let failure = Failure::NotCompared(Box::new(failure));
        assert_eq!((failure.code(), failure.to_string()), (2, words));
    }
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let gone = Failure::Io { doing: "print".into(), detail: std::io::ErrorKind::BrokenPipe.into() };
    assert_eq!(gone.code(), 0);
    let full = Failure::Io { doing: "print".into(), detail: std::io::ErrorKind::StorageFull.into() };
    assert_eq!(full.code(), 1);
}

#[test]
fn a_refusal_names_its_field_and_says_what_to_do() {
    let invalid =
        Failure::Refused { refusal: Refusal::invalid("path", "expected group/name"), retry_after: None };
    assert_eq!(invalid.to_string(), "path: expected group/name");
    let busy = Failure::Refused {
        refusal: Refusal::new(RefusalKind::Unavailable, "the log is catching up"),
        retry_after: Some(3),
    };
    assert_eq!(busy.to_string(), "the log is catching up; try again in 3 s");
    let twice = Failure::Refused { refusal: Refusal::invalid("token", "token not found"), retry_after: None };
    assert_eq!(twice.to_string(), "token not found");
    assert!(refused(RefusalKind::Unauthenticated).to_string().contains("--token-file"));
}
