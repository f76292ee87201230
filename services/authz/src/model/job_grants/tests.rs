use events::directory::{JobAdmitted, JobEnvironment, Scope, TokenHolder};
use events::grants::Grants;
use events::recording::RecordSessions;
use events::requests::authz::Action;
use events::{GroupId, ProjectId, Timestamp};

use super::super::given::{Given, NOW};
use super::*;

/// An organization with `shop/front`, `shop/back` and `bank/vault`, and an agent of `shop/front`.
struct Scene {
    given: Given,
    owner: Asker,
    agent: AgentId,
    shop: GroupId,
    front: ProjectId,
    back: ProjectId,
    vault: ProjectId,
}

fn scene() -> Scene {
    let mut given = Given::default();
    let organization = given.organization("acme");
    let owner = given.owner(organization);
    let (shop, bank) = (given.group(&owner, "shop"), given.group(&owner, "bank"));
    let front = given.project(&owner, shop, "front");
    let back = given.project(&owner, shop, "back");
    let vault = given.project(&owner, bank, "vault");
    let agent = given.agent(&owner, front, "cluster");
    Scene { given, owner, agent, shop, front, back, vault }
}

fn entry(path: &str, line: u32, environments: &[&str]) -> CiGrant {
    CiGrant {
        path: path.to_owned(),
        default_namespace: format!("ns-{line}"),
        access_as: CiAccessAs::CiJob,
        environments: environments.iter().map(|name| (*name).to_owned()).collect(),
        protected_branches_only: false,
        narrowing: events::pass::Narrowing::default(),
        line,
    }
}

impl Scene {
    fn job(&mut self, project: ProjectId, facts: JobFacts, at: Timestamp) -> JobId {
        let job = JobId(self.given.id());
        let end = at.plus_millis(1000);
        let token = self.given.token(TokenHolder::Job(job), "deploy", Some(end));
        let admitted = JobAdmitted { job, project, facts };
        let key = self.given.key();
        let decided = self.given.directory.admit_job(&self.owner, admitted, token, at);
        self.given.then(key, decided);
        job
    }

    fn deploying_to(&mut self, project: ProjectId, environment: &str) -> JobId {
        let environment = JobEnvironment { name: environment.to_owned(), tier: "production".to_owned() };
        self.job(project, JobFacts { environment: Some(environment), ..JobFacts::default() }, NOW)
    }

    fn configured(&mut self, grants: Grants) {
        self.given.configured(self.owner.organization, self.agent, grants);
    }

    /// The line of the entry that lets a job in; none for the implicit one.
    fn place(&self, job: JobId) -> Result<String, String> {
        self.given.directory.granted_to_job(self.agent, job).map(|granted| granted.grant.place)
    }
}

#[test]
fn the_most_specific_entry_decides_and_no_other() {
    let mut scene = scene();
    let (front, back, vault) = (scene.front, scene.back, scene.vault);
    let [of_front, of_back, of_vault] =
        [front, back, vault].map(|project| scene.job(project, JobFacts::default(), NOW));
    for job in [of_front, of_back] {
        let said = scene.place(job).unwrap_err();
        assert!(said.contains(".kasbah/agents/cluster/config.yaml names neither"), "{said}");
    }
    scene.configured(Grants { ci_groups: vec![entry("shop", 3, &[])], ..Grants::default() });
    for job in [of_front, of_back] {
        assert!(scene.place(job).unwrap().contains("config.yaml:3 ci_access.groups shop"));
    }
    assert!(scene.place(of_vault).is_err());

    let ci_projects = vec![entry("shop/back", 5, &["production"]), entry("shop/front", 6, &["production"])];
    scene.configured(Grants { ci_projects, ci_groups: vec![entry("shop", 3, &[])], ..Grants::default() });
    for job in [of_front, of_back] {
        let said = scene.place(job).unwrap_err();
        assert!(said.contains("an environment of production, and this job has none"), "{said}");
    }
    let deploying = scene.deploying_to(back, "production");
    let granted = scene.given.directory.granted_to_job(scene.agent, deploying).unwrap();
    assert!(granted.is_for_environment && granted.default_namespace == "ns-5", "{granted:?}");
}

#[test]
fn jobs_of_the_agents_own_project_need_no_entry_only_while_a_file_is_in_force_that_came_so_before() {
    let mut scene = scene();
    let of_front = scene.job(scene.front, JobFacts::default(), NOW);
    let (organization, agent) = (scene.owner.organization, scene.agent);
    let (audit, record_sessions) = (AuditMode::FailClosed, RecordSessions::All);
    let grants =
        Grants { ci_groups: vec![entry("shop", 3, &[])], audit, record_sessions, ..Grants::default() };
    for grants in [Grants::default(), grants.clone()] {
        scene.given.configured_with(organization, agent, grants, true);
        assert!(scene.place(of_front).unwrap().starts_with("a job of the agent's own project"));
    }
    let implicit = scene.given.directory.granted_to_job(agent, of_front).unwrap();
    let recorded = (implicit.audit, implicit.record_sessions);
    assert_eq!(recorded, (audit, record_sessions), "of all that an agent lets in");
    assert_eq!(implicit.access_as, CiAccessAs::Agent);
    scene.configured(grants);
    assert!(scene.place(of_front).unwrap().contains("ci_access.groups shop"));
    scene.configured(Grants::default());
    assert!(scene.place(of_front).is_err());
    scene.given.configured_with(organization, agent, Grants::default(), true);
    scene.given.configured_by_a_newer_version(organization, agent);
    assert!(scene.place(of_front).is_err(), "written by a newer version");
}

#[test]
fn environments_and_protected_branches_are_asked_for() {
    let mut scene = scene();
    let back = scene.back;
    let protected = CiGrant { protected_branches_only: true, ..entry("shop/back", 4, &["review/*"]) };
    scene.configured(Grants { ci_projects: vec![protected], ..Grants::default() });
    let environment = |name: &str| Some(JobEnvironment { name: name.to_owned(), tier: String::new() });
    for (name, is_protected, expected) in [
        ("review/login", true, ""),
        ("review/login", false, "protected"),
        ("production", true, "this job has production"),
    ] {
        let facts = JobFacts { is_protected, environment: environment(name), ..JobFacts::default() };
        let job = scene.job(back, facts, NOW);
        match scene.place(job) {
            Ok(_) => assert_eq!(expected, ""),
            Err(said) => assert!(!expected.is_empty() && said.contains(expected), "{said}"),
        }
    }
}

#[test]
fn a_job_is_seen_as_itself_with_its_project_group_and_environment() {
    let mut scene = scene();
    let (agent, shop, back) = (scene.agent, scene.shop, scene.back);
    let job = scene.deploying_to(back, "production");
    let AccessAs::Impersonated(whom) = scene.given.directory.job_as(agent, job, CiAccessAs::CiJob) else {
        panic!("not itself")
    };
    assert_eq!(whom.username, format!("kasbah:ci_job:{job}"));
    let expected = [
        "kasbah:ci_job".to_owned(),
        format!("kasbah:group:{shop}"),
        format!("kasbah:project:{back}"),
        format!("kasbah:project_env:{back}:production"),
        format!("kasbah:group_env_tier:{shop}:production"),
        format!("kasbah:project_env_tier:{back}:production"),
    ];
    assert_eq!(whom.groups, expected);
    assert!(whom.extra.keys().all(|key| Impersonated::EXTRAS.contains(&key.as_str())), "{whom:?}");
    let verbatim = Impersonated { username: "deployer".to_owned(), ..Impersonated::default() };
    let as_named = scene.given.directory.job_as(agent, job, CiAccessAs::Impersonate(verbatim.clone()));
    assert_eq!(as_named, AccessAs::Impersonated(verbatim));
    assert_eq!(scene.given.directory.job_as(agent, job, CiAccessAs::Agent), AccessAs::Agent);
}

#[test]
fn a_job_has_the_role_job_in_its_project_and_nothing_elsewhere() {
    let mut scene = scene();
    let (front, vault) = (scene.front, scene.vault);
    let job = scene.job(front, JobFacts::default(), NOW);
    let asker = Asker { actor: Actor::Job(job), organization: scene.owner.organization };
    let may = |action, scope| scene.given.directory.may(&asker, action, scope);
    assert!(may(Action::ReadAgent, Scope::Agent(scene.agent)));
    assert!(may(Action::SyncSource, Scope::Project(front)));
    assert!(!may(Action::ManageJobTokens, Scope::Project(front)));
    assert!(!may(Action::ReadProject, Scope::Project(vault)));
}

#[test]
fn who_manages_jobs_tokens_is_asked_for_and_a_token_is_shown_once() {
    let mut scene = scene();
    let front = scene.front;
    let job = scene.job(front, JobFacts::default(), NOW);
    let admitted = JobAdmitted { job, project: front, facts: JobFacts::default() };
    let mut again = |asker: &Asker, job: JobAdmitted| {
        let token = scene.given.token(TokenHolder::Job(job.job), "deploy", None);
        scene.given.directory.admit_job(asker, job, token, NOW)
    };
    let owner = scene.owner.clone();
    let said = again(&owner, admitted.clone()).unwrap_err().message;
    assert!(said.contains("shown only once"), "{said}");
    let itself = Asker { actor: Actor::Job(job), ..owner };
    let said = again(&itself, admitted).unwrap_err();
    assert_eq!(said.kind, events::RefusalKind::Denied, "{said}");
}

#[test]
fn jobs_that_ended_long_ago_leave_nothing_behind() {
    let mut scene = scene();
    let front = scene.front;
    scene.configured(Grants { ci_projects: vec![entry("shop/front", 3, &[])], ..Grants::default() });
    let empty = scene.given.directory.clone();
    let old = scene.job(front, JobFacts::default(), NOW);
    assert!(scene.place(old).is_ok());
    let later = NOW.plus_millis(2 * 24 * 3_600_000);
    scene.given.passed_millis = later.0 - NOW.0;
    let new = scene.job(front, JobFacts::default(), later);
    assert!(scene.place(old).is_err() && scene.place(new).is_ok());
    let directory = &scene.given.directory;
    assert_eq!(directory.tokens.len(), empty.tokens.len() + 1);
    assert_eq!(directory.hashes.len(), empty.hashes.len() + 1);
    assert_eq!(directory.versions.len(), empty.versions.len() + 1);
    assert_eq!((directory.jobs.len(), directory.job_ends.len()), (1, 1));
}
