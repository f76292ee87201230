//! Whether connections to pods are encrypted.

use events::requests::index::MeshSecurity;

use super::*;

fn labelled(name: &str, app: &str, container: &str) -> Value {
    let spec = json!({"containers": [{"name": "web"}, {"name": container}]});
    pod(&format!("shop/{name}"), json!({"metadata": {"labels": {"app": app}}, "spec": spec}))
}

fn peer(place: &str, spec: Value) -> Value {
    object("security.istio.io/v1", "PeerAuthentication", place, json!({"spec": spec}))
}

fn secured(bodies: &[Value], filter: ObjectFilter) -> Option<MeshSecurity> {
    let mut given = Given::agents();
    given.says(bodies.iter().map(seen).collect());
    given.look(|view| security(view, one(&filter, view).unwrap()))
}

#[test]
fn of_istios_policies_the_closest_with_a_mode_counts() {
    let web = labelled("web-1", "web", "istio-proxy");
    let of_mesh = peer("istio-system/default", json!({"mtls": {"mode": "STRICT"}}));
    let of_shop = peer("shop/all", json!({"mtls": {"mode": "DISABLE"}}));
    let unset = peer(
        "shop/web",
        json!({"selector": {"matchLabels": {"app": "web"}}, "portLevelMtls": {"9090": {"mode": "PERMISSIVE"}}}),
    );
    let other =
        peer("shop/db", json!({"selector": {"matchLabels": {"app": "db"}}, "mtls": {"mode": "STRICT"}}));
    for (bodies, expected) in [
        (vec![&web], "permissive no PeerAuthentication says otherwise"),
        (vec![&web, &of_mesh], "strict PeerAuthentication istio-system/default"),
        (vec![&web, &of_mesh, &of_shop, &other], "off PeerAuthentication shop/all"),
        (vec![&web, &of_mesh, &unset], "strict PeerAuthentication istio-system/default"),
    ] {
        let bodies: Vec<Value> = bodies.into_iter().cloned().collect();
        let found = secured(&bodies, named("pod", "web-1")).unwrap();
        assert_eq!(format!("{} {}", found.mtls, found.reason), expected);
        assert_eq!(found.mesh, "istio");
    }
    let found = secured(&[web, of_mesh, unset], named("pod", "web-1")).unwrap();
    assert_eq!(
        found.ports.iter().map(|one| (one.port, one.mtls.as_str())).collect::<Vec<_>>(),
        [(9090, "permissive")]
    );
}

#[test]
fn the_least_secured_pod_of_a_workload_counts_and_without_a_mesh_nothing_is_said() {
    let service = object("v1", "Service", "shop/front", json!({"spec": {"selector": {"app": "web"}}}));
    let strict = peer("shop/all", json!({"mtls": {"mode": "STRICT"}}));
    let (meshed, bare) = (labelled("web-1", "web", "istio-proxy"), labelled("web-2", "web", "other"));
    let of = |bodies: &[&Value]| {
        let bodies: Vec<Value> = bodies.iter().map(|body| (*body).clone()).collect();
        secured(&bodies, named("svc", "front")).map(|found| (found.mtls, found.reason))
    };
    let found = of(&[&service, &strict, &meshed]).unwrap();
    assert_eq!(found.0, "strict");
    let found = of(&[&service, &strict, &meshed, &bare]).unwrap();
    assert_eq!(found, ("off".to_owned(), "pod web-2 has no proxy of a mesh".to_owned()));
    assert_eq!(of(&[&service, &bare]), None);
    assert_eq!(of(&[&service, &strict]), None, "no pods");
}

#[test]
fn linkerds_proxy_says_by_itself_what_it_lets_in() {
    let with = |policy: &str| {
        let env = json!([{"name": "LINKERD2_PROXY_INBOUND_DEFAULT_POLICY", "value": policy}]);
        let spec = json!({"initContainers": [{"name": "linkerd-proxy", "env": env}]});
        secured(&[pod("shop/web-1", json!({"spec": spec}))], named("pod", "web-1")).unwrap()
    };
    assert_eq!(
        (with("all-unauthenticated").mtls.as_str(), with("all-authenticated").mtls.as_str()),
        ("permissive", "strict")
    );
    assert_eq!(with("deny").mesh, "linkerd");
}

#[test]
fn a_policy_that_the_asker_may_not_see_leaves_it_unknown() {
    let mut given = Given::agents();
    given.says(
        [labelled("web-1", "web", "istio-proxy"), peer("shop/a", json!({}))].iter().map(seen).collect(),
    );
    let narrowing = Narrowing { namespaces: vec!["shop".to_owned()], ..Narrowing::default() };
    let rights = Rights::of([usable(AGENT, UserAccessAs::Agent, narrowing)]);
    let found = given.look_as(&rights, |view| security(view, one(&named("pod", "web-1"), view).unwrap()));
    assert_eq!(found.unwrap().mtls, "unknown", "what is in istio-system counts, too");
}

#[test]
fn a_declared_relation_is_followed_in_the_tree_and_to_the_one_to_blame() {
    use events::configuration::{DeclaredRelation, KindPattern};
    let kind = |group: &str, kind: &str| KindPattern { group: group.to_owned(), kind: kind.to_owned() };
    let relation = DeclaredRelation {
        name: "uses-database".to_owned(),
        from: kind("example.com", "App"),
        to: kind("example.com", "Database"),
        names: Some("spec.databases.map(d, d.name)".to_owned()),
        labels: None,
        namespace: None,
    };
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "message": "the disk is full"}]});
    let app = object(
        "example.com/v1",
        "App",
        "shop/web",
        json!({"spec": {"databases": [{"name": "orders"}]}, "status": ready("True")}),
    );
    let database = object("example.com/v1", "Database", "shop/orders", json!({"status": ready("False")}));
    let mut given = Given::agents();
    let declared = crate::model::Declared {
        relations: crate::model::RelationSet::new(&[relation]),
        ..crate::model::Declared::default()
    };
    given.fold.index.declare(AGENT, declared, given.now());
    given.says(vec![seen(&app), seen(&database)]);
    let app = ObjectFilter { kind: Some("App".to_owned()), ..ObjectFilter::default() };
    assert_eq!(drawn(&given, app.clone()), ["web", ".uses-database orders"]);
    let expected = [vec!["web Healthy ".to_owned(), "orders Progressing the disk is full".to_owned()]];
    assert_eq!(chains(&given, app.clone()), expected);
    let related = given.look(|view| related(view, one(&app, view).unwrap()));
    assert!(
        related
            .iter()
            .any(|one| one.relation == "uses-database" && one.key.name == "orders" && one.uid.is_some())
    );
    given.fold.index.declare(AGENT, crate::model::Declared::default(), given.now());
    let slot = given.fold.index.by_uid(AGENT, "uid-web").unwrap();
    assert_eq!(
        given.fold.index.due(given.now()).collect::<Vec<_>>(),
        [slot],
        "what had such links is looked at again"
    );
}
