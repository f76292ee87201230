use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use chassis::{Readiness, ShutdownTrigger};
use events::{AgentId, InstanceId};
use hyper::body::Frame;
use testkit::Folder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tunnel::body::RequestBody;
use tunnel::gateway::{Acceptor, AgentConnection, AgentReply, AskError, Presented};
use world::network::Listener;

use super::*;
use crate::args::{Args, Server};
use crate::kubernetes::{Answering, Channel, Connections};
use crate::link::LinkKeeper;
use crate::run::Agent;

const LIMIT: Duration = Duration::from_secs(30);
/// Who does not wait ends within this time.
const SHORTLY: Duration = Duration::from_millis(500);

/// An API server that never answers.
struct Mute;

impl Channel for Mute {
    fn send(&self, _request: Request<Bytes>) -> Answering {
        Box::pin(std::future::pending())
    }
}

/// An agent that keeps its tunnel, and what accepts it.
struct Stage {
    world: World,
    listener: Box<dyn Listener>,
    token_file: PathBuf,
    stop: ShutdownTrigger,
    ended: oneshot::Receiver<()>,
    _folder: Folder,
}

impl Stage {
    async fn start() -> Self {
        let world = World::real();
        let listener = world.network.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_address().unwrap();
        let folder = Folder::temporary().unwrap();
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "first").unwrap();
        let server = Server { host: address.ip().to_string(), port: address.port() };
        let access = Access::read(&Args::plain_text(server, token_file.clone()), &world).unwrap();
        let channel: Arc<dyn Channel> = Arc::new(Mute);
        let connections = Connections::over(&channel, "shop");
        let (counts, instance) = (Counts::default(), InstanceId(world.new_uuid()));
        let agent = Agent::new(world.clone(), connections, None, counts.clone(), instance);
        let ready = Readiness::new().register("tunnel");
        let keeper = LinkKeeper::new(world.clone(), access, agent.service(), ready, counts);
        let (stop, shutdown) = ShutdownTrigger::new();
        let (end, ended) = oneshot::channel();
        let keeping = async move {
            keeper.keep(shutdown).await;
            let _heard = end.send(());
        };
        world.spawner.spawn("test", Box::pin(keeping));
        Self { world, listener, token_file, stop, ended, _folder: folder }
    }

    /// The next connection, and the token with which it came.
    async fn accept(&self) -> (AgentConnection, String) {
        let (socket, _) = self.listener.accept().await.unwrap();
        let agent = AgentId(self.world.new_uuid());
        let admit = move |presented: Presented| async move { Ok((agent, presented.token)) };
        let accepted = Acceptor::default().accept(&self.world, socket, admit).await.unwrap();
        (accepted.connection, accepted.admitted.secret().to_owned())
    }

    /// One beside the tunnel, for which it is asked over the tunnel.
    async fn beside(&self, tunnel: &AgentConnection) -> (AgentConnection, String) {
        let (asked, accepted) = tokio::join!(ask_for_one(tunnel), self.accept());
        assert_eq!(asked.unwrap().status, StatusCode::NO_CONTENT);
        accepted
    }
}

async fn ask_for_one(tunnel: &AgentConnection) -> Result<AgentReply, AskError> {
    tunnel.ask(Method::POST, path::BULK, Bytes::new(), 1024, LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_beside_the_tunnel_ends_before_the_agent_does() {
    let mut stage = Stage::start().await;
    let (tunnel, _) = stage.accept().await;
    let (bulk, _) = stage.beside(&tunnel).await;
    let (body, mut pieces) = mpsc::channel::<Bytes>(1);
    let pieces = futures::stream::poll_fn(move |context| {
        pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    });
    let sent: RequestBody = http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(pieces));
    let request = Request::put("http://agent/v1/desired").body(sent).unwrap();
    let mut asking = Box::pin(bulk.request(request, LIMIT));
    body.send(Bytes::from_static(b"no")).await.unwrap();
    // Another one's answer tells that the agent has begun with the first.
    assert!(futures::poll!(&mut asking).is_pending());
    bulk.ask(Method::GET, path::DEBUG_STATE, Bytes::new(), 1 << 20, LIMIT).await.unwrap();
    stage.stop.request();
    timeout(LIMIT, tunnel.closed()).await.unwrap();
    assert!(timeout(SHORTLY, &mut stage.ended).await.is_err(), "it does not wait");
    body.send(Bytes::from_static(b" state")).await.unwrap();
    drop(body);
    let answer = timeout(LIMIT, asking).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    timeout(LIMIT, stage.ended).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_dialled_with_the_token_of_today() {
    let stage = Stage::start().await;
    let (tunnel, token) = stage.accept().await;
    assert_eq!(token, "first");
    std::fs::write(&stage.token_file, "second").unwrap();
    let (_bulk, token) = stage.beside(&tunnel).await;
    assert_eq!(token, "second");
}
