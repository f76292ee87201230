//! A `kasbah` server that is wrong on purpose: of the groups that it is asked for, it acknowledges one without making it.
//! `cargo xtask demo --chaos --program target/debug/examples/forgetful` has to say so.
#![allow(clippy::panic, reason = "a program for tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bus::{Bus, BusError, ByteStream, Handler, Opening, RequestError, Serving, StreamHandler, Subscription};
use bytes::Bytes;
use chassis::{Metrics, ShutdownTrigger};
use clap::Parser as _;
use events::request::RequestContext;
use events::requests::authz::{CreateGroup, GroupView};
use events::subject::Subject;
use events::{GroupId, Refusal, Request as _};
use kasbah::cli::{Command, CommandLine};
use world::World;

/// The request for a group that is forgotten.
const FORGOTTEN: u32 = 5;

struct Forgetful {
    inner: Arc<dyn Bus>,
    world: World,
    asked: AtomicU32,
}

#[async_trait]
impl Bus for Forgetful {
    async fn request(
        &self,
        subject: &Subject,
        context: &RequestContext,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let is_for_group = *subject == Subject::request(CreateGroup::NAME);
        if is_for_group && self.asked.fetch_add(1, Ordering::Relaxed) + 1 == FORGOTTEN {
            let request: CreateGroup =
                events::decode(&body).unwrap_or_else(|error| panic!("a request: {error}"));
            let view = GroupView { id: GroupId(self.world.new_uuid()), name: request.name };
            let reply = events::encode(&Ok::<_, Refusal>(view));
            return Ok(reply.unwrap_or_else(|error| panic!("a reply: {error}")).into());
        }
        self.inner.request(subject, context, body).await
    }

    async fn serve(&self, subject: &Subject, group: &str, handler: Handler) -> Result<Serving, BusError> {
        self.inner.serve(subject, group, handler).await
    }

    async fn publish(&self, subject: &Subject, body: Bytes) -> Result<(), BusError> {
        self.inner.publish(subject, body).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, BusError> {
        self.inner.subscribe(subject).await
    }

    async fn open_stream(
        &self,
        subject: &Subject,
        context: &RequestContext,
        window: u32,
        opening: Opening,
    ) -> Result<ByteStream, RequestError> {
        self.inner.open_stream(subject, context, window, opening).await
    }

    async fn serve_streams(
        &self,
        subject: &Subject,
        group: &str,
        handler: StreamHandler,
    ) -> Result<Serving, BusError> {
        self.inner.serve_streams(subject, group, handler).await
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = match CommandLine::parse().command {
        Command::Up(args) => args.settings()?,
        Command::SingleService(alone) => alone.settings()?,
        Command::Client(_)
        | Command::NatsAccounts(_)
        | Command::JudgeImported
        | Command::Completion { .. } => {
            anyhow::bail!("this program is a server only")
        }
    };
    let (world, metrics) = (World::real(), Metrics::new());
    let inner = settings.bus(&world, &metrics).await?;
    let bus = Arc::new(Forgetful { inner, world: world.clone(), asked: AtomicU32::new(0) });
    let (trigger, shutdown) = ShutdownTrigger::new();
    let asked_to_end = chassis::shutdown::signals()?;
    tokio::select! {
        outcome = kasbah::server::run(settings, world, bus, metrics, shutdown.clone(), |_| {}) => outcome,
        () = async {
            asked_to_end.await;
            trigger.request();
            std::future::pending().await
        } => Ok(()),
    }
}
