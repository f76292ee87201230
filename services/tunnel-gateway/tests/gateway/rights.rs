//! The question what somebody may list in a cluster, on its way to the agent and back.

use events::pass::SignedPass;
use events::requests::rights::{ReviewRights, ReviewedKind, ReviewedRights};
use events::{Actor, OrganizationId, Refusal, RefusalKind};
use http::StatusCode;

use super::harness::{Gateway, agent_id, organization, user};

fn question() -> ReviewRights {
    ReviewRights {
        pass: SignedPass { pass: vec![1, 2], signature: vec![3] },
        roots: Vec::new(),
        kinds: vec![ReviewedKind { group: String::new(), resource: "pods".to_owned(), namespaced: true }],
        namespaces: vec!["shop".to_owned()],
    }
}

async fn ask(
    gateway: &Gateway,
    actor: Actor,
    organization: OrganizationId,
) -> Result<ReviewedRights, Refusal> {
    let context = bus::context_for(&gateway.world, actor, organization);
    bus::ask_of_agent(&gateway.bus, agent_id(1), &context, &question()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_asked_what_somebody_may_list_and_what_it_says_comes_back() {
    let gateway = Gateway::start().await;
    gateway.register(1).await;
    let indexer = || Actor::service("resource-indexer");
    let refused = async |says: &str| {
        let refusal = ask(&gateway, indexer(), organization()).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal:?}");
        assert!(refusal.message.contains(says), "{says}: {refusal:?}");
    };
    refused("not connected").await;
    let agent = gateway.connect(1, 1).await;
    refused("older than the server").await;
    agent.state.lock().rights = Some((StatusCode::OK, b"nonsense".to_vec()));
    refused("malformed").await;
    agent.state.lock().rights = Some((StatusCode::SERVICE_UNAVAILABLE, Vec::new()));
    refused("cannot ask its cluster now (503").await;
    agent.state.lock().rights = Some((StatusCode::OK, vec![0; 2 << 20]));
    refused("over 1 MiB").await;

    let denied = Refusal::new(RefusalKind::Denied, "cannot impersonate");
    agent.state.lock().rights = Some((StatusCode::FORBIDDEN, events::encode(&denied).unwrap()));
    assert_eq!(ask(&gateway, indexer(), organization()).await, Err(denied));
    let said = ReviewedRights { everywhere: vec![0], ..ReviewedRights::default() };
    agent.state.lock().rights = Some((StatusCode::OK, events::encode(&said).unwrap()));
    assert_eq!(ask(&gateway, indexer(), organization()).await, Ok(said));
    let came = agent.state.lock().asked_for_rights.last().cloned().unwrap();
    assert_eq!(events::decode::<ReviewRights>(&came).unwrap(), question());

    let asked = agent.state.lock().asked_for_rights.len();
    let as_a_user = ask(&gateway, user(1), organization()).await.unwrap_err();
    assert_eq!(as_a_user.kind, RefusalKind::Denied);
    let elsewhere = ask(&gateway, indexer(), OrganizationId::SYSTEM).await.unwrap_err();
    assert!(elsewhere.message.contains("not connected"), "{elsewhere:?}");
    assert_eq!(agent.state.lock().asked_for_rights.len(), asked, "neither reached the agent");
}
