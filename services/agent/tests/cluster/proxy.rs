//! The cluster's API through the agent: against a real API server, and against ones that misbehave.

mod misbehaving;
mod reviews;
mod tunnel;

use ::tunnel::wire::cluster::{ANSWERED_BY, UPGRADE};
use agent::kubernetes::api_server::KEPT_CONNECTIONS;
use bytes::Bytes;
use events::AgentId;
use events::pass::{AccessAs, Impersonated, Narrowing, Pass};
use http::request::Builder;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use world::World;

use self::misbehaving::{fake, head};
use self::tunnel::{Tunnel, as_user, before, in_pieces, read, spawn, through, whole};
use crate::rig::{DEADLINE, cluster, config_map, uuid};

async fn may_read(cluster: &Cluster, namespace: &str, user: &str) {
    let root = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    cluster.create_object(&format!("{root}/roles"), &role).await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]});
    cluster.create_object(&format!("{root}/rolebindings"), &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_decides_what_the_impersonated_may() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("proxy", false).await.unwrap();
    may_read(&cluster, &namespace, "kasbah:user:ann").await;
    let tunnel = through(&cluster).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    cluster.create_object(&maps, &config_map("a", "v")).await.unwrap();
    let answer = eventually(DEADLINE, || async {
        let answer = tunnel.ask(Method::GET, &maps, "kasbah:user:ann", &Value::Null).await;
        if answer.0 == StatusCode::OK { Ok(answer) } else { Err(answer.2) }
    })
    .await;
    assert_eq!(answer.2["items"][0]["metadata"]["name"], "a");
    assert!(!answer.1.contains_key(ANSWERED_BY) && answer.1.contains_key("audit-id"));

    let (status, headers, body) = tunnel.ask(Method::GET, &maps, "kasbah:user:bob", &Value::Null).await;
    assert_eq!((status, &body["kind"]), (StatusCode::FORBIDDEN, &json!("Status")));
    assert!(body["message"].as_str().unwrap().contains("kasbah:user:bob"), "{body}");
    assert!(!headers.contains_key(ANSWERED_BY), "the API server said so");
    let denied = tunnel.ask(Method::POST, &maps, "kasbah:user:ann", &config_map("b", "v")).await;
    assert_eq!(denied.0, StatusCode::FORBIDDEN);
    assert_eq!(tunnel.counts.cluster_api_requests.with(["refused"]).get(), 0);
}

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_sees_whom_the_pass_names_and_nothing_that_the_asker_says() {
    let tunnel = through(&cluster().await).await;
    let mut whom = Impersonated {
        username: "kasbah:user:ann".to_owned(),
        groups: vec!["developers".to_owned(), "on, call".to_owned()],
        uid: "u-1".to_owned(),
        ..Impersonated::default()
    };
    whom.extra.insert("kasbah.example/Project ID%".to_owned(), vec!["shop".to_owned(), "b, c".to_owned()]);
    whom.extra.insert("scopes".to_owned(), vec!["é".to_owned()]);
    let mut pass = tunnel.pass(AccessAs::Impersonated(whom), Narrowing::default());
    pass.grants[0].groups = vec!["lent".to_owned()];
    let request = Request::post(format!("/k8s{REVIEWS}"))
        .header("content-type", "application/json")
        .header("authorization", "Bearer not-a-token")
        .header("impersonate-user", "system:admin")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-more", "more")
        .header("x-remote-user", "system:admin")
        .header("cookie", "a=b");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let (status, _, body) = read(tunnel.send(request, &pass, whole(body)).await).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let seen = json!({
        "username": "kasbah:user:ann",
        "uid": "u-1",
        "groups": ["developers", "on, call", "lent", "system:authenticated"],
        "extra": {"kasbah.example/Project ID%": ["shop", "b, c"], "scopes": ["é"]},
    });
    assert_eq!(body["status"]["userInfo"], seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_refuses_it_says_as_the_agent() {
    let cluster = cluster().await;
    let tunnel = through(&cluster).await;
    let pods = "/k8s/api/v1/namespaces/default/pods";
    let refused = async |request: Builder, pass: &Pass, code: u16, says: &str| {
        let (status, headers, body) = read(tunnel.send(request, pass, whole("")).await).await;
        assert_eq!((status.as_u16(), &body["kind"]), (code, &json!("Status")), "{body}");
        assert!(body["message"].as_str().unwrap().contains(says), "{says}: {body}");
        assert_eq!(headers[ANSWERED_BY], "agent");
    };
    let narrowing = Narrowing { verbs: vec!["get".to_owned()], ..Narrowing::default() };
    let narrow = tunnel.pass(as_user("ann"), narrowing);
    refused(Request::delete(format!("{pods}/web")), &narrow, 403, "agents/a.yaml:3").await;
    refused(Request::get(format!("{pods}/web/exec")), &narrow, 403, "agents/a.yaml:3").await;
    let wide = tunnel.pass(as_user("ann"), Narrowing::default());
    refused(Request::get(format!("{pods}/../secrets")), &wide, 400, "`..`").await;
    refused(Request::get("/k8s/api/v1/namespaces/a%2Fb/pods"), &wide, 400, "slash").await;
    refused(Request::get("/k8s"), &wide, 400, "slash").await;
    let another = Pass { agent: AgentId(uuid()), ..wide.clone() };
    refused(Request::get(pods), &another, 403, "another agent").await;
    let agents = tunnel.pass(AccessAs::Agent, Narrowing::default());
    refused(Request::get(pods), &agents, 403, "agent's own namespace default").await;
    refused(Request::get("/k8s/api/v1/secrets"), &agents, 403, "Secrets of all namespaces").await;
    let head = Request::head(pods);
    let (status, headers, body) = {
        let answer = tunnel.send(head, &agents, whole("")).await;
        let (parts, body) = answer.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
    };
    assert_eq!((status.as_u16(), &headers[ANSWERED_BY], body.len()), (403, &"agent".parse().unwrap(), 0));
    let nobody = tunnel.pass(as_user(""), Narrowing::default());
    refused(Request::get(pods), &nobody, 403, "names no user").await;
    let request = Request::get(pods).body(whole("")).unwrap();
    let answer = tunnel.gateway.clone().send_request(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()[ANSWERED_BY]), (403, &"agent".parse().unwrap()));
    let unpinned = Tunnel::open(World::real(), cluster.kubeconfig(), None).await;
    let (status, _, body) = read(unpinned.get("/version").await).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(body["message"].as_str().unwrap().contains("pins no root key"), "{body}");
    let elsewhere = Request::get("/k8sversion").body(whole("")).unwrap();
    let answer = tunnel.gateway.clone().send_request(elsewhere).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(tunnel.counts.cluster_api_requests.with(["refused"]).get(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_at_once_and_many_share_connections_that_end_with_them() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("proxy-watch", false).await.unwrap();
    let tunnel = through(&cluster).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let path = format!("{maps}?watch=1&resourceVersion=0");
    let opened = futures::future::join_all((0..300).map(|_| tunnel.get(&path))).await;
    assert!(opened.iter().all(|watch| watch.status() == StatusCode::OK), "heads come before events");
    let mut lanes = tunnel.api_server.lanes();
    lanes.sort_unstable();
    assert_eq!(lanes, [12, 96, 96, 96]);
    assert_eq!(tunnel.counts.cluster_api_streams.get(), 300);
    cluster.create_object(&maps, &config_map("news", "v")).await.unwrap();
    let told = opened.into_iter().map(|watch| async {
        let mut body = watch.into_body();
        let mut text = String::new();
        while !text.contains("\"news\"") {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        body
    });
    let open = tokio::time::timeout(DEADLINE, futures::future::join_all(told)).await.unwrap();
    drop(open);
    eventually(DEADLINE, || async {
        let (lanes, open) = (tunnel.api_server.lanes(), tunnel.counts.cluster_api_streams.get());
        if lanes.len() <= 2 && lanes.iter().sum::<usize>() == 0 && open == 0 {
            Ok(())
        } else {
            Err(format!("{open} open, {lanes:?}"))
        }
    })
    .await;
    assert_eq!(tunnel.get("/version").await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_flow_both_ways_untouched() {
    const LARGE: usize = 900 * 1024;
    let cluster = cluster().await;
    let namespace = cluster.namespace("proxy-large", false).await.unwrap();
    let tunnel = through(&cluster).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for name in 0..12 {
        let map = Bytes::from(config_map(&format!("m{name}"), &"x".repeat(LARGE)).to_string());
        let (sender, body) = in_pieces();
        spawn(&tunnel.world, async move {
            for start in (0..map.len()).step_by(10_000) {
                sender.send(map.slice(start..map.len().min(start + 10_000))).await.unwrap();
            }
        });
        let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
        let request = Request::post(format!("/k8s{maps}")).header("content-type", "application/json");
        let (status, _, body) = read(tunnel.send(request, &pass, body).await).await;
        assert_eq!((status, body["data"]["key"].as_str().unwrap().len()), (StatusCode::CREATED, LARGE));
    }
    let mine = format!("{maps}?fieldSelector=metadata.name!%3Dkube-root-ca.crt");
    let direct = cluster.get(&mine).await.unwrap();
    let (status, _, body) = read(tunnel.get(&mine).await).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body["items"] == direct["items"] && body["items"].as_array().unwrap().len() == 12);

    // More than have connections of their own: the others share one.
    let stalled = KEPT_CONNECTIONS + 8;
    let stalled = futures::future::join_all((0..stalled).map(|_| tunnel.get(&mine))).await;
    assert_eq!(tunnel.api_server.lanes(), [8]);
    let answer = tokio::time::timeout(DEADLINE, tunnel.get("/version")).await.unwrap();
    assert_eq!(read(answer).await.0, StatusCode::OK, "whoever reads on is not stopped by those who do not");
    drop(stalled);

    let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
    let request = Request::get(format!("/k8s{maps}")).header("accept-encoding", "gzip");
    let answer = tunnel.send(request, &pass, whole("")).await;
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert!(answer.into_body().collect().await.unwrap().to_bytes().starts_with(&[0x1f, 0x8b]));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::get(format!("/k8s{maps}?limit=3")).header("accept", table);
    assert_eq!(read(tunnel.send(request, &pass, whole("")).await).await.2["kind"], "Table");
    let request = Request::get(format!("/k8s{maps}")).header("accept", "application/vnd.kubernetes.protobuf");
    let answer = tunnel.send(request, &pass, whole("")).await;
    assert_eq!(answer.headers()["content-type"], "application/vnd.kubernetes.protobuf");
    assert!(answer.into_body().collect().await.unwrap().to_bytes().starts_with(b"k8s\0"));
    let head = tunnel.send(Request::head("/k8s/version"), &pass, whole("")).await;
    // It answers HEAD where it answers GET, or says that it does not; either way nothing follows.
    assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_the_api_server_refuses_is_answered_in_its_own_words() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("proxy-exec", false).await.unwrap();
    let tunnel = through(&cluster).await;
    let pass = tunnel.pass(AccessAs::Agent, Narrowing::default());
    let path = format!("/k8s/api/v1/namespaces/{namespace}/pods/none/exec?command=ls&stdout=true");
    for (request, protocol) in [(Request::get(&path), "websocket"), (Request::post(&path), "SPDY/3.1")] {
        let request = request
            .header(UPGRADE, protocol)
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", "v5.channel.k8s.io")
            .header("x-stream-protocol-version", "v4.channel.k8s.io");
        let (sender, body) = in_pieces();
        let answer = tunnel.send(request, &pass, body).await;
        assert!(!answer.headers().contains_key(UPGRADE) && !answer.headers().contains_key(ANSWERED_BY));
        let (status, _, body) = read(answer).await;
        assert_eq!((status, &body["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")), "{body}");
        drop(sender);
    }
}

/// Takes two connections: on the first it says back what it hears, of the second it tells how it ends.
async fn upgrade_twice(listener: TcpListener, heard: mpsc::Sender<Bytes>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let asked = head(&mut stream).await;
    heard.send(Bytes::from(asked)).await.unwrap();
    stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\nKasbah-Upgrade: forged\r\n\r\nfirst")
            .await
            .unwrap();
    let mut came = vec![0; 4];
    stream.read_exact(&mut came).await.unwrap();
    stream.write_all(b"pong").await.unwrap();
    let mut came = Vec::new();
    stream.read_to_end(&mut came).await.unwrap();
    // The other direction goes on.
    stream.write_all(&came).await.unwrap();
    // Ends: and the next hears when a client breaks off.
    drop(stream);
    let (mut stream, _) = listener.accept().await.unwrap();
    head(&mut stream).await;
    stream
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let end = stream.read_u8().await.map_err(|error| error.kind());
    heard.send(Bytes::from(format!("{end:?}"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_carries_bytes_both_ways_and_either_end_by_itself() {
    const MANY: usize = 3 << 20;
    let (listener, address) = fake().await;
    let tunnel = before(World::real(), &address).await;
    let (heard, mut hears) = mpsc::channel(1);
    spawn(&tunnel.world, upgrade_twice(listener, heard));
    let pass = tunnel.pass(as_user("ann"), Narrowing::default());
    let request = || Request::post("/k8s/api/v1/namespaces/a/pods/b/exec?command=a%20b&stdin=true");
    let (sender, body) = in_pieces();
    let answer = tunnel.send(request().header(UPGRADE, "SPDY/3.1"), &pass, body).await;
    let asked = String::from_utf8(hears.recv().await.unwrap().to_vec()).unwrap().to_lowercase();
    assert!(
        asked.starts_with("post /api/v1/namespaces/a/pods/b/exec?command=a%20b&stdin=true http/1.1"),
        "{asked}"
    );
    for header in ["connection: upgrade", "upgrade: spdy/3.1", "impersonate-user: ann", "host: 127.0.0.1"] {
        assert!(asked.contains(header), "{header}: {asked}");
    }
    assert!(!asked.contains("kasbah-"), "{asked}");
    assert_eq!((answer.status(), &answer.headers()[UPGRADE]), (StatusCode::OK, &"SPDY/3.1".parse().unwrap()));
    assert_eq!(answer.headers()["x-stream-protocol-version"], "v4");
    assert_eq!(answer.headers().get_all(UPGRADE).iter().count(), 1);
    let mut body = answer.into_body();
    let mut came = Vec::new();
    let mut until = async |length: usize| {
        while came.len() < length {
            let frame = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap().unwrap().unwrap();
            came.extend_from_slice(frame.data_ref().unwrap());
        }
        (came.split_off(0), length)
    };
    assert_eq!(until(5).await.0, b"first");
    sender.send(Bytes::from_static(b"ping")).await.unwrap();
    assert_eq!(until(4).await.0, b"pong");
    let sent: Vec<u8> = (0..MANY).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    for piece in sent.chunks(77_777) {
        sender.send(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    drop(sender);
    assert!(until(MANY).await.0 == sent);
    let rest = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().expect("an end in order");
    assert!(rest.to_bytes().is_empty());
    eventually(DEADLINE, || async {
        if tunnel.counts.cluster_api_streams.get() == 0 { Ok(()) } else { Err("open") }
    })
    .await;

    let (sender, body) = in_pieces();
    let answer = tunnel.send(request().header(UPGRADE, "websocket"), &pass, body).await;
    assert_eq!(answer.headers()[UPGRADE], "websocket");
    // The stream is reset once nobody holds either of its halves.
    drop((answer, sender));
    let end = tokio::time::timeout(DEADLINE, hears.recv()).await.unwrap().unwrap();
    assert_eq!(end, "Err(UnexpectedEof)");
}
