//! Records of what people do: behind their requests, or, where an agent's configuration wants it, before them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use events::audit::{AuditBatch, AuditPhase, AuditRecord};
use events::{Position, Stream};
use store::{AppendError, EventLog, LogLayer, NewBatch, ReadFilter};
use testkit::eventually;
use tokio::sync::watch;
use tokio::time::timeout;
use tunnel_gateway::{Args, Audited};

use super::agent::TestAgent;
use super::clients::{Clients, Second};
use super::harness::{Gateway, LIMIT, args};

const PODS: &str = "/api/v1/namespaces/a/pods";
const WATCH: &str = "/api/v1/namespaces/a/pods?watch=true";

/// A log that takes no records of one stream while it is held.
pub struct HeldLog {
    log: Arc<dyn EventLog>,
    stream: Stream,
    pub held: watch::Sender<bool>,
    /// It refuses such records for good.
    pub refuses: watch::Sender<bool>,
    /// Such records that came.
    pub came: watch::Sender<usize>,
}

impl HeldLog {
    pub fn of(gateway: &Gateway, stream: Stream) -> Arc<Self> {
        let log = Arc::clone(&gateway.store.log);
        let (held, refuses) = (watch::Sender::new(false), watch::Sender::new(false));
        Arc::new(Self { log, stream, held, refuses, came: watch::Sender::new(0) })
    }
}

#[async_trait]
impl LogLayer for HeldLog {
    fn inner(&self) -> &dyn EventLog {
        &*self.log
    }

    async fn append_batch(&self, record: NewBatch) -> Result<Position, AppendError> {
        if record.stream == self.stream {
            self.came.send_modify(|came| *came += 1);
            self.held.subscribe().wait_for(|held| !held).await.unwrap();
            if *self.refuses.borrow() {
                return Err(AppendError::Invalid { detail: "by the test".to_owned() });
            }
        }
        self.log.append_batch(record).await
    }
}

struct Stage {
    first: Gateway,
    gateway: Second,
    log: Arc<HeldLog>,
    clients: Clients,
    agent: TestAgent,
}

impl Stage {
    async fn start() -> Self {
        Self::start_with(args()).await
    }

    async fn start_with(args: Args) -> Self {
        let first = Gateway::start().await;
        first.register(1).await;
        let clients = Clients::of(&first).await;
        clients.let_in(1);
        let log = HeldLog::of(&first, Stream::Audit);
        let gateway = Second::with(&first, args, Arc::clone(&log) as Arc<dyn EventLog>).await;
        let agent = gateway.connect(&first, 1, 1).await;
        Self { first, gateway, log, clients, agent }
    }

    /// What was recorded: phase and code.
    async fn recorded(&self) -> Vec<(AuditPhase, u16)> {
        let filter = ReadFilter::streams(&[Stream::Audit]);
        let mut records = self.first.store.log.read(&Position::start(), &filter).await.unwrap();
        let mut found: Vec<AuditRecord> = Vec::new();
        while let Some(record) = records.recv().await {
            found.extend(events::decode::<AuditBatch>(&record.unwrap().bytes).unwrap().records);
        }
        found.iter().map(|record| (record.phase, record.code)).collect()
    }

    async fn is_recorded(&self, wanted: &[(AuditPhase, u16)]) {
        eventually(LIMIT, || async {
            let recorded = self.recorded().await;
            if recorded == wanted { Ok(()) } else { Err(format!("{recorded:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_before_it_is_recorded_where_that_is_wanted() {
    let stage = Stage::start().await;
    stage.clients.must_be_recorded();
    stage.log.held.send_replace(true);
    let waiting = stage.clients.send(1, stage.gateway.clusters, 1, "whole");
    stage.log.came.subscribe().wait_for(|came| *came > 0).await.unwrap();
    assert!(stage.agent.state.lock().asked_of_cluster.is_empty(), "it went on");
    assert!(!waiting.is_finished());
    stage.log.held.send_replace(false);
    let told = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((told.code, told.body.as_str()), (200, "whole"));
    assert_eq!(stage.agent.state.lock().asked_of_cluster, [format!("POST {PODS}")]);
    let (began, ended) = ((AuditPhase::Began, 0), (AuditPhase::Ended, 200));
    stage.is_recorded(&[began, ended]).await;

    // What goes on for long is not said to begin a second time.
    let watch = stage.clients.request(1, stage.gateway.clusters, 1, WATCH).send().await.unwrap();
    assert_eq!(watch.status().as_u16(), 200);
    assert_eq!(stage.recorded().await, [began, ended, began], "it is there when the answer is");
    drop(watch);
    stage.is_recorded(&[began, ended, began, ended]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_refused_where_that_is_wanted() {
    let stage = Stage::start().await;
    stage.clients.must_be_recorded();
    stage.log.held.send_replace(true);
    let told = timeout(LIMIT, stage.clients.get(1, stage.gateway.clusters, 1, PODS)).await.unwrap();
    assert_eq!((told.code, told.retry_after), (503, Some(5)), "{told:?}");
    assert_eq!(told.status()["reason"], "ServiceUnavailable");
    assert!(told.message().contains("its audit record cannot be written now"), "{told:?}");
    assert!(stage.agent.state.lock().asked_of_cluster.is_empty(), "it went on");
    stage.log.held.send_replace(false);
    stage.is_recorded(&[(AuditPhase::Began, 0), (AuditPhase::Ended, 503)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_follow_requests_where_nothing_else_is_wanted() {
    let stage = Stage::start().await;
    stage.log.held.send_replace(true);
    let told = timeout(Duration::from_secs(3), stage.clients.get(1, stage.gateway.clusters, 1, PODS)).await;
    assert_eq!(told.unwrap().code, 200);
    stage.log.held.send_replace(false);
    stage.is_recorded(&[(AuditPhase::Whole, 200)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_where_the_operator_wants_none_but_what_a_configuration_wants() {
    let stage = Stage::start_with(Args { clusters_audit: Audited::FailClosed, ..args() }).await;
    assert_eq!(stage.clients.get(1, stage.gateway.clusters, 1, PODS).await.code, 200);
    stage.clients.let_in(2);
    stage.clients.must_be_recorded();
    assert_eq!(stage.clients.get(2, stage.gateway.clusters, 1, PODS).await.code, 200);
    stage.is_recorded(&[(AuditPhase::Began, 0), (AuditPhase::Ended, 200)]).await;
}
