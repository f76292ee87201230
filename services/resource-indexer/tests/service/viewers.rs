//! Where people use a cluster as themselves: what its own authorization says, asked through a gateway.

use std::sync::Arc;
use std::time::Duration;

use bus::Serving;
use events::digest::Sha256;
use events::grants::UserAccessAs;
use events::pass::{Narrowing, SignedPass};
use events::requests::authz::{IssuedReview, SignReview, UsableAgent};
use events::requests::index::{AgentCoverage, FindObjects, ListChanges, Moment, ShowCoverage};
use events::requests::rights::{ReviewRights, ReviewedNamespaces, ReviewedRights};
use events::subject::Subject;
use events::{Actor, AgentId, Position, Refusal, RefusalKind, Request as _};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::json;

use super::running::{DEADLINE, Indexer, Installation, listed, map, seen};

/// An agent's cluster, as the gateway that has its tunnel answers for it.
struct Cluster {
    asked: Arc<Mutex<Vec<ReviewRights>>>,
    /// Nothing is answered while there is nothing.
    says: Arc<Mutex<Option<Result<ReviewedRights, Refusal>>>>,
    _serving: Serving,
}

impl Cluster {
    async fn of(installation: &Installation, agent: AgentId) -> Self {
        let (asked, says) = (Arc::default(), Arc::new(Mutex::new(None)));
        let (keeping, saying) = (Arc::clone(&asked), Arc::clone(&says));
        let subject = Subject::agent_request(ReviewRights::NAME, agent);
        let serving =
            bus::answer_under::<ReviewRights, _>(&*installation.bus, &subject, move |context, request| {
                assert!(matches!(context.actor, Actor::Service(_)), "{context:?}");
                let keeping: &Mutex<Vec<ReviewRights>> = &keeping;
                keeping.lock().push(request);
                let said: Option<Result<ReviewedRights, Refusal>> = saying.lock().clone();
                async move {
                    match said {
                        Some(said) => said,
                        None => std::future::pending().await,
                    }
                }
                .boxed()
            });
        Self { asked, says, _serving: serving.await.unwrap() }
    }

    fn says(&self, said: Result<ReviewedRights, Refusal>) {
        *self.says.lock() = Some(said);
    }

    /// How often it was asked.
    fn times(&self) -> usize {
        self.asked.lock().len()
    }
}

/// authz signs what it is asked for; nobody looks at it here.
async fn signer(installation: &Installation) -> Serving {
    let signing = bus::answer::<SignReview, _>(&*installation.bus, |context, request| {
        assert!(matches!((&context.actor, &request.actor), (Actor::Service(_), Actor::User(_))));
        let pass = SignedPass { pass: request.agent.to_string().into_bytes(), signature: Vec::new() };
        async move { Ok(IssuedReview { pass, roots: Vec::new() }) }.boxed()
    });
    signing.await.unwrap()
}

fn as_themselves(agent: AgentId, identity: &[u8]) -> UsableAgent {
    let (access_as, grants) = (UserAccessAs::User, vec![Narrowing::default()]);
    UsableAgent { agent, access_as, grants, identity: Some(Sha256::of(identity)) }
}

/// These kinds of the question may be listed in the namespace.
fn in_shop(kinds: &[u32]) -> ReviewedRights {
    let somewhere = vec![ReviewedNamespaces { namespaces: vec!["shop".to_owned()], kinds: kinds.to_vec() }];
    ReviewedRights { somewhere, ..ReviewedRights::default() }
}

async fn names(indexer: &Indexer, at: Option<Position>) -> Vec<String> {
    let request = FindObjects { at: at.map(Moment::Position), ..FindObjects::default() };
    let found = indexer.ask(&request).await.unwrap();
    found.items.into_iter().map(|object| object.identity.name).collect()
}

async fn coverage(indexer: &Indexer, fresh: bool) -> AgentCoverage {
    let coverage = indexer.ask(&ShowCoverage { fresh, ..ShowCoverage::default() }).await.unwrap();
    coverage.agents.into_iter().next().unwrap()
}

#[tokio::test]
async fn what_a_cluster_permits_is_shown_now_and_of_the_past_and_it_is_asked_once() {
    let mut installation = Installation::new();
    let agent = installation.agent;
    let (_signer, cluster) = (signer(&installation).await, Cluster::of(&installation, agent).await);
    *installation.usable.lock() = vec![as_themselves(agent, b"a")];
    cluster.says(Ok(in_shop(&[0])));
    let indexer = Indexer::start(&installation, None).await;
    let other = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "token", "namespace": "shop", "uid": "uid-token"}});
    let first = installation.says(vec![seen(&map("a", json!({}))), seen(&other), listed(1)]).await;
    indexer.covers(&first).await;
    // Asked when there was nothing to ask about yet.
    assert_eq!(coverage(&indexer, true).await.rights_unknown, None);
    testkit::eventually(DEADLINE, || async {
        let covered = coverage(&indexer, true).await;
        if covered.objects == 1 { Ok(()) } else { Err(format!("{covered:?}")) }
    })
    .await;
    let times = cluster.times();
    let question = cluster.asked.lock().last().cloned().unwrap();
    assert_eq!(question.pass.pass, agent.to_string().into_bytes());
    let resources: Vec<&str> = question.kinds.iter().map(|kind| kind.resource.as_str()).collect();
    assert_eq!((resources, question.namespaces), (vec!["configmaps", "secrets"], vec!["shop".to_owned()]));
    assert_eq!(names(&indexer, None).await, ["a"]);
    assert_eq!(names(&indexer, Some(first)).await, ["a"], "the past, by the rights of now");
    let changes = indexer.ask(&ListChanges::default()).await.unwrap();
    assert!(changes.items.iter().all(|change| change.identity.name == "a"), "{changes:?}");
    let covered = coverage(&indexer, false).await;
    assert_eq!((covered.objects, covered.kinds, covered.rights_unknown), (1, 1, None));
    assert_eq!(cluster.times(), times, "an answer counts for a while");
    indexer.stop().await;
}

#[tokio::test]
async fn a_cluster_is_asked_anew_once_its_rules_the_identity_or_the_askers_wish_are_others() {
    let mut installation = Installation::new();
    let agent = installation.agent;
    let (_signer, cluster) = (signer(&installation).await, Cluster::of(&installation, agent).await);
    *installation.usable.lock() = vec![as_themselves(agent, b"a")];
    cluster.says(Ok(in_shop(&[0])));
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    let sees = async |expected: &[&str], fresh: bool| {
        testkit::eventually(DEADLINE, || async {
            let _covered = coverage(&indexer, fresh).await;
            let names = names(&indexer, None).await;
            if names == expected { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    };
    sees(&["a"], true).await;

    cluster.says(Ok(ReviewedRights::default()));
    assert_eq!(names(&indexer, None).await, ["a"], "an answer counts for a while");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "r", "namespace": "shop", "uid": "uid-r"}});
    let end = installation.says(vec![seen(&role)]).await;
    indexer.covers(&end).await;
    assert_eq!(names(&indexer, None).await, [""; 0], "its rules are others");

    cluster.says(Ok(in_shop(&[0])));
    sees(&["a"], true).await;

    cluster.says(Ok(ReviewedRights::default()));
    *installation.usable.lock() = vec![as_themselves(agent, b"b")];
    let decided = installation.decides_something().await;
    indexer.covers(&decided).await;
    assert_eq!(names(&indexer, None).await, [""; 0], "another identity");
    indexer.stop().await;
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_unknown_and_hides_no_other() {
    let mut installation = Installation::new();
    let world = installation.world.clone();
    let [silent, away, old] = [0, 1, 2].map(|_| AgentId(world.new_uuid()));
    let _signer = signer(&installation).await;
    let (silence, age) = (Cluster::of(&installation, silent).await, Cluster::of(&installation, old).await);
    age.says(Err(Refusal::new(RefusalKind::Unavailable, "the agent is older than the server")));
    installation.usable.lock().extend([silent, away, old].map(|agent| as_themselves(agent, b"a")));
    let indexer = Indexer::start(&installation, None).await;
    let end = installation.says(vec![seen(&map("a", json!({})))]).await;
    indexer.covers(&end).await;
    let began = world.clock.monotonic();
    assert_eq!(names(&indexer, None).await, ["a"]);
    let waited = world.clock.monotonic().saturating_sub(began);
    assert!(waited < Duration::from_secs(9), "a query waits for a moment only: {waited:?}");
    let covered = indexer.ask(&ShowCoverage::default()).await.unwrap();
    let unknown = |agent: AgentId| {
        let of = covered.agents.iter().find(|of| of.agent == agent).unwrap();
        assert_eq!((of.objects, of.kinds), (0, 0), "{of:?}");
        of.rights_unknown.clone().unwrap()
    };
    assert!(unknown(silent).contains("answer"), "{}", unknown(silent));
    assert!(unknown(away).contains("not connected"), "{}", unknown(away));
    assert!(unknown(old).contains("older than the server"), "{}", unknown(old));
    assert_eq!(silence.times(), 1, "it is asked once, however many wait");
    indexer.stop().await;
}
