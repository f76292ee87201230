//! What somebody may list: asked of a real API server as the one whom the pass names, and of ones that do not say.

use std::collections::BTreeSet;

use ::tunnel::wire::path::RIGHTS;
use bytes::Bytes;
use events::Refusal;
use events::pass::{AccessAs, Impersonated, Narrowing, Pass, PassGrant, Purpose, SignedPass};
use events::requests::rights::{ReviewRights, ReviewedKind, ReviewedRights};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use testkit::{Cluster, eventually};
use world::World;

use super::misbehaving::fake;
use super::tunnel::{Tunnel, as_user, before, root, spawn, through, whole};
use crate::rig::{DEADLINE, cluster, uuid};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Resource, group, and whether it is in namespaces.
const KINDS: [(&str, &str, bool); 6] = [
    ("configmaps", "", true),
    ("secrets", "", true),
    ("deployments", "apps", true),
    ("roles", RBAC, true),
    ("nodes", "", false),
    ("namespaces", "", false),
];

fn question(tunnel: &Tunnel, pass: &Pass, namespaces: &[&str]) -> ReviewRights {
    let _same_root_as = &tunnel.agent;
    let pass = events::encode(pass).unwrap();
    let signature = root().sign(&SignedPass::signed_text(Purpose::Review, &pass)).as_ref().to_vec();
    let kinds = KINDS.iter().map(|(resource, group, namespaced)| ReviewedKind {
        group: (*group).to_owned(),
        resource: (*resource).to_owned(),
        namespaced: *namespaced,
    });
    ReviewRights {
        pass: SignedPass { pass, signature },
        roots: Vec::new(),
        kinds: kinds.collect(),
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
    }
}

async fn ask(tunnel: &Tunnel, question: &ReviewRights) -> Result<ReviewedRights, (StatusCode, Refusal)> {
    let request = Request::post(RIGHTS).body(whole(events::encode(question).unwrap())).unwrap();
    let answer = tunnel.gateway.clone().send_request(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    match status {
        StatusCode::OK => Ok(events::decode(&body).unwrap()),
        _ => Err((status, events::decode(&body).unwrap())),
    }
}

/// What may be listed, as `resource` or `namespace/resource`.
fn shown(said: &ReviewedRights) -> BTreeSet<String> {
    let resource = |place: &u32| KINDS[*place as usize].0;
    let everywhere = said.everywhere.iter().map(|place| resource(place).to_owned());
    let somewhere = said.somewhere.iter().flat_map(|same| {
        let of = |namespace: &String| {
            same.kinds.iter().map(|place| format!("{namespace}/{}", resource(place))).collect::<Vec<_>>()
        };
        same.namespaces.iter().flat_map(of).collect::<Vec<_>>()
    });
    everywhere.chain(somewhere).collect()
}

/// Waits until the API server says this.
async fn may(tunnel: &Tunnel, pass: &Pass, namespaces: &[&str], expected: &[String]) {
    let expected: BTreeSet<String> = expected.iter().cloned().collect();
    eventually(DEADLINE, || async {
        let said = ask(tunnel, &question(tunnel, pass, namespaces)).await.unwrap();
        assert_eq!(said.unknown, [""; 0]);
        if shown(&said) == expected { Ok(()) } else { Err(format!("{said:?} instead of {expected:?}")) }
    })
    .await;
}

async fn role(cluster: &Cluster, namespace: &str, name: &str, rules: Value) {
    let path = format!("/apis/{RBAC}/v1/namespaces/{namespace}/roles");
    let role = json!({"metadata": {"name": name}, "rules": rules});
    cluster.create_object(&path, &role).await.unwrap();
}

/// Lets a user or group do what a role says, in a namespace or everywhere.
async fn bind(cluster: &Cluster, (kind, name): (&str, &str), (what, role): (&str, &str), namespace: &str) {
    let path = match namespace {
        "" => format!("/apis/{RBAC}/v1/clusterrolebindings"),
        _ => format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
    };
    let binding = json!({"metadata": {"name": format!("b-{}", uuid())},
        "roleRef": {"apiGroup": RBAC, "kind": what, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": name}]});
    cluster.create_object(&path, &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_says_what_somebody_may_list_everywhere_and_where_else() {
    let cluster = cluster().await;
    let [shop, test] = [
        cluster.namespace("rights", false).await.unwrap(),
        cluster.namespace("rights", false).await.unwrap(),
    ];
    let (shop, test) = (shop.as_str(), test.as_str());
    let tunnel = through(&cluster).await;
    let both = [shop, test];
    let user = |what: &str| format!("kasbah:user:{what}-{}", uuid());
    let of = |name: &str| tunnel.pass(as_user(name), Narrowing::default());

    let nobody = user("nobody");
    may(&tunnel, &of(&nobody), &both, &[]).await;

    let one = user("one");
    role(&cluster, shop, "one", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]))
        .await;
    bind(&cluster, ("User", &one), ("Role", "one"), shop).await;
    may(&tunnel, &of(&one), &both, &[format!("{shop}/configmaps")]).await;

    // The aggregated role leaves out Secrets, RBAC and nodes. In one namespace it permits to read that, and to list none.
    let (all, here) = (user("all"), user("here"));
    bind(&cluster, ("User", &all), ("ClusterRole", "view"), "").await;
    may(&tunnel, &of(&all), &both, &["configmaps", "deployments", "namespaces"].map(str::to_owned)).await;
    bind(&cluster, ("User", &here), ("ClusterRole", "view"), shop).await;
    let in_shop = ["configmaps", "deployments", "namespaces"].map(|resource| format!("{shop}/{resource}"));
    may(&tunnel, &of(&here), &both, &in_shop).await;

    // A rule that names objects permits no list, one with stars permits all that is in the namespace.
    let (named, stars) = (user("named"), user("stars"));
    let names = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"]}]);
    role(&cluster, shop, "named", names).await;
    bind(&cluster, ("User", &named), ("Role", "named"), shop).await;
    role(&cluster, test, "stars", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    bind(&cluster, ("User", &stars), ("Role", "stars"), test).await;
    let in_test = ["configmaps", "deployments", "namespaces", "roles", "secrets"];
    may(&tunnel, &of(&stars), &both, &in_test.map(|resource| format!("{test}/{resource}"))).await;
    may(&tunnel, &of(&named), &both, &[]).await;

    // What is in no namespace is for those who may list it in all.
    let nodes = user("nodes");
    let reads_nodes = format!("nodes-{}", uuid());
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": reads_nodes}, "rules": rules});
    cluster.create_object(&format!("/apis/{RBAC}/v1/clusterroles"), &role).await.unwrap();
    bind(&cluster, ("User", &nodes), ("ClusterRole", &reads_nodes), shop).await;
    may(&tunnel, &of(&nodes), &both, &[]).await;
    bind(&cluster, ("User", &nodes), ("ClusterRole", &reads_nodes), "").await;
    may(&tunnel, &of(&nodes), &both, &["nodes".to_owned()]).await;
    let admin = tunnel.pass(
        AccessAs::Impersonated(Impersonated {
            groups: vec!["system:masters".to_owned()],
            ..whom(&user("root"))
        }),
        Narrowing::default(),
    );
    may(&tunnel, &admin, &both, &KINDS.map(|(resource, ..)| resource.to_owned())).await;
}

fn whom(name: &str) -> Impersonated {
    Impersonated { username: name.to_owned(), ..Impersonated::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_count_where_their_grant_does_and_a_grants_limits_hold() {
    let cluster = cluster().await;
    let [shop, test] =
        [cluster.namespace("lent", false).await.unwrap(), cluster.namespace("lent", false).await.unwrap()];
    let tunnel = through(&cluster).await;
    let group = format!("kasbah:project_role:{}", uuid());
    for namespace in [&shop, &test] {
        bind(&cluster, ("Group", &group), ("ClusterRole", "view"), namespace).await;
    }
    let grant = |namespaces: &[&str], groups: &[&str]| PassGrant {
        narrowing: Narrowing {
            namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
            resources: vec!["configmaps".to_owned()],
            ..Narrowing::default()
        },
        groups: groups.iter().map(|text| (*text).to_owned()).collect(),
        place: "a:1".to_owned(),
    };
    let mut pass = tunnel.pass(as_user("kasbah:user:ann"), Narrowing::default());
    pass.grants = vec![grant(&[&shop], &[&group]), grant(&[&test], &[])];
    may(&tunnel, &pass, &[&shop, &test], &[format!("{shop}/configmaps")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_a_pass_for_it_is_refused() {
    let tunnel = through(&cluster().await).await;
    let pass = tunnel.pass(as_user("ann"), Narrowing::default());
    let refused = async |question: &ReviewRights, code: u16, says: &str| {
        let (status, refusal) = ask(&tunnel, question).await.unwrap_err();
        assert_eq!(status.as_u16(), code, "{refusal:?}");
        assert!(refusal.message.contains(says), "{refusal:?}");
    };
    let good = question(&tunnel, &pass, &[]);
    let mut for_requests = good.clone();
    let text = SignedPass::signed_text(Purpose::Requests, &good.pass.pass);
    for_requests.pass.signature = root().sign(&text).as_ref().to_vec();
    refused(&for_requests, 403, "not signed by the root key").await;
    let another = Pass { agent: events::AgentId(uuid()), ..pass.clone() };
    refused(&question(&tunnel, &another, &[]), 403, "another agent").await;
    let agents = tunnel.pass(AccessAs::Agent, Narrowing::default());
    refused(&question(&tunnel, &agents, &[]), 403, "nobody to impersonate").await;
    let many =
        ReviewRights { namespaces: vec!["a".to_owned(); ReviewRights::NAMESPACES + 1], ..good.clone() };
    refused(&many, 400, "more than").await;
    let request = Request::builder().method(Method::POST).uri(RIGHTS).body(whole("nonsense")).unwrap();
    let answer = tunnel.gateway.clone().send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(ask(&tunnel, &good).await.unwrap().everywhere, [0; 0]);
}

/// An API server that answers these reviews so.
async fn saying(answers: impl Fn(&str) -> (StatusCode, Value) + Clone + Send + Sync + 'static) -> Tunnel {
    let (listener, address) = fake().await;
    let world = World::real();
    let of_connections = world.clone();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = answers.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let (status, body) =
                    if path == "version" { (StatusCode::OK, json!({})) } else { answers(&path) };
                let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
                *response.status_mut() = status;
                async { Ok::<_, std::convert::Infallible>(response) }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            spawn(&of_connections, async move {
                // The client may leave.
                let _ended = connection.await;
            });
        }
    };
    spawn(&world, serving);
    before(world, &address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_api_server_does_not_say_is_unknown_and_counts_as_denied() {
    let incomplete = |path: &str| match path {
        "selfsubjectaccessreviews" => (StatusCode::CREATED, json!({"status": {"allowed": false}})),
        _ => {
            let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
            (StatusCode::CREATED, json!({"status": {"incomplete": true, "resourceRules": [rule]}}))
        }
    };
    let tunnel = saying(incomplete).await;
    let pass = tunnel.pass(as_user("ann"), Narrowing::default());
    let said = ask(&tunnel, &question(&tunnel, &pass, &["shop", "test"])).await.unwrap();
    assert_eq!(shown(&said), BTreeSet::new());
    assert!(said.unknown.len() == 1 && said.unknown[0].contains("does not list all rules"), "{said:?}");

    let failing =
        |_: &str| (StatusCode::INTERNAL_SERVER_ERROR, json!({"kind": "Status", "message": "no etcd"}));
    let tunnel = saying(failing).await;
    let pass = tunnel.pass(as_user("ann"), Narrowing::default());
    let said = ask(&tunnel, &question(&tunnel, &pass, &["shop"])).await.unwrap();
    assert_eq!(shown(&said), BTreeSet::new());
    assert!(said.unknown.len() == 1 && said.unknown[0].contains("no etcd"), "{said:?}");

    let message = "users \"ann\" is forbidden: User \"agent\" cannot impersonate resource \"users\"";
    let forbidding = move |_: &str| (StatusCode::FORBIDDEN, json!({"kind": "Status", "message": message}));
    let tunnel = saying(forbidding).await;
    let pass = tunnel.pass(as_user("ann"), Narrowing::default());
    let (status, refusal) = ask(&tunnel, &question(&tunnel, &pass, &["shop"])).await.unwrap_err();
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(refusal.message.contains("cannot impersonate"), "{refusal:?}");
}
