//! Every route of the API, asked by the owner of another organization about what this one has: nothing is seen and nothing
//! changes. All services run, as `kasbah up` starts them.

use std::collections::BTreeMap;
use std::time::Duration;

use console::route::Route;
use console::routes;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use testkit::{GitServer, Installation, InstallationOptions, WorkTree, eventually};
use world::World;

const LIMIT: Duration = Duration::from_secs(60);

/// What the first organization has, by the names of path parameters.
pub struct Home {
    pub things: BTreeMap<&'static str, Vec<String>>,
    /// Texts of which a stranger must never see one.
    pub marks: Vec<String>,
}

/// One request: what stands in the path, and the body.
type Tries = Vec<(BTreeMap<&'static str, String>, Option<Value>)>;

impl Home {
    fn each(&self, parameter: &'static str, body: Option<Value>) -> Tries {
        self.things[parameter]
            .iter()
            .map(|thing| (BTreeMap::from([(parameter, thing.clone())]), body.clone()))
            .collect()
    }

    /// A body that names a thing, with the rest of it.
    fn named(&self, field: &'static str, rest: &Value) -> Tries {
        let body = |thing: &String| {
            let mut body = rest.clone();
            body[field] = json!(thing);
            (BTreeMap::new(), Some(body))
        };
        self.things[field].iter().map(body).collect()
    }

    fn one(&self, parameter: &'static str) -> Value {
        json!(self.things[parameter].last().unwrap())
    }

    /// What is tried on an operation, and whether success can only be an answer about the stranger's own. `None`: not listed.
    #[expect(clippy::too_many_lines, reason = "a table, an operation a row")]
    fn tries(&self, operation: &str) -> Option<(Tries, Expect)> {
        let plain = |body: Option<Value>| vec![(BTreeMap::new(), body)];
        let own = |tries| Some((tries, Expect::OwnOnly));
        let refused = |tries| Some((tries, Expect::Refused));
        match operation {
            "me" | "listOrganizations" | "listGroups" | "listProjects" | "listUsers" | "listCredentials"
            | "listTokens" | "listAgents" | "listAgentStatuses" | "listTunnels" | "listSources"
            | "listEnvironments" | "readEvents" | "readAudit" | "verifyLog" | "listAggregates"
            | "showCoverage" | "listSubscriptions" => own(plain(None)),
            "findObjects"
            | "showObjectTree"
            | "explainHealth"
            | "showObject"
            | "listObjectChanges"
            | "listEnvironmentHealth" => {
                let environments = self.things["environment"].iter().map(|one| json!({ "env": one }));
                let projects = self.things["project"].iter().map(|one| json!({ "project": one }));
                let tier = std::iter::once(json!({ "tier": "production" }));
                let all = tier.chain(environments).chain(projects);
                let asked = all.map(|field| (BTreeMap::new(), Some(field)));
                own(plain(None).into_iter().chain(asked).collect())
            }
            "followEvents" => {
                let from = json!({ "from": "start" });
                own(plain(Some(from.clone())).into_iter().chain(self.named("project", &from)).collect())
            }
            "showTiers" => own(plain(None).into_iter().chain(self.named("project", &json!({}))).collect()),
            "createOrganization" => refused(plain(Some(json!({ "name": "third", "owner": "ada" })))),
            "createGroup" => own(plain(Some(json!({ "name": "shop" })))),
            "createProject" => refused(plain(Some(json!({
                "path": "shop/spy", "repository": "https://git.example/a.git", "credential": self.one("credential"),
            })))),
            "deleteGroup" => refused(self.each("group", None)),
            "setTokenLifetimes" => own(plain(Some(json!({ "default_seconds": 3600 })))),
            "showUser" => refused(self.each("user", None)),
            "disableUser" | "enableUser" => refused(self.each("user", Some(json!({})))),
            "showProject" | "showWebhook" | "deleteProject" => refused(self.each("project", None)),
            "setProject" => {
                refused(self.each("project", Some(json!({ "repository": "https://evil.example/a.git" }))))
            }
            "createUser" => refused(plain(Some(json!({
                "name": "accomplice", "role": "owner", "scope": { "project": self.things["project"][0] },
            })))),
            "assignRole" => refused(self.each("user", Some(json!({ "role": "viewer", "withdraw": false })))),
            "createCredential" => {
                own(plain(Some(json!({ "name": "vault", "host": "git.example", "secret": "s" }))))
            }
            "grantCredential" => {
                refused(self.each("credential", Some(json!({ "project": self.things["project"][0] }))))
            }
            "revokeCredential" => refused(self.each("credential", None)),
            "issueToken" => {
                let agent = |agent: &String| (BTreeMap::new(), Some(json!({ "name": "t", "agent": agent })));
                let user = |user: &String| (BTreeMap::new(), Some(json!({ "name": "t", "user": user })));
                let agents = self.things["agent"].iter().map(agent);
                refused(agents.chain(self.things["user"].iter().map(user)).collect())
            }
            "issueJobToken" => refused(self.each("project", Some(json!({ "name": "t" })))),
            "listJobAgents" => refused(plain(None)),
            "listSignIns" | "listIdentityProviders" => own(plain(None)),
            "signIn" => refused(plain(Some(json!({ "id_token": "e30.e30.e30" })))),
            "trustIdentityProvider" | "distrustIdentityProvider" => {
                let path = BTreeMap::from([("provider", "company".to_owned())]);
                refused(vec![(path, None)])
            }
            "unlinkUser" => {
                let both = |user: &String| {
                    BTreeMap::from([("user", user.clone()), ("provider", "company".to_owned())])
                };
                refused(self.things["user"].iter().map(|user| (both(user), None)).collect())
            }
            "showRoot" => refused(plain(None)),
            "rotateRoot" => refused(plain(Some(json!({})))),
            "revokeToken" => refused(self.each("token", None)),
            "registerAgent" => {
                refused(plain(Some(json!({ "name": "spy", "project": self.things["project"][0] }))))
            }
            "reviewAccess" => {
                let body = json!({ "attributes": { "verb": "get", "target": { "path": "/version" } } });
                refused(self.each("agent", Some(body)))
            }
            "showAgent" | "deleteAgent" | "showConfiguration" | "listAgentTunnels" => {
                refused(self.each("agent", None))
            }
            "showSource" | "listSyncs" | "listSourceObjects" | "syncSource" | "resumeSource"
            | "unpinSource" | "confirmSource" | "diffSource" => refused(self.each("source", None)),
            "suspendSource" => refused(self.each("source", Some(json!({ "reason": "spite" })))),
            "pinSource" => refused(self.each("source", Some(json!({ "commit": "abcdef0" })))),
            "createSubscription" => {
                refused(self.named("project", &json!({ "name": "spy", "url": "https://hooks.example/spy" })))
            }
            "showSubscription" | "deleteSubscription" | "listDeadLetters" => {
                refused(self.each("subscription", None))
            }
            "replaySubscription"
            | "pauseSubscription"
            | "resumeSubscription"
            | "rotateSubscriptionSecret"
            | "resendDeadLetters" => refused(self.each("subscription", Some(json!({})))),
            "createEnvironment" => refused(self.named("project", &json!({ "name": "spy" }))),
            "startDeployment" => refused(self.named("project", &json!({ "env": "spy" }))),
            // It answers what is missing, in the stranger's own words.
            "reviewDeployment" => own(self.named("project", &json!({ "env": "acme-environment" }))),
            "showEnvironment"
            | "stopEnvironment"
            | "previewStop"
            | "listEnvironmentChanges"
            | "deleteEnvironment"
            | "listDeployments"
            | "showEnvironmentTree" => refused(self.each("environment", None)),
            "diffEnvironment" => refused(self.each("environment", Some(json!({ "from": "-1m" })))),
            "setEnvironment" => refused(self.each("environment", Some(json!({ "tier": "other" })))),
            "showDeployment" | "finishDeployment" | "failDeployment" => {
                refused(self.each("deployment", None))
            }
            "readRecording" => refused(self.each("session", None)),
            "readTrace" => refused(self.each("correlation", None)),
            "showAggregate" => {
                let kinds = [
                    ("project", "project"),
                    ("agent", "agent"),
                    ("source", "source"),
                    ("configuration", "agent"),
                    ("environment", "environment"),
                    ("deployment", "deployment"),
                ];
                let aggregate = |(kind, thing): (&str, &'static str)| {
                    let id = self.things[thing][0].clone();
                    (BTreeMap::from([("kind", kind.to_owned()), ("id", id)]), None)
                };
                refused(kinds.into_iter().map(aggregate).collect())
            }
            _ => None,
        }
    }
}

/// How an operation must answer a stranger.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// With what is their own, or a refusal.
    OwnOnly,
    /// With a refusal: it names a thing of the other organization.
    Refused,
}

pub struct Person {
    client: Client,
    api: String,
    token: String,
}

impl Person {
    pub async fn call(&self, method: &Method, path: &str, body: Option<&Value>) -> (StatusCode, String) {
        let mut request =
            self.client.request(method.clone(), format!("{}{path}", self.api)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, text) = self.call(&Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn query(fields: &Value) -> String {
    let escaped = |text: &str| text.replace('/', "%2F").replace(':', "%3A");
    let field =
        |(name, value): (&String, &Value)| format!("{name}={}", escaped(value.as_str().unwrap_or_default()));
    let fields: Vec<String> = fields.as_object().into_iter().flatten().map(field).collect();
    format!("?{}", fields.join("&"))
}

fn path(route: &Route, parameters: &BTreeMap<&str, String>) -> String {
    let fill = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(name) => parameters[name].replace('/', "%2F").replace(':', "%3A"),
        None => part.to_owned(),
    };
    route.path.split('/').map(fill).collect::<Vec<_>>().join("/")
}

/// Everything that the owner sees of what a stranger might change.
async fn everything(owner: &Person) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        "groups",
        "projects",
        "users",
        "credentials",
        "agents",
        "tokens",
        "tokens?agent=acme-cluster",
        "sources",
        "environments",
        "subscriptions",
    ] {
        let mut listed = owner.get(&format!("/api/v1/{path}")).await;
        // Times of last use and of fetching, and how a subscription stands whose receiver is not there, move by themselves.
        let moving: &[&str] = match path {
            "subscriptions" => &["state", "reason", "since", "retry_at", "position", "behind", "oldest"],
            _ => &["last_used_at", "why"],
        };
        for thing in listed["items"].as_array_mut().unwrap() {
            moving.iter().for_each(|field| drop(thing.as_object_mut().unwrap().remove(*field)));
        }
        all.push(listed);
    }
    all
}

async fn home(kasbah: &Installation, owner: &Person, git: &GitServer) -> Home {
    let url = git.create("acme").unwrap();
    let tree = WorkTree::clone(&url).unwrap();
    let configuration =
        "sources:\n  - name: acme-source\n    include: [\"manifests/**\"]\n    namespace: acme-namespace\n";
    tree.write(".kasbah/agents/acme-cluster/config.yaml", configuration).unwrap();
    tree.write("manifests/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: acme-map\n").unwrap();
    tree.commit_and_push("configure").unwrap();
    let body = json!({ "name": "acme-vault", "host": "git.acme.example", "secret": "s" });
    let (status, text) = owner.call(&Method::POST, "/api/v1/credentials", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    kasbah.cli(["project", "create", "acme-shop/acme-front", "--repository", &url]).unwrap();
    let agent = kasbah.register_agent("acme-cluster", "acme-shop/acme-front").unwrap();
    let start = ["deployment", "start", "--env", "acme-environment", "--project", "acme-shop/acme-front"];
    let deployment = kasbah.json(start).unwrap();
    let hook = json!({ "name": "acme-alerts", "url": "https://hooks.acme.example/acme-way" });
    let (status, subscription) = owner.call(&Method::POST, "/api/v1/subscriptions", Some(&hook)).await;
    assert_eq!(status, StatusCode::OK, "{subscription}");
    let subscription: Value = serde_json::from_str(&subscription).unwrap();
    let sources = eventually(LIMIT, || async {
        let sources = owner.get("/api/v1/sources").await;
        if sources["items"][0]["newest_commit"].is_string() {
            Ok(sources)
        } else {
            Err(format!("no bundle yet: {sources}"))
        }
    })
    .await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let project = owner.get("/api/v1/projects/acme-shop%2Facme-front").await;
    let credentials = owner.get("/api/v1/credentials").await;
    let me = owner.get("/api/v1/me").await;
    let user = text(&me["actor"]).replace("user:", "");
    let organization = text(&me["organization"]);
    let agent_token = text(&owner.get("/api/v1/tokens?agent=acme-cluster").await["items"][0]["id"]);
    let (_, events) = owner.call(&Method::GET, "/api/v1/log/events", None).await;
    let events: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    let things = BTreeMap::from([
        ("project", vec![text(&project["id"]), "acme-shop/acme-front".to_owned()]),
        (
            "agent",
            vec![agent.clone(), "acme-cluster".to_owned(), "acme-shop/acme-front:acme-cluster".to_owned()],
        ),
        ("group", vec![text(&project["group"]), "acme-shop".to_owned()]),
        ("source", vec![text(&sources["items"][0]["id"])]),
        ("environment", vec![text(&deployment["environment"])]),
        ("deployment", vec![text(&deployment["id"])]),
        ("subscription", vec![text(&subscription["subscription"]["id"]), "acme-alerts".to_owned()]),
        ("credential", vec!["acme-vault".to_owned(), text(&credentials["items"][0]["id"])]),
        ("user", vec![user.clone(), "owner".to_owned()]),
        ("token", vec![text(&me["token"]), agent_token.clone()]),
        ("correlation", vec![text(&events["correlationid"])]),
        // Recordings of another organization are tried by the console's own tests.
        ("session", vec![text(&events["correlationid"])]),
    ]);
    let mut marks =
        vec![organization, user, agent, agent_token, text(&project["id"]), text(&project["group"])];
    marks.extend([
        text(&sources["items"][0]["id"]),
        text(&credentials["items"][0]["id"]),
        text(&me["token"]),
    ]);
    marks.extend([text(&deployment["environment"]), text(&deployment["id"])]);
    marks.extend([text(&subscription["subscription"]["id"]), "hooks.acme.example".to_owned()]);
    marks.extend(
        ["acme-environment", "acme-source", "acme-namespace", "acme-map", "git.acme.example"]
            .map(str::to_owned),
    );
    Home { things, marks }
}

/// What is wrong with a page is said of its field.
async fn refuses_bad_pages(owner: &Person) {
    for (query, field) in
        [("limit=0", "limit"), ("limit=many", "limit"), ("limit=501", "limit"), ("cursor=c12", "cursor")]
    {
        for list in
            ["groups", "users", "tokens", "agents", "sources", "environments", "agent-statuses", "tunnels"]
        {
            let path = format!("/api/v1/{list}?{query}");
            let (status, text) = owner.call(&Method::GET, &path, None).await;
            let refusal: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (status, &refusal["field"]),
                (StatusCode::BAD_REQUEST, &json!(field)),
                "{path}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_stranger_sees_and_changes_nothing_by_any_route() {
    let program = env!("CARGO_BIN_EXE_kasbah").into();
    let options = InstallationOptions { server_program: Some(program), ..InstallationOptions::default() };
    let mut kasbah = Installation::start(options).await.unwrap();
    let git = GitServer::start().unwrap();
    let tls = chassis::tls::client_config(&World::real(), Some(&kasbah.authority()), &[b"h2", b"http/1.1"])
        .unwrap();
    let client = Client::builder().tls_backend_preconfigured((*tls).clone()).build().unwrap();
    let token = std::fs::read_to_string(kasbah.data().join("owner-token")).unwrap().trim().to_owned();
    let owner = Person { client: client.clone(), api: kasbah.api(), token };
    let body = json!({ "name": "other", "owner": "stranger" });
    let (status, other) = owner.call(&Method::POST, "/api/v1/organizations", Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{other}");
    let other: Value = serde_json::from_str(&other).unwrap();
    let token = other["owner_token"]["secret"].as_str().unwrap().to_owned();
    let stranger = Person { client, api: kasbah.api(), token };
    let home = home(&kasbah, &owner, &git).await;
    let before = everything(&owner).await;
    crate::graphql::walk(&stranger, &owner, &home).await;
    // Reading first: later the stranger's own refused commands stand in their log, in their own words.
    let (reading, commands): (Vec<_>, Vec<_>) =
        routes::all().into_iter().partition(|route| route.method == Method::GET);
    for route in reading.into_iter().chain(commands) {
        let tried = home.tries(route.operation);
        let (tries, expect) =
            tried.unwrap_or_else(|| panic!("{} is not tried as a stranger", route.operation));
        for (parameters, body) in tries {
            // What stands in a body is asked in a query where there is no body.
            let sent = body.as_ref().filter(|_| !route.has_query());
            let query = body.as_ref().filter(|_| route.has_query()).map(query).unwrap_or_default();
            let path = format!("{}{query}", path(&route, &parameters));
            let (status, text) = stranger.call(&route.method, &path, sent).await;
            let operation = route.operation;
            assert!(!status.is_server_error(), "{operation}: {status} {text}");
            assert!(
                expect == Expect::OwnOnly || status.is_client_error(),
                "{operation} {parameters:?}: {status} {text}"
            );
            // The operator who made the stranger's organization stands in its log, by id: here it is the other's owner.
            let text = text.replace(&format!("\"actor\":\"user:{}\"", home.things["user"][0]), "");
            // What the stranger said themselves may be said back.
            let said = format!("{parameters:?} {body:?}");
            for mark in home.marks.iter().filter(|mark| !said.contains(mark.as_str())) {
                assert!(!text.contains(mark), "{operation} tells a stranger {mark}: {text}");
            }
        }
    }
    for query in home.things["agent"].iter().map(|agent| agent.replace('/', "%2F")) {
        for list in ["sources", "tokens"] {
            let (status, text) =
                stranger.call(&Method::GET, &format!("/api/v1/{list}?agent={query}"), None).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{list} of {query}: {text}");
        }
    }
    assert_eq!(everything(&owner).await, before, "a stranger changed something");
    refuses_bad_pages(&owner).await;
    kasbah.stop_server().unwrap();
}
