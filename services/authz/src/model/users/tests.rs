use events::directory::{JobAdmitted, JobFacts, TokenLifetimes};
use events::{JobId, Sha256};

use super::super::given::{Given, NOW};
use super::super::tokens::TokenUse;
use super::*;

fn id(asker: &Asker) -> UserId {
    match asker.actor {
        Actor::User(id) => id,
        ref other => panic!("{other:?}"),
    }
}

/// A token that somebody makes.
fn makes(given: &mut Given, maker: &Asker, holder: TokenHolder, name: &str) -> TokenId {
    let token = given.token(holder, name, None);
    let (key, decided) = (given.key(), given.directory.issue_token(maker, &token, NOW));
    given.by = Some(maker.actor.clone());
    given.then(key, decided);
    given.by = None;
    token.token
}

fn is_live(given: &Given, name: &str) -> bool {
    given.directory.holder_of(Sha256::of(name.as_bytes()), NOW).is_ok()
}

#[test]
fn of_two_owners_who_withdraw_each_other_at_once_the_log_takes_one() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let (ann, bob) = (given.owner(organization), given.owner(organization));
    let role = (Role::Owner, Scope::Organization(organization));
    let at_once = given.directory.clone();
    let drafts = [
        at_once.assign_role(&ann, id(&bob), role, true).unwrap().draft.unwrap(),
        at_once.assign_role(&bob, id(&ann), role, true).unwrap().draft.unwrap(),
        at_once.disable_user(&bob, id(&ann), false).unwrap().draft.unwrap(),
    ];
    let [first, others @ ..] = &drafts;
    for other in others {
        let both = (&first.organization, &first.aggregate, first.expected);
        assert_eq!(
            both,
            (&other.organization, &other.aggregate, other.expected),
            "the log takes one of them"
        );
    }
    let key = given.key();
    given.fold(key, first.clone());
    let again = given.directory.disable_user(&ann, id(&ann), false).unwrap_err();
    assert_eq!(again.kind, RefusalKind::Conflict, "decided again, it is the last one");
    assert!(!given.directory.may(&bob, Action::CreateGroup, role.1));
}

#[test]
fn a_user_who_is_disabled_holds_and_has_made_nothing_that_opens() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let ann = given.owner(organization);
    let bob = given.user(organization, &[(Role::Viewer, Scope::Organization(organization))]);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let agent = given.agent(&owner, project, "edge");
    makes(&mut given, &ann, TokenHolder::User(id(&ann)), "her own");
    makes(&mut given, &ann, TokenHolder::User(id(&bob)), "bob's by her");
    makes(&mut given, &owner, TokenHolder::User(id(&bob)), "bob's");
    makes(&mut given, &ann, TokenHolder::Agent(agent), "agent's by her");
    let job = JobId(given.id());
    let token = given.token(TokenHolder::Job(job), "job's by her", None);
    let admitted = JobAdmitted { job, project, facts: JobFacts::default() };
    let (key, decided) = (given.key(), given.directory.admit_job(&ann, admitted, token, NOW));
    given.by = Some(ann.actor.clone());
    given.then(key, decided);
    given.by = None;
    let all = ["her own", "bob's by her", "bob's", "agent's by her", "job's by her", "edge"];
    assert!(all.iter().all(|name| is_live(&given, name)));

    let before = given.clone();
    for (keeps, alive) in [(false, vec!["bob's", "edge"]), (true, vec!["bob's", "agent's by her", "edge"])] {
        let mut given = before.clone();
        let late = given.token(TokenHolder::Agent(agent), "late", None);
        let late = given.directory.issue_token(&ann, &late, NOW).unwrap().draft.unwrap();
        let (key, decided) = (given.key(), given.directory.disable_user(&owner, id(&ann), keeps));
        given.then(key, decided);
        given.by = Some(ann.actor.clone());
        let key = given.key();
        given.fold(key, late);
        given.by = None;
        let live: Vec<&str> = all.into_iter().filter(|name| is_live(&given, name)).collect();
        assert_eq!(live, alive);
        assert!(!is_live(&given, "late"), "what was decided at the same moment");
        assert!(!given.directory.may(&ann, Action::ReadAgent, Scope::Agent(agent)));
        let own = given.token(TokenHolder::User(id(&ann)), "another", None);
        assert!(given.directory.issue_token(&owner, &own, NOW).is_err());

        let early = given.directory.enable_user(&owner, id(&ann)).unwrap_err();
        assert_eq!(early.kind, RefusalKind::Conflict, "what she made has to end first");
        let made: Vec<TokenId> =
            given.directory.to_end(id(&ann), Disabled { keeps_agents_tokens: keeps }).collect();
        for token in made {
            let (key, decided) = (given.key(), given.directory.revoke(token));
            given.then(key, decided);
        }
        let (key, decided) = (given.key(), given.directory.enable_user(&owner, id(&ann)));
        given.then(key, decided);
        let live: Vec<&str> = all.into_iter().filter(|name| is_live(&given, name)).collect();
        assert_eq!(live, alive, "no token of before comes back");
        assert!(given.directory.may(&ann, Action::ReadAgent, Scope::Agent(agent)), "the roles do");
    }
}

#[test]
fn agents_and_jobs_issue_no_tokens_and_kubectls_tokens_open_clusters_only() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    for actor in [Actor::Agent(events::AgentId(given.id())), Actor::Job(JobId(given.id()))] {
        let asker = Asker { actor, organization };
        let refusal = given.directory.token_holder(&asker, TokenUse::Issue, None, None).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Denied, "{refusal}");
    }
    let holder = TokenHolder::User(id(&owner));
    let mut token = given.token(holder, "kubectl", None);
    token.clusters_only = true;
    let (key, decided) = (given.key(), given.directory.issue_token(&owner, &token, NOW));
    given.then(key, decided);
    let refusal = given.directory.authenticate(token.hash, NOW).unwrap_err();
    assert!(refusal.message.contains("for clusters' APIs only"), "{refusal}");
    assert_eq!(given.directory.holder_of(token.hash, NOW).unwrap().actor, owner.actor);
}

#[test]
fn an_organization_says_how_long_personal_tokens_live() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let lifetime = |given: &Given, wanted| given.directory.personal_lifetime(organization, wanted);
    let TokenLifetimes { default_seconds, longest_seconds } = TokenLifetimes::default();
    assert_eq!(lifetime(&given, None), Ok(default_seconds));
    assert_eq!(lifetime(&given, Some(longest_seconds)), Ok(longest_seconds));
    for wrong in [0, longest_seconds + 1] {
        assert_eq!(lifetime(&given, Some(wrong)).unwrap_err().field.as_deref(), Some("lifetime_seconds"));
    }
    let set = |given: &Given, asker: &Asker, default_seconds, longest_seconds| {
        given.directory.set_token_lifetimes(asker, TokenLifetimes { default_seconds, longest_seconds })
    };
    for (default, longest) in [(3600, 60), (0, 60), (1, 1), (60, u64::MAX)] {
        assert_eq!(set(&given, &owner, default, longest).unwrap_err().kind, RefusalKind::Invalid);
    }
    let viewer = given.user(organization, &[(Role::Maintainer, Scope::Organization(organization))]);
    assert_eq!(set(&given, &viewer, 60, 60).unwrap_err().kind, RefusalKind::Denied);
    let (key, decided) = (given.key(), set(&given, &owner, 3600, 7200));
    given.then(key, decided);
    assert_eq!((lifetime(&given, None), lifetime(&given, Some(7200))), (Ok(3600), Ok(7200)));
    assert!(lifetime(&given, Some(7201)).is_err());
    assert_eq!(set(&given, &owner, 3600, 7200).unwrap().draft, None);
}

#[test]
fn an_operator_is_disabled_by_operators_only() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let ownership = (Role::Owner, Scope::Organization(organization));
    let operator = given.user(organization, &[ownership, OPERATOR]);
    let another = given.user(organization, &[ownership, OPERATOR]);
    let refusal = given.directory.disable_user(&owner, id(&operator), false).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied);
    let (key, decided) = (given.key(), given.directory.disable_user(&another, id(&operator), false));
    given.then(key, decided);
    let last = given.directory.disable_user(&another, id(&another), false).unwrap_err();
    assert!(last.message.contains("last operator"), "{last}");
}
