use events::directory::{DirectoryEvent, GroupCreated, Role, Scope, TokenHolder};
use events::requests::authz::{Action, Decide, DecideFetch};
use events::{Actor, AggregateKind, AggregateRef, OrganizationId, RefusalKind, Sha256, Timestamp, UserId};
use store::Projection;

use super::claims::{NameId, Named};
use super::given::{Given, NOW, settings};
use super::lookup::UserRef;
use super::tokens::TokenUse;
use super::{Asker, Directory};
use crate::table::{Cell, cell};

fn decision(directory: &Directory, asker: &Asker, action: Action, scope: Scope) -> (bool, bool) {
    let (actor, organization) = (asker.actor.clone(), asker.organization);
    let decision = directory.decide_access(&Decide { actor, organization, action, scope });
    (decision.allowed, decision.visible)
}

#[test]
fn a_role_holds_in_its_scope_and_below_and_nowhere_else() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let (shop, bank) = (given.group(&owner, "shop"), given.group(&owner, "bank"));
    let (front, back) = (given.project(&owner, shop, "front"), given.project(&owner, shop, "back"));
    let vault = given.project(&owner, bank, "vault");
    let agent = given.agent(&owner, front, "cluster");
    let levels =
        [Scope::Organization(organization), Scope::Group(shop), Scope::Project(front), Scope::Agent(agent)];
    for (height, held) in levels.iter().enumerate() {
        for role in [Role::Owner, Role::Maintainer, Role::Developer, Role::Viewer, Role::Job] {
            let user = given.user(organization, &[(role, *held)]);
            for action in Action::ALL {
                for (depth, scope) in levels.iter().enumerate() {
                    let expected = depth >= height && cell(*action, role) == Cell::Yes;
                    let (allowed, visible) = decision(&given.directory, &user, *action, *scope);
                    assert_eq!(allowed, expected, "{role:?} on {held:?}: {action:?} on {scope:?}");
                    assert!(visible, "what lies above and below a role is seen: {scope:?}");
                }
                for (aside, seen) in
                    [(Scope::Project(back), height <= 1), (Scope::Project(vault), height == 0)]
                {
                    let expected = seen && cell(*action, role) == Cell::Yes;
                    assert_eq!(
                        decision(&given.directory, &user, *action, aside),
                        (expected, seen),
                        "{held:?} {aside:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_stranger_is_shown_nothing_whatever_they_ask() {
    let mut given = Given::default();
    let (acme, other) = (given.organization("acme"), given.organization("other"));
    let owner = given.owner(acme);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let agent = given.agent(&owner, project, "cluster");
    given.credential(&owner, "git", "git.example");
    let stranger = given.owner(other);
    let foreign_group = given.group(&stranger, "other");
    let foreign = given.project(&stranger, foreign_group, "other");
    let foreign_agent = given.agent(&stranger, foreign, "other");
    let directory = &given.directory;
    let scopes =
        [Scope::Organization(acme), Scope::Group(group), Scope::Project(project), Scope::Agent(agent)];
    let actors =
        [stranger.actor.clone(), Actor::Agent(foreign_agent), Actor::User(UserId(uuid::Uuid::max()))];
    for actor in actors {
        for organization in [acme, other, OrganizationId::SYSTEM] {
            let asker = Asker { actor: actor.clone(), organization };
            for action in Action::ALL {
                for scope in scopes {
                    assert_eq!(
                        decision(directory, &asker, *action, scope),
                        (false, false),
                        "{asker:?} {action:?} {scope:?}"
                    );
                }
            }
            assert!(directory.visible_project(&asker, "shop/front").is_err());
            assert!(directory.visible_project(&asker, &project.to_string()).is_err());
            assert!(directory.visible_agent(&asker, "cluster").is_err());
            assert!(directory.visible_agent(&asker, &agent.to_string()).is_err());
            assert!(directory.projects_for(&asker, None).all(|(id, _)| id == foreign));
            assert!(directory.agents_for(&asker, None).all(|(id, _)| id == foreign_agent));
            assert!(directory.groups_for(&asker, None).all(|(id, _)| id == foreign_group));
            assert!(directory.organizations_for(&asker, None).all(|(id, _)| id == other));
        }
        let inside = Asker { actor, organization: acme };
        assert_eq!(directory.credentials_for(&inside, None).err().unwrap().kind, RefusalKind::NotFound);
        assert_eq!(directory.users_for(&inside, None).err().unwrap().kind, RefusalKind::NotFound);
    }
}

#[test]
fn an_agent_may_connect_itself_and_read_its_own_sources() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let (own, other) = (given.agent(&owner, project, "one"), given.agent(&owner, project, "two"));
    let asker = Asker { actor: Actor::Agent(own), organization };
    for action in Action::ALL {
        let may = [Action::ConnectAgent, Action::ReadSource].contains(action);
        assert_eq!(decision(&given.directory, &asker, *action, Scope::Agent(own)), (may, true), "{action:?}");
        for scope in [Scope::Agent(other), Scope::Project(project), Scope::Organization(organization)] {
            assert_eq!(decision(&given.directory, &asker, *action, scope), (false, false));
        }
    }
    let key = given.key();
    let deleted = given.directory.delete_agent(&owner, "one");
    given.then(key, deleted);
    assert_eq!(decision(&given.directory, &asker, Action::ConnectAgent, Scope::Agent(own)), (false, false));
}

#[test]
fn an_agent_replaces_those_that_had_its_name_in_its_project() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let elsewhere = given.project(&owner, group, "back");
    let mut former = Vec::new();
    for _ in 0..2 {
        let agent = given.agent(&owner, project, "one");
        assert_eq!(given.directory.former_agents(organization, (project, None), "one"), former, "it lives");
        let key = given.key();
        let deleted = given.directory.delete_agent(&owner, "one");
        given.then(key, deleted);
        former.insert(0, agent);
        former.sort_by(|left, right| right.cmp(left));
        assert_eq!(given.directory.former_agents(organization, (project, None), "one"), former);
    }
    assert!(given.directory.former_agents(organization, (project, None), "two").is_empty());
    assert!(given.directory.former_agents(organization, (elsewhere, None), "one").is_empty());
}

#[test]
fn an_operator_sees_organizations_and_nothing_in_them() {
    let mut given = Given::default();
    let (acme, home) = (given.organization("acme"), given.organization("home"));
    let owner = given.owner(acme);
    let group = given.group(&owner, "shop");
    let operator = given.user(home, &[super::access::OPERATOR]);
    let there = Asker { organization: acme, ..operator.clone() };
    assert_eq!(
        decision(&given.directory, &there, Action::ReadOrganization, Scope::Organization(acme)),
        (true, true)
    );
    assert_eq!(decision(&given.directory, &there, Action::ReadProject, Scope::Group(group)), (false, false));
    assert_eq!(given.directory.organizations_for(&operator, None).count(), 2);
    let system = Asker { organization: OrganizationId::SYSTEM, ..operator };
    let scope = Scope::Organization(OrganizationId::SYSTEM);
    assert_eq!(decision(&given.directory, &system, Action::CreateOrganization, scope), (true, true));
    assert_eq!(decision(&given.directory, &owner, Action::CreateOrganization, scope), (false, false));
}

#[test]
fn owners_make_no_operators_and_touch_none() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let operator = given.user(organization, &[super::access::OPERATOR]);
    let Actor::User(operator_id) = operator.actor else { panic!("a user") };
    let Actor::User(owner_id) = owner.actor else { panic!("a user") };
    let refusal = given.directory.assign_role(&owner, owner_id, super::access::OPERATOR, false).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied);
    let wanted = Some(UserRef::Id(operator_id));
    let refusal = given.directory.token_holder(&owner, TokenUse::Issue, None, wanted).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied, "a token of an operator's would make an operator");
    let role = (Role::Agent, Scope::Organization(organization));
    assert_eq!(
        given.directory.assign_role(&owner, owner_id, role, false).unwrap_err().kind,
        RefusalKind::Invalid
    );
}

#[test]
fn an_organization_keeps_an_owner() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let Actor::User(id) = owner.actor else { panic!("a user") };
    let role = (Role::Owner, Scope::Organization(organization));
    let refusal = given.directory.assign_role(&owner, id, role, true).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    given.owner(organization);
    let key = given.key();
    let decided = given.directory.assign_role(&owner, id, role, true);
    given.then(key, decided);
    assert!(!given.directory.may(&owner, Action::CreateGroup, role.1));
}

#[test]
fn a_claim_that_was_never_used_is_completed_under_its_own_id() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let name = NameId::of(Named::Group, organization, organization.0, "shop");
    let (first, second) = (given.key(), given.key());
    let dangling = given.claimed(name, first);
    assert_eq!(given.directory.group_named(organization, "shop"), None, "nothing has the name yet");
    let completed = given.claimed(name, second);
    assert_eq!(completed, dangling);
    let id = events::GroupId(completed);
    let decided = given.directory.create_group(&owner, id, "shop", second);
    given.then(second, decided);
    let late = given.directory.create_group(&owner, id, "shop", first).unwrap_err();
    assert_eq!(late.kind, RefusalKind::Conflict, "the one that comes back to its claim loses");
    let again = given.directory.create_group(&owner, id, "shop", second).unwrap();
    assert_eq!(again.draft, None, "the same request again is answered the same");
    let fresh = given.id();
    let third = given.key();
    assert_eq!(given.directory.claim(name, fresh, third).unwrap_err().kind, RefusalKind::Conflict);
}

#[test]
fn the_name_of_what_was_deleted_or_revoked_is_free() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let old = given.agent(&owner, project, "cluster");
    let key = given.key();
    let deleted = given.directory.delete_agent(&owner, "cluster");
    given.then(key, deleted);
    let new = given.agent(&owner, project, "cluster");
    assert_ne!(old, new);
    assert_eq!(given.directory.visible_agent(&owner, "shop/front:cluster").unwrap().0, new);
    given.credential(&owner, "git", "git.example");
    let key = given.key();
    let revoked = given.directory.revoke_credential(&owner, "git");
    given.then(key, revoked);
    given.credential(&owner, "git", "git.example");
    assert_eq!(given.directory.credentials_for(&owner, None).unwrap().count(), 2);
}

#[test]
fn a_name_that_two_agents_have_is_asked_for_more_exactly() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let (front, back) = (given.project(&owner, group, "front"), given.project(&owner, group, "back"));
    given.agent(&owner, front, "cluster");
    let other = given.agent(&owner, back, "cluster");
    assert_eq!(given.directory.visible_agent(&owner, "cluster").unwrap_err().kind, RefusalKind::Conflict);
    assert_eq!(given.directory.visible_agent(&owner, "shop/back:cluster").unwrap().0, other);
    let narrow = given.user(organization, &[(Role::Viewer, Scope::Project(back))]);
    assert_eq!(
        given.directory.visible_agent(&narrow, "cluster").unwrap().0,
        other,
        "the other is not theirs to see"
    );
    assert!(given.directory.visible_agent(&narrow, "shop/front:cluster").is_err());
}

#[test]
fn a_token_opens_until_it_is_revoked_expired_or_its_agent_deleted() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let agent = given.agent(&owner, project, "cluster");
    let hash = |name: &str| Sha256::of(name.as_bytes());
    let rotation = given.token(TokenHolder::Agent(agent), "rotation", Some(NOW.plus_millis(1000)));
    let key = given.key();
    let issued = given.directory.issue_token(&owner, &rotation, NOW);
    given.then(key, issued);
    for name in ["cluster", "rotation"] {
        let principal = given.directory.authenticate(hash(name), NOW).unwrap();
        assert_eq!((principal.actor, principal.organization), (Actor::Agent(agent), organization));
    }
    let message = |directory: &Directory, name: &str, at: Timestamp| {
        let refusal = directory.authenticate(hash(name), at).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unauthenticated);
        refusal.message
    };
    assert_eq!(message(&given.directory, "rotation", NOW.plus_millis(1000)), "the token has expired");
    assert_eq!(message(&given.directory, "nobody", NOW), "unknown token");
    let key = given.key();
    let revoked = given.directory.revoke_token(&owner, rotation.token);
    given.then(key, revoked);
    assert_eq!(message(&given.directory, "rotation", NOW), "the token was revoked");
    let key = given.key();
    let deleted = given.directory.delete_agent(&owner, "cluster");
    given.then(key, deleted);
    assert_eq!(message(&given.directory, "cluster", NOW), "the token was revoked");
    let late = given.token(TokenHolder::Agent(agent), "late", None);
    assert!(given.directory.issue_token(&owner, &late, NOW).is_err(), "no token after deletion");
}

#[test]
fn a_use_is_noted_once_an_hour() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    given.agent(&owner, project, "cluster");
    let token = given.directory.authenticate(Sha256::of(b"cluster"), NOW).unwrap().token;
    assert!(given.directory.use_is_news(token, NOW));
    let key = given.key();
    let used = given.directory.use_token(token, NOW);
    given.then(key, used);
    let last = given.directory.token_view(token).unwrap().last_used_at.unwrap();
    assert!(last <= NOW && last.0 % 3_600_000 == 0);
    assert!(!given.directory.use_is_news(token, NOW.plus_millis(1)));
    assert_eq!(given.directory.use_token(token, NOW.plus_millis(1)).unwrap().draft, None);
    assert!(given.directory.use_is_news(token, NOW.plus_millis(3_600_000)));
}

#[test]
fn tokens_of_others_are_not_found_but_by_those_who_manage_them() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let viewer = given.user(organization, &[(Role::Viewer, Scope::Organization(organization))]);
    let Actor::User(viewer_id) = viewer.actor else { panic!("a user") };
    let Actor::User(owner_id) = owner.actor else { panic!("a user") };
    let owned = given.token(TokenHolder::User(owner_id), "owned", None);
    let key = given.key();
    let issued = given.directory.issue_token(&owner, &owned, NOW);
    given.then(key, issued);
    assert_eq!(given.directory.revoke_token(&viewer, owned.token).unwrap_err().kind, RefusalKind::NotFound);
    let other = Some(UserRef::Id(owner_id));
    let refusal = given.directory.token_holder(&viewer, TokenUse::List, None, other).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    let own = given.directory.token_holder(&viewer, TokenUse::Issue, None, None);
    assert_eq!(own, Ok(TokenHolder::User(viewer_id)));
    let managed = given.directory.token_holder(&owner, TokenUse::Issue, None, Some(UserRef::Id(viewer_id)));
    assert_eq!(managed, Ok(TokenHolder::User(viewer_id)));
}

#[test]
fn a_repository_is_read_by_its_own_project_its_group_and_those_granted_its_credential() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let (shop, bank) = (given.group(&owner, "shop"), given.group(&owner, "bank"));
    let front = given.project(&owner, shop, "front");
    let back = given.project(&owner, shop, "back");
    let credential = given.credential(&owner, "git", "git.example");
    let mut with_credential = settings("https://git.example/vault.git");
    with_credential.credential = Some(credential);
    let vault = given.project_with(&owner, bank, "vault", with_credential);
    let agent = given.agent(&owner, front, "cluster");
    let asked = |given: &Given, project| {
        given.directory.decide_fetch(organization, &DecideFetch { agents: vec![agent], project }, NOW)
    };
    assert!(asked(&given, front).of(agent).is_ok() && asked(&given, back).of(agent).is_ok());
    assert!(asked(&given, vault).of(agent).is_err(), "another group");
    let key = given.key();
    let granted = given.directory.grant_credential(&owner, credential, front);
    given.then(key, granted);
    let decision = asked(&given, vault);
    assert_eq!(decision.of(agent), Ok(()));
    assert_eq!(decision.credential_host.as_deref(), Some("git.example"));
    let key = given.key();
    let revoked = given.directory.revoke_credential(&owner, "git");
    given.then(key, revoked);
    let decision = asked(&given, vault);
    let reason = decision.of(agent).unwrap_err();
    assert!(decision.settings.is_none() && reason.contains("revoked"), "{reason}");
    let foreign = given.organization("other");
    let stranger = given.owner(foreign);
    let group = given.group(&stranger, "shop");
    let theirs = given.project(&stranger, group, "front");
    for (organization, project) in [(organization, theirs), (foreign, theirs), (foreign, front)] {
        let decision =
            given.directory.decide_fetch(organization, &DecideFetch { agents: vec![agent], project }, NOW);
        assert!(decision.of(agent).is_err() && decision.settings.is_none());
    }
}

#[test]
fn without_a_live_token_nothing_is_fetched() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let agent = given.agent(&owner, project, "cluster");
    let token = given.directory.authenticate(Sha256::of(b"cluster"), NOW).unwrap().token;
    let key = given.key();
    let revoked = given.directory.revoke_token(&owner, token);
    given.then(key, revoked);
    let decision =
        given.directory.decide_fetch(organization, &DecideFetch { agents: vec![agent], project }, NOW);
    let reason = decision.of(agent).unwrap_err();
    assert!(reason.contains("no valid token"), "{reason}");
    let other = given.agent(&owner, project, "another");
    let both = DecideFetch { agents: vec![agent, other], project };
    let decision = given.directory.decide_fetch(organization, &both, NOW);
    assert!(decision.of(agent).is_err() && decision.of(other).is_ok() && decision.settings.is_some());
}

#[test]
fn a_credential_goes_to_its_own_host_only() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    given.credential(&owner, "git", "git.example");
    let directory = &given.directory;
    let found = |repository| directory.credential_for(&owner, project, "git", repository);
    assert!(found("https://git.example/a.git").is_ok() && found("https://git.example:443/a.git").is_ok());
    for elsewhere in ["https://evil.example/a.git", "https://git.example:8443/a.git", "/srv/a.git"] {
        assert_eq!(found(elsewhere).unwrap_err().field.as_deref(), Some("credential"), "{elsewhere}");
    }
    let maintainer = given.user(organization, &[(Role::Maintainer, Scope::Organization(organization))]);
    let refusal =
        given.directory.credential_for(&maintainer, project, "git", "https://git.example/a.git").unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NotFound, "not granted, and not theirs to grant");
}

#[test]
fn external_ids_find_their_project_and_can_be_given_up() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let (front, back) = (given.project(&owner, group, "front"), given.project(&owner, group, "back"));
    let name = super::projects::external_name(organization, 17);
    let give = |given: &mut Given, project: events::ProjectId, external| {
        let key = given.key();
        if external == Some(17) {
            let claim = given.directory.claim(name, project.0, key);
            let step = given.key();
            given.then(step, claim);
        }
        let mut settings = given.directory.projects[&project].settings.clone();
        settings.external_id = external;
        let decided = given.directory.set_project(&owner, project, &settings);
        given.then(key, decided);
    };
    give(&mut given, front, Some(17));
    assert_eq!(given.directory.find_project(organization, "17").unwrap().0, front);
    let key = given.key();
    assert_eq!(given.directory.claim(name, back.0, key).unwrap_err().kind, RefusalKind::Conflict);
    give(&mut given, front, None);
    assert!(given.directory.find_project(organization, "17").is_none());
    give(&mut given, back, Some(17));
    assert_eq!(given.directory.find_project(organization, "17").unwrap().0, back);
}

#[test]
fn an_event_from_the_future_makes_its_aggregate_read_only() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    given.project(&owner, group, "front");
    let mut commit = given.commits.last().unwrap().clone();
    commit.version += 1;
    commit.events[0].body.schema_version = 99;
    assert!(given.directory.fold_commit(&commit).is_some_and(|detail| detail.contains("version 99")));
    assert!(given.directory.find_project(organization, "shop/front").is_some(), "what was known stays");
}

#[test]
fn a_snapshot_restored_equals_the_fold_and_goes_on_equally() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let group = given.group(&owner, "shop");
    let project = given.project(&owner, group, "front");
    let mut restored =
        Directory::restore(Directory::FOLD_VERSION, &given.directory.snapshot().unwrap()).unwrap();
    assert_eq!(restored, given.directory);
    let before = given.commits.len();
    given.agent(&owner, project, "cluster");
    for commit in &given.commits[before..] {
        restored.fold_commit(commit);
    }
    assert_eq!(restored, given.directory);
    assert_eq!(restored.snapshot(), given.directory.snapshot());
    assert_eq!(Directory::restore(Directory::FOLD_VERSION, b"something else"), None);
}

#[test]
fn a_group_that_one_may_not_see_reads_like_one_that_is_not_there() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let shop = given.group(&owner, "shop");
    given.group(&owner, "bank");
    let maintainer = given.user(organization, &[(Role::Maintainer, Scope::Group(shop))]);
    assert_eq!(given.directory.group_for_project(&maintainer, "shop"), Ok(Some(shop)));
    let hidden = given.directory.group_for_project(&maintainer, "bank").unwrap_err();
    let missing = given.directory.group_for_project(&maintainer, "nope").unwrap_err();
    assert_eq!(hidden.kind, RefusalKind::NotFound);
    assert_eq!(hidden.message.replace("bank", "nope"), missing.message);
}

#[test]
fn a_draft_names_the_version_that_it_was_decided_on() {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let aggregate = AggregateRef::new(AggregateKind::Group, "g");
    let event = DirectoryEvent::GroupCreated(GroupCreated {
        group: events::GroupId(given.id()),
        name: "g".to_owned(),
    });
    let draft = |given: &Given| {
        given
            .directory
            .draft(organization, aggregate.clone(), vec![event.clone()], ())
            .unwrap()
            .draft
            .unwrap()
    };
    assert_eq!(draft(&given).expected, 0);
    let (key, first) = (given.key(), draft(&given));
    given.fold(key, first);
    assert_eq!(draft(&given).expected, 1);
}
