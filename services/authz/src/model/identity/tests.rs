use events::directory::{JobFacts, ProjectSettings, Role};
use events::{CommitId, JobId, TokenId};

use super::super::claims::Named;
use super::super::given::{Given, NOW, settings};
use super::*;

const REPOSITORY: &str = "https://gitlab.example/Shop/front";

/// An organization with `shop/front` over [`REPOSITORY`].
struct Scene {
    given: Given,
    owner: Asker,
    project: ProjectId,
}

fn scene() -> Scene {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let shop = given.group(&owner, "shop");
    let repository = settings("https://gitlab.example/shop/front.git");
    let project = given.project_with(&owner, shop, "front", repository);
    Scene { given, owner, project }
}

fn claims() -> JobClaims {
    JobClaims {
        provider: "gitlab".to_owned(),
        owners: vec!["shop".to_owned(), "id:77".to_owned()],
        repository: REPOSITORY.to_owned(),
        external_id: Some(4711),
    }
}

impl Scene {
    fn trust(&mut self, asker: &Asker, provider: &str, owners: &[&str]) {
        let owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
        let key = self.given.key();
        let decided = self.given.directory.trust_provider(asker, provider, &owners);
        self.given.then(key, decided);
    }

    fn meant(&self, claims: &JobClaims, project: Option<&str>) -> Result<ProjectId, Refusal> {
        self.given.directory.project_of_claims(claims, None, project).map(|(_, project)| project)
    }

    fn sign_in(&mut self, job: u128, claims: &JobClaims) -> Result<JobId, Refusal> {
        let job = JobId(uuid::Uuid::from_u128(job));
        let end = Some(NOW.plus_millis(1000));
        let token = self.given.token(TokenHolder::Job(job), "deploy", end);
        let admitted = JobAdmitted { job, project: self.project, facts: JobFacts::default() };
        let decided = self.given.directory.sign_in_job(claims, admitted, token, NOW)?;
        let key = self.given.key();
        self.given.then(key, Ok(decided));
        Ok(job)
    }
}

#[test]
fn a_job_belongs_to_the_project_with_its_repository_if_its_owner_is_believed() {
    let mut scene = scene();
    let owner = scene.owner.clone();
    let said = scene.meant(&claims(), None).unwrap_err();
    assert!(said.message.contains("kasbah provider trust gitlab --owner"), "{said}");
    for (owners, is_let_in) in [
        (&["shop"][..], true),
        (&["SHOP"], true),
        (&["id:77"], true),
        (&["77"], false),
        (&["sho"], false),
        (&["shop/team"], false),
        (&["bank", "shop"], true),
    ] {
        scene.trust(&owner, "gitlab", owners);
        assert_eq!(scene.meant(&claims(), None).is_ok(), is_let_in, "{owners:?}");
    }
    let below = JobClaims { owners: vec!["shop/team/two".to_owned()], ..claims() };
    assert_eq!(scene.meant(&below, None), Ok(scene.project), "what is below an owner is the owner's");
    let elsewhere = JobClaims { repository: "https://gitlab.example/shop/back".to_owned(), ..claims() };
    let said = scene.meant(&elsewhere, None).unwrap_err();
    assert!(
        said.message.contains("no project has the repository https://gitlab.example/shop/back"),
        "{said}"
    );
    let other = JobClaims { provider: "github".to_owned(), ..claims() };
    assert!(scene.meant(&other, None).is_err(), "another provider is not believed for it");
    let distrust = scene.given.directory.distrust_provider(&owner, "gitlab");
    let key = scene.given.key();
    scene.given.then(key, distrust);
    assert!(scene.meant(&claims(), None).is_err());
}

#[test]
fn a_project_that_knows_the_number_of_its_repository_believes_no_other() {
    let mut scene = scene();
    let owner = scene.owner.clone();
    scene.trust(&owner, "gitlab", &["shop"]);
    let set = |external_id| ProjectSettings { external_id, ..settings(REPOSITORY) };
    let key = scene.given.key();
    let name = super::super::projects::external_name(owner.organization, 4711);
    let claimed = scene.given.directory.claim(name, scene.project.0, key);
    let step = scene.given.key();
    scene.given.then(step, claimed);
    let changed = scene.given.directory.set_project(&owner, scene.project, &set(Some(4711)));
    scene.given.then(key, changed);
    assert!(scene.meant(&claims(), None).is_ok());
    for external_id in [Some(4712), None] {
        let taken_over = JobClaims { external_id, ..claims() };
        assert!(scene.meant(&taken_over, None).is_err(), "{external_id:?}");
    }
}

#[test]
fn who_could_be_meant_twice_has_to_say() {
    let mut scene = scene();
    let owner = scene.owner.clone();
    scene.trust(&owner, "gitlab", &["shop"]);
    let ops = scene.given.group(&owner, "ops");
    let twin = scene.given.project_with(&owner, ops, "front", settings(REPOSITORY));
    let said = scene.meant(&claims(), None).unwrap_err();
    assert_eq!((said.kind, said.field.as_deref()), (RefusalKind::Conflict, Some("project")));
    assert_eq!(scene.meant(&claims(), Some("ops/front")), Ok(twin));

    let other = scene.given.organization("other");
    let others_owner = scene.given.owner(other);
    let group = scene.given.group(&others_owner, "shop");
    let spy = scene.given.project_with(&others_owner, group, "front", settings(REPOSITORY));
    assert!(scene.meant(&claims(), Some("ops/front")).is_ok(), "another organization believes nobody yet");
    scene.trust(&others_owner, "gitlab", &["shop"]);
    let said = scene.meant(&claims(), Some("shop/front")).unwrap_err();
    assert_eq!(said.field.as_deref(), Some("organization"));
    let meant = scene.given.directory.project_of_claims(&claims(), Some(other), None);
    assert_eq!(meant, Ok((other, spy)));
}

#[test]
fn an_id_token_lets_a_job_in_once() {
    let mut scene = scene();
    let owner = scene.owner.clone();
    assert!(scene.sign_in(1, &claims()).is_err(), "nobody believes it yet");
    scene.trust(&owner, "gitlab", &["shop"]);
    scene.sign_in(1, &claims()).unwrap();
    let said = scene.sign_in(1, &claims()).unwrap_err();
    assert!(said.kind == RefusalKind::Unauthenticated && said.message.contains("already used"), "{said}");
    scene.sign_in(2, &claims()).unwrap();
}

#[test]
fn only_owners_say_who_is_believed() {
    let mut scene = scene();
    let organization = Scope::Organization(scene.owner.organization);
    let maintainer = scene.given.user(scene.owner.organization, &[(Role::Maintainer, organization)]);
    let owners = BTreeSet::from(["shop".to_owned()]);
    let said = scene.given.directory.trust_provider(&maintainer, "gitlab", &owners).unwrap_err();
    assert_eq!(said.kind, RefusalKind::Denied);
    let many = (0..=MAXIMUM_OWNERS).map(|number| format!("group-{number}")).collect();
    let said = scene.given.directory.trust_provider(&scene.owner, "gitlab", &many).unwrap_err();
    assert_eq!(said.field.as_deref(), Some("owners"));
}

fn account(organization: OrganizationId, subject: u8) -> Account {
    Account { organization, provider: "company".to_owned(), subject: Sha256([subject; 32]) }
}

#[test]
fn an_account_is_its_users_from_the_first_time_on() {
    let mut scene = scene();
    let (owner, organization) = (scene.owner.clone(), scene.owner.organization);
    let login = NameId::of(Named::User, organization, organization.0, "ada");
    let key = scene.given.key();
    let ada = UserId(scene.given.claimed(login, key));
    let name = events::directory::PersonalData(vec![1]);
    let made = scene.given.directory.new_user(organization, ada, name, &[], key);
    scene.given.then(key, made);
    let nobody = NameId::of(Named::User, organization, organization.0, "eve");
    let (first, second) = (account(organization, 1), account(organization, 2));
    let user_of = |scene: &Scene, account, login| scene.given.directory.user_of_account(account, login);
    assert_eq!(user_of(&scene, &first, login), Ok(ada));
    assert!(user_of(&scene, &first, nobody).unwrap_err().message.contains("kasbah user create"));

    let sign_in = |scene: &mut Scene, account: &Account, number: u128| {
        let mut token = scene.given.token(TokenHolder::User(ada), &format!("company {number}"), None);
        token.token = TokenId(uuid::Uuid::from_u128(1000 + number));
        let decided = scene.given.directory.sign_in_user(account, token, NOW)?;
        let key = CommitId(scene.given.id());
        scene.given.then(key, Ok(decided));
        Ok::<(), Refusal>(())
    };
    assert!(sign_in(&mut scene, &first, 1).is_err(), "the organization does not believe the provider");
    scene.trust(&owner, "company", &[]);
    sign_in(&mut scene, &first, 1).unwrap();
    assert!(sign_in(&mut scene, &first, 1).unwrap_err().message.contains("already used"));
    sign_in(&mut scene, &first, 2).unwrap();
    assert_eq!(scene.given.directory.user_view(ada).unwrap().0.accounts, ["company"]);
    assert_eq!(user_of(&scene, &first, nobody), Ok(ada), "a new login name at the provider changes nothing");
    let said = user_of(&scene, &second, login).unwrap_err();
    assert!(
        said.message.contains("another account at company"),
        "who gets the old login name is not them: {said}"
    );
    assert!(sign_in(&mut scene, &second, 3).is_err());

    let unlinked = scene.given.directory.unlink_user(&owner, ada, "company");
    let key = scene.given.key();
    scene.given.then(key, unlinked);
    sign_in(&mut scene, &second, 4).unwrap();
    assert!(user_of(&scene, &first, login).is_err());
}
