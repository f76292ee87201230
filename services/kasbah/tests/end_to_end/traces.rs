//! One trace from a forge's webhook to the object in the cluster and back into the log, over all processes.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use testkit::{
    Balancer, Cluster, Collector, GitServer, Installation, InstallationOptions, NatsServer, Push, Span,
    WorkTree, eventually,
};

use crate::scene::{AGENT, LIMIT, PROJECT, Scene};

/// The span of whoever calls the webhook.
const CALLER: &str = "b7ad6b7169203331";
const SECRET: &str = "what nobody but the cluster may know";

/// One or two replicas, or each service by itself, that tell a collector what they do, and an agent that does too.
struct Observed {
    replicas: Vec<Installation>,
    /// Whether each service is a process of its own.
    apart: bool,
    collector: Collector,
    git: GitServer,
    tree: WorkTree,
    cluster: Cluster,
    namespace: String,
    /// What no span may hold.
    secrets: Vec<String>,
    /// Where the agent shows its metrics.
    agent_admin: String,
    _around: Box<dyn Any + Send + Sync>,
}

/// What every process is told of the collector.
fn told(collector: &Collector) -> Vec<String> {
    vec!["--otlp-endpoint".to_owned(), collector.endpoint()]
}

impl Observed {
    async fn alone() -> Self {
        let collector = Collector::start().unwrap();
        let options = InstallationOptions { server: told(&collector), ..InstallationOptions::default() };
        let kasbah = Installation::start(options).await.unwrap();
        Self::of(vec![kasbah], collector, Box::new(())).await
    }

    async fn apart() -> Self {
        let collector = Collector::start().unwrap();
        let nats = NatsServer::start_as_shipped().await.unwrap();
        let options = InstallationOptions {
            each_service: Some((2, vec![nats.shipped_url("{service}")])),
            variables: vec![("KASBAH_OTLP_ENDPOINT".to_owned(), collector.endpoint())],
            ..InstallationOptions::default()
        };
        let kasbah = Installation::start(options).await.unwrap();
        Self::of(vec![kasbah], collector, Box::new(nats)).await
    }

    async fn on_nats() -> Self {
        let collector = Collector::start().unwrap();
        let nats = NatsServer::start_as_shipped().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("master.key");
        std::fs::write(&key, [7; 32]).unwrap();
        let ports = [testkit::free_port().unwrap(), testkit::free_port().unwrap()];
        let balancer =
            Balancer::start(ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).to_vec());
        let balancer = balancer.unwrap();
        let mut replicas = Vec::new();
        for port in ports {
            let mut server = told(&collector);
            let key = key.display().to_string();
            server.extend(
                ["--nats", &nats.shipped_url("kasbah"), "--master-key-file", &key].map(str::to_owned),
            );
            let options = InstallationOptions {
                tunnel_port: Some(port),
                agents_dial: Some(balancer.address().to_string()),
                server,
                ..InstallationOptions::default()
            };
            replicas.push(Installation::start(options).await.unwrap());
        }
        let token = replicas[0].data().join("owner-token");
        std::fs::copy(token, replicas[1].data().join("owner-token")).unwrap();
        Self::of(replicas, collector, Box::new((nats, balancer, folder))).await
    }

    /// The manifests lie in a repository that nobody looks at by himself, so that only the webhook brings a commit.
    async fn of(
        mut replicas: Vec<Installation>,
        collector: Collector,
        around: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let cluster = testkit::shared_control_plane().await.unwrap();
        let namespace = cluster.namespace("traced", false).await.unwrap();
        let git = GitServer::start().unwrap();
        let kasbah = &mut replicas[0];
        let agents = git.create("agents").unwrap();
        let configuring = WorkTree::clone(&agents).unwrap();
        let configuration = Scene::configuration(&namespace, "").replace("30s", "10h");
        let configuration = format!("{configuration}    project: {PROJECT}\n");
        configuring.write(&format!(".kasbah/agents/{AGENT}/config.yaml"), configuration).unwrap();
        configuring.commit_and_push("configure the agent").unwrap();
        let url = git.create("deploy").unwrap();
        let tree = WorkTree::clone(&url).unwrap();
        tree.write("manifests/one.yaml", Scene::config_map("one", "0")).unwrap();
        let first = tree.commit_and_push("before anybody looks").unwrap();
        kasbah.cli(["project", "create", "shop/agents", "--repository", &agents]).unwrap();
        kasbah.cli(["project", "create", PROJECT, "--repository", &url]).unwrap();
        kasbah.register_agent(AGENT, "shop/agents").unwrap();
        let mut agent = kasbah.agent_command(AGENT, cluster.kubeconfig(), &namespace).unwrap();
        agent.args(told(&collector));
        let agent_admin = format!("127.0.0.1:{}", testkit::free_port().unwrap());
        agent.args(["--admin-listen", &agent_admin]);
        kasbah.start_agent_by("agent", agent).unwrap();
        let (apart, alone) = (kasbah.replicas().is_ok(), kasbah.data().join("owner-token"));
        let owner_token = kasbah.replicas().map_or(alone, |replicas| replicas.owner_token().unwrap());
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap().trim().to_owned();
        let secrets = vec![
            SECRET.to_owned(),
            base64_of(SECRET),
            read(owner_token),
            read(kasbah.token_file(AGENT)),
            kasbah.webhook(PROJECT).unwrap().secret,
        ];
        let observed = Self {
            replicas,
            apart,
            collector,
            git,
            tree,
            cluster,
            namespace,
            secrets,
            agent_admin,
            _around: around,
        };
        observed.synced(&first).await;
        observed
    }

    fn source(&self) -> Result<Value> {
        self.replicas[0].json(["source", "show", &format!("{AGENT}/shop")])
    }

    async fn synced(&self, commit: &str) {
        eventually(LIMIT, || async {
            let source = self.source()?;
            ensure!(source["synced_commit"] == commit, "not at {commit}: {source:#}");
            Ok(())
        })
        .await;
    }

    /// Pushes a value, and tells of it by the webhook of the last replica as part of a trace.
    async fn push(&self, value: &str, trace: &str, sampled: bool) {
        self.tree.write("manifests/one.yaml", Scene::config_map("one", value)).unwrap();
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: hidden\nstringData:\n  word: \"{SECRET}\"\n"
        );
        self.tree.write("manifests/hidden.yaml", secret).unwrap();
        let after = self.tree.commit_and_push(value).unwrap();
        let push = Push {
            repository: "deploy".to_owned(),
            reference: "refs/heads/main".to_owned(),
            before: String::new(),
            after: after.clone(),
            hook_started: SystemTime::now(),
        };
        let webhook = self.replicas.last().unwrap().webhook(PROJECT).unwrap();
        let traceparent = format!("00-{trace}-{CALLER}-0{}", u8::from(sampled));
        let called = webhook.call(push, self.git.url("deploy"), vec![("traceparent", traceparent)]).await;
        assert_eq!(called.unwrap().as_u16(), 202);
        let path = format!("/api/v1/namespaces/{}/configmaps/one", self.namespace);
        eventually(LIMIT, || async {
            let found = self.cluster.get(&path).await?;
            let tree = || self.collector.tree(trace);
            ensure!(found["data"]["value"] == value, "{:?}, and the trace is {}", self.source(), tree());
            Ok(())
        })
        .await;
        self.synced(&after).await;
    }

    /// The spans of a trace, once its end is in the log and what every process has of it has come: each sends it by itself.
    async fn whole(&self, trace: &str) -> Vec<Span> {
        eventually(LIMIT, || async {
            let spans = self.collector.trace(trace);
            for (name, what) in [("delivery.decide", "kasbah.sync.finished"), ("agent.sync", "")] {
                let came = spans.iter().any(|span| span.name == name && events_of(span).contains(what));
                ensure!(came, "no {name} {what} in {}", self.collector.tree(trace));
            }
            let known: BTreeSet<&str> =
                spans.iter().map(|span| span.span_id.as_str()).chain([CALLER]).collect();
            let stray = spans.iter().find(|span| !known.contains(span.parent_id.as_str()));
            ensure!(stray.is_none(), "{stray:?} has no parent in {}", self.collector.tree(trace));
            if let Some((name, service, parent)) = lacking(&spans, self.apart) {
                bail!("no {name} of {service} below {parent} in {}", self.collector.tree(trace));
            }
            Ok(spans)
        })
        .await
    }

    /// The trace contexts of the source's events of a type.
    fn traces_in_log(&self, event_type: &str) -> Vec<String> {
        let source = self.source().unwrap();
        let of = format!("source/{}", source["id"].as_str().unwrap());
        let history = self.replicas[0].json(["log", "show", &of]).unwrap();
        let events = history["events"].as_array().unwrap().iter();
        let events = events.filter(|event| event["type"] == event_type);
        events.filter_map(|event| event["traceparent"].as_str().map(str::to_owned)).collect()
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn events_of(span: &Span) -> &str {
    span.attributes.get("events").map_or("", String::as_str)
}

/// Each span that a push has, of which process, and below which. Where services are processes of their own, what is kasbah's is of the
/// service that the span's name begins with.
const CHAIN: &[(&str, &str, &str)] = &[
    ("authz.locate-project", "kasbah", "POST /hooks/v1/{project}"),
    ("repo-poller.look", "kasbah", "POST /hooks/v1/{project}"),
    ("authz.decide-fetch", "kasbah", "repo-poller.look"),
    ("repo-poller.advance", "kasbah", "repo-poller.look"),
    ("delivery.decide", "kasbah", "repo-poller.advance"),
    ("tunnel-gateway.push", "kasbah", "delivery.decide"),
    ("PUT /v1/objects", "kasbah-agent", "tunnel-gateway.push"),
    ("agent.sync", "kasbah-agent", "delivery.decide"),
    ("agent.dry-run", "kasbah-agent", "agent.sync"),
    ("agent.apply", "kasbah-agent", "agent.sync"),
    ("agent.wait-for-health", "kasbah-agent", "agent.sync"),
];

/// What a push has, and these spans have not.
fn lacking(spans: &[Span], apart: bool) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let parent_of = |span: &Span| spans.iter().find(|parent| parent.span_id == span.parent_id);
    CHAIN.iter().find(|(name, service, parent)| {
        let service = match name.split_once('.') {
            Some((own, _)) if apart && *service == "kasbah" => own,
            _ => service,
        };
        let found = spans.iter().any(|span| {
            let below = parent_of(span).map(|parent| parent.name.as_str());
            (span.name.as_str(), span.service.as_str(), below) == (*name, service, Some(*parent))
        });
        !found
    })
}

fn is_one_chain(spans: &[Span], apart: bool, tree: &str) {
    let roots: Vec<_> = spans.iter().filter(|span| span.parent_id == CALLER).collect();
    assert_eq!(roots.len(), 1, "{tree}");
    assert_eq!((roots[0].name.as_str(), roots[0].kind.as_str()), ("POST /hooks/v1/{project}", "server"));
    assert_eq!(roots[0].attributes["http.response.status_code"], "202");
    let decisions = ["bundle.desired", "sync.started", "sync.finished"];
    for event in decisions {
        let found = spans.iter().any(|span| events_of(span).contains(event));
        assert!(found, "{event} is not recorded in {tree}");
    }
    let applied = spans.iter().filter(|span| span.name == "agent.apply");
    let objects: Vec<&str> = applied.map(|span| span.attributes["object"].as_str()).collect();
    assert!(objects.iter().any(|object| object.starts_with("v1 ConfigMap ")), "{tree}");
    assert!(spans.iter().all(|span| !span.failed), "{tree}");
    assert!(spans.iter().all(|span| !span.instance.is_empty()), "{tree}");
    let (agents, servers): (Vec<&Span>, _) = spans.iter().partition(|span| span.service == "kasbah-agent");
    // The console, authz, repo-poller, delivery and the gateway, one or two of each.
    let servers_at_work = if apart { 5..=10 } else { 1..=2 };
    for (spans, at_work) in [(agents, 1..=2), (servers, servers_at_work)] {
        let instances: BTreeSet<&str> = spans.iter().map(|span| span.instance.as_str()).collect();
        assert!(at_work.contains(&instances.len()), "not {at_work:?} of {instances:?}: {tree}");
    }
}

/// The metrics of one process, each of which the reference has.
fn metrics(admin: &str) -> Result<String> {
    let page = testkit::admin_page(admin, "/metrics")?;
    let (_, page) = page.split_once("\r\n\r\n").context("no page")?;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no root")?;
    let reference = std::fs::read_to_string(root.join("docs/reference/metrics.md"))?;
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let known = reference.contains(&format!("`{}`", family.unwrap_or(name)));
        ensure!(known, "the reference has no {name}");
    }
    Ok(page.to_owned())
}

/// What happened is counted, by whoever did it.
async fn it_is_counted(observed: &Observed, nats: bool) {
    let admins: Vec<String> =
        observed.replicas.iter().map(|one| one.admin().trim_start_matches("http://").to_owned()).collect();
    let of_server = [
        "kasbah_console_requests_total{method=\"POST\",route=\"/hooks/v1/{project}\",status=\"202\"} 3\n",
        "kasbah_repo_poller_repositories{state=\"readable\"} ",
        "kasbah_delivery_syncs_total{outcome=\"succeeded\"} ",
        "kasbah_delivery_events_total{event=\"kasbah.bundle.desired\"} ",
        "kasbah_tunnel_gateway_agents 1\n",
        "kasbah_tunnel_gateway_pushes_total{outcome=\"taken\"} ",
        "kasbah_tunnel_gateway_tunnel_bytes_total{direction=\"received\"} ",
        "kasbah_bus_requests_total{request=\"authz.decide-fetch\",outcome=\"ok\"} ",
        "kasbah_bus_notices_total{notice=\"repository.pushed\",outcome=\"sent\"} 3\n",
        "kasbah_log_appends_total{stream=\"decisions\",outcome=\"appended\"} ",
        "kasbah_log_projection_lag_records{projection=\"delivery\"} 0\n",
        "kasbah_trace_spans_total{outcome=\"sent\"} ",
    ];
    let of_nats = ["kasbah_nats_bus_connected 1\n", "kasbah_nats_log_connected 1\n"];
    let of_folder = ["kasbah_data_folder_free_bytes "];
    eventually(LIMIT, || async {
        let pages: Vec<String> = admins.iter().map(|admin| metrics(admin)).collect::<Result<_>>()?;
        let pages = pages.concat();
        let further = if nats { of_nats.as_slice() } else { of_folder.as_slice() };
        let missing = of_server.iter().chain(further).find(|line| !pages.contains(**line));
        ensure!(missing.is_none(), "no {missing:?} in {pages}");
        let agent = metrics(&observed.agent_admin)?;
        for line in [
            "kasbah_agent_tunnel_open 1\n",
            "kasbah_agent_lease_held 1\n",
            "kasbah_agent_objects 2\n",
            "kasbah_agent_applied_objects_total{outcome=\"created\"} 2\n",
            "kasbah_agent_api_requests_total{kind=\"write\",outcome=\"ok\"} ",
            "kasbah_agent_dials_total{outcome=\"opened\"} 1\n",
            "kasbah_agent_queued_observations 0\n",
            "kasbah_build_info{version=",
            "process_resident_memory_bytes ",
        ] {
            ensure!(agent.contains(line), "no {line:?} in {agent}");
        }
        Ok(())
    })
    .await;
}

fn nothing_secret(observed: &Observed) {
    for span in observed.collector.spans() {
        let said = format!("{span:?}");
        for secret in &observed.secrets {
            assert!(!said.contains(secret.as_str()), "a secret is in {said}");
        }
    }
}

async fn a_push_is_one_trace(observed: &Observed) {
    const FIRST: &str = "0af7651916cd43dd8448eb211c80319c";
    const UNSAMPLED: &str = "1af7651916cd43dd8448eb211c80319c";
    const LAST: &str = "2af7651916cd43dd8448eb211c80319c";
    observed.push("1", FIRST, true).await;
    let spans = observed.whole(FIRST).await;
    let tree = observed.collector.tree(FIRST);
    println!("{tree}");
    is_one_chain(&spans, observed.apart, &tree);
    for event in ["kasbah.bundle.desired", "kasbah.sync.started", "kasbah.sync.finished"] {
        let traces = observed.traces_in_log(event);
        assert!(traces.iter().any(|trace| trace.contains(FIRST)), "{event}: {traces:?}");
    }

    observed.push("2", UNSAMPLED, false).await;
    observed.push("3", LAST, true).await;
    observed.whole(LAST).await;
    assert_eq!(observed.collector.trace(UNSAMPLED), [], "the caller did not want it");
    let traces = observed.traces_in_log("kasbah.bundle.desired");
    assert!(traces.iter().any(|trace| trace.contains(UNSAMPLED) && trace.ends_with("-00")), "{traces:?}");
    nothing_secret(observed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_one_trace_in_one_process() {
    let observed = Observed::alone().await;
    a_push_is_one_trace(&observed).await;
    it_is_counted(&observed, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_one_trace_over_two_replicas_on_nats() {
    let observed = Observed::on_nats().await;
    a_push_is_one_trace(&observed).await;
    it_is_counted(&observed, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_one_trace_over_processes_of_each_service() {
    a_push_is_one_trace(&Observed::apart().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_nothing_waits_and_what_is_dropped_is_counted() {
    let nowhere = format!("http://127.0.0.1:{}", testkit::free_port().unwrap());
    let options = InstallationOptions {
        server: vec!["--otlp-endpoint".to_owned(), nowhere],
        ..InstallationOptions::default()
    };
    let kasbah = Installation::start(options).await.unwrap();
    kasbah.cli(["project", "create", PROJECT, "--repository", "https://git.test/x"]).unwrap();
    let admin = kasbah.admin();
    eventually(LIMIT, || async {
        let page = testkit::admin_page(admin.trim_start_matches("http://"), "/metrics")?;
        let line =
            page.lines().find(|line| line.starts_with("kasbah_trace_spans_total{outcome=\"refused\"}"));
        line.map(drop).with_context(|| page.clone())
    })
    .await;
}
