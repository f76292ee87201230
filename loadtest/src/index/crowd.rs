//! A hundred agents' objects in one index: its memory, its start, its answers while they change, and what history takes on the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::observation::{Observation, ObservationBatch, Observed};
use events::{AgentId, OrganizationId, Stream, Timestamp};
use serde_json::{Value, json};
use store::jetstream::Options;
use store::{EventLog, NewBatch};
use testkit::{GitServer, Installation, InstallationOptions, NatsServer, WorkTree, admin_page, eventually};
use world::World;
use zeroize::Zeroizing;

use super::api::Api;
use super::bodies::{OF_EACH, Place, Pod};
use crate::agents::{Behaviour, Fleet, client_of, register, targets};
use crate::figure::{Figure, Target};
use crate::push::{LIMIT, access, folder_bytes, options};
use crate::usage;

const AGENTS: usize = 100;
const PROJECT: &str = "bench/fleet";
const INDEXER: &str = "resource-indexer-1";
/// Applications of each namespace.
const OF_NAMESPACE: usize = 10;
/// Objects of an agent's record.
const OF_RECORD: usize = 100;
/// Environments of one namespace each, by their objects.
const ENVIRONMENTS: [(&str, usize); 2] = [("small", 1_000), ("large", 20_000)];
/// Changes a second while it is asked.
const RATE: usize = 1_000;
const CHANGES_OF_RECORD: usize = 10;
/// Askings of each kind in a run.
const ASKED: usize = 200;
const TREES: usize = 40;
/// Pods and changes of each while it is measured what changes take.
const HISTORY: (usize, usize) = (400, 500);
/// Before memory is measured: longer than the allocator keeps what is free.
const RESTS: Duration = Duration::from_secs(20);
/// How long the index has to take in everything.
const FOLDING: Duration = Duration::from_secs(1_800);

type Runs = Vec<(f64, Option<f64>)>;

/// Measures an index of so many objects.
pub async fn run(count: usize, objects: usize) -> anyhow::Result<Vec<Figure>> {
    let mut crowd = Crowd::start(AGENTS).await?;
    let history = crowd.history().await.context("what changes take")?;
    crowd.fill(objects).await.context("all objects")?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let resident = crowd.resident().await? as f64 / 1e6;
    let mut starts = Runs::new();
    for _ in 0..count {
        starts.push((crowd.starts_again().await?.as_secs_f64(), None));
    }
    let mut figures = vec![
        Figure::of("index.history-bytes", "B/change", Target::RatioAtMost(0.15), vec![history]),
        Figure::of("index.resident", "MB", Target::AtMost(500.0), vec![(resident, None)]),
        Figure::of("index.start", "s", Target::AtMost(5.0), starts),
    ];
    figures.extend(asked(&mut crowd, count).await?);
    Ok(figures)
}

/// Each question so many times, while objects change.
async fn asked(crowd: &mut Crowd, count: usize) -> anyhow::Result<Vec<Figure>> {
    let list = "query($of: ResourceFilter) { resources(filter: $of, first: 100) {
        nodes { agentName kind namespace name health { state } } } }";
    let tree = "query($id: ID!, $at: Moment) { environment(id: $id) { tree(at: $at, first: 2000) {
        nodes { parent resource { kind name health { state } } } } } }";
    let at = crowd.filled.clone();
    let environment = |name: &str| crowd.environments.get(name).cloned().unwrap_or_default();
    let [small, large] = ENVIRONMENTS.map(|(name, _)| environment(name));
    let questions = [
        ("index.list-health", 5.0, ASKED, list, json!({"of": {"kind": "Pod", "health": ["DEGRADED"]}})),
        (
            "index.list-labels",
            5.0,
            ASKED,
            list,
            json!({"of": {"labels": "app.kubernetes.io/instance=app-00007"}}),
        ),
        ("index.list-text", 5.0, ASKED, list, json!({"of": {"text": "app-0012"}})),
        ("index.list-tier", 5.0, ASKED, list, json!({"of": {"tier": "PRODUCTION"}})),
        (
            "index.tiers",
            5.0,
            ASKED,
            "{ tiers { tier state environmentCount counts { state count } } }",
            json!({}),
        ),
        ("index.tree-small", 5.0, TREES, tree, json!({"id": small})),
        ("index.tree-large", 60.0, TREES, tree, json!({"id": large})),
        ("index.tree-small-past", 60.0, TREES, tree, json!({"id": small, "at": at})),
        ("index.tree-large-past", 250.0, TREES, tree, json!({"id": large, "at": at})),
    ];
    let mut runs = questions.each_ref().map(|_| Runs::new());
    for _ in 0..count {
        let changing = crowd.changing();
        for (runs, (_, _, asked, query, variables)) in runs.iter_mut().zip(&questions) {
            runs.push((crowd.api.p95(*asked, query, variables).await?, None));
        }
        let (changes, took) = changing.end(&mut crowd.next).await?;
        println!("    {changes} changes in {took:.1?} meanwhile");
    }
    let mut figures = Vec::new();
    for ((name, limit, ..), runs) in questions.into_iter().zip(runs) {
        figures.push(Figure::of(name, "ms", Target::AtMost(limit), runs));
    }
    Ok(figures)
}

/// One process of each service, and agents whose objects are put into the log as if they had reported them.
pub struct Crowd {
    pub kasbah: Installation,
    api: Api,
    log: Arc<dyn EventLog>,
    organization: OrganizationId,
    agents: Vec<AgentId>,
    /// Sequence of what each agent says next.
    next: Vec<u64>,
    /// Ids by name.
    pub environments: std::collections::BTreeMap<String, String>,
    /// When everything was there and nothing had changed yet.
    filled: String,
    world: World,
    _fleet: Fleet,
    _git: GitServer,
    _nats: NatsServer,
}

impl Crowd {
    /// So many agents that are connected.
    pub async fn start(agents: usize) -> anyhow::Result<Self> {
        let nats = NatsServer::start_as_shipped().await?;
        let git = GitServer::start()?;
        let each_service = Some((1, vec![nats.shipped_url("{service}")]));
        let mut kasbah = Installation::start(InstallationOptions { each_service, ..options() }).await?;
        let url = git.create("fleet")?;
        let names: Vec<String> = (0..agents).map(|number| format!("agent-{number:05}")).collect();
        let commit = configure(&WorkTree::clone(&url)?, &names)?;
        kasbah.cli(["project", "create", PROJECT, "--repository", &url])?;
        let registered = register(&mut kasbah, PROJECT, &names).await.context("agents are registered")?;
        let (agents, tokens): (Vec<AgentId>, Vec<_>) = registered.into_iter().unzip();
        let client = client_of(&kasbah)?;
        let fleet = Fleet::start(targets(&mut kasbah, &client)?, &tokens, |_| Behaviour::Good);
        fleet.ready(agents.len(), LIMIT).await?;
        fleet.told(&commit, agents.len(), LIMIT).await?;
        let replicas = kasbah.replicas()?;
        let key = STANDARD.decode(std::fs::read_to_string(replicas.master_key())?.trim())?;
        let token = std::fs::read_to_string(replicas.owner_token()?)?;
        let world = World::real();
        let store = Options {
            servers: vec![nats.shipped_url("kasbah")],
            name: "loadtest".to_owned(),
            process: "kasbah".to_owned(),
            ca_file: None,
            makes_log: false,
            master_key: Zeroizing::new(key.try_into().ok().context("the master key has 32 bytes")?),
            partitions: None,
            accept_weak_durability: false,
            created_by: "loadtest".to_owned(),
        };
        let log = store::jetstream::open(&world, store).await?.parts.log;
        let api = Api::of(&kasbah, &token)?;
        let me = api.get("/api/v1/me").await?;
        let organization =
            me.get("organization").and_then(Value::as_str).context("an organization")?.parse()?;
        Ok(Self {
            kasbah,
            api,
            log,
            organization,
            next: vec![1; agents.len()],
            agents,
            environments: std::collections::BTreeMap::new(),
            filled: String::new(),
            world,
            _fleet: fleet,
            _git: git,
            _nats: nats,
        })
    }

    /// An agent says something more.
    pub async fn says(&mut self, cluster: usize, words: Vec<Observed>) -> anyhow::Result<()> {
        let next = self.next.get_mut(cluster).context("no such agent")?;
        let first = *next;
        *next += u64::try_from(words.len())?;
        let agent = *self.agents.get(cluster).context("no such agent")?;
        append(&self.log, &self.world, self.organization, agent, first, words).await
    }

    /// Returns once the index has folded all that was said: each word is a change.
    pub async fn follows(&mut self) -> anyhow::Result<()> {
        let said: u64 = self.next.iter().map(|next| next - 1).sum();
        let admin =
            self.kasbah.replicas()?.admin(INDEXER).context("the indexer has no metrics address")?.to_string();
        eventually(FOLDING, || async {
            let page = admin_page(&admin, "/metrics")?;
            let lines =
                page.lines().filter(|line| line.starts_with("kasbah_resource_indexer_changes_total{"));
            let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            let folded: u64 = counts.sum();
            ensure!(folded >= said, "{folded} of {said} changes are folded");
            Ok(())
        })
        .await;
        Ok(())
    }

    fn index(&mut self) -> anyhow::Result<PathBuf> {
        Ok(self.kasbah.replicas()?.folder().join(INDEXER))
    }

    /// Bytes on the disk for each change of a pod's status, beside those of its whole body packed by itself.
    async fn history(&mut self) -> anyhow::Result<(f64, Option<f64>)> {
        let (pods, changes) = HISTORY;
        let pods: Vec<Pod> = (0..)
            .map(|number| Place {
                cluster: 0,
                namespace: "history".to_owned(),
                name: format!("app-{number:05}"),
            })
            .flat_map(|place| place.pods().collect::<Vec<_>>())
            .take(pods)
            .collect();
        let mut packed = 0;
        let mut before = 0;
        for change in 0..=2 * changes {
            if change == changes {
                self.follows().await?;
                before = folder_bytes(&self.index()?)?;
            }
            for some in pods.chunks(OF_RECORD) {
                self.says(0, some.iter().map(|pod| pod.changed(change)).collect()).await?;
            }
            if change > changes {
                let sizes =
                    pods.iter().map(|pod| Ok(zstd::bulk::compress(pod.whole(change).as_bytes(), 3)?.len()));
                packed += sizes.sum::<anyhow::Result<usize>>()?;
            }
        }
        self.follows().await?;
        let bytes = folder_bytes(&self.index()?)?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let [ours, whole] = [bytes as f64, packed as f64].map(|bytes| bytes / (changes * pods.len()) as f64);
        println!("    a change of a pod's status takes {ours:.0} B beside {whole:.0} B");
        Ok((ours, Some(whole)))
    }

    /// All objects, and the environments that they belong to.
    async fn fill(&mut self, objects: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut said = 0;
        for (name, size) in ENVIRONMENTS {
            for number in 0..size / OF_EACH {
                let place =
                    Place { cluster: 0, namespace: name.to_owned(), name: format!("app-{number:05}") };
                said += OF_EACH;
                self.says(0, place.objects()).await?;
            }
        }
        let mut number = 0;
        while said < objects {
            let (cluster, round) = (number % AGENTS, number / AGENTS);
            let applications = OF_RECORD / OF_EACH;
            let namespace = format!("shop-{:03}", round * applications / OF_NAMESPACE);
            let first = round * applications;
            let places = (first..first + applications).map(|number| Place {
                cluster,
                namespace: namespace.clone(),
                name: format!("app-{number:05}"),
            });
            let words = places.flat_map(|place| place.objects()).collect();
            self.says(cluster, words).await?;
            (said, number) = (said + OF_RECORD, number + 1);
        }
        println!("    {said} objects in the log after {:.1?}", begun.elapsed());
        self.follows().await?;
        println!("    in the index after {:.1?}", begun.elapsed());
        let mut places: Vec<(String, usize, String)> =
            ENVIRONMENTS.map(|(name, _)| (name.to_owned(), 0, name.to_owned())).into();
        places.extend((0..AGENTS).map(|cluster| ("production".to_owned(), cluster, "shop-000".to_owned())));
        for (environment, cluster, namespace) in places {
            self.deploy(&environment, cluster, &namespace).await?;
        }
        self.filled = now(&self.world);
        Ok(())
    }

    /// A job deploys into an environment.
    pub async fn deploy(&mut self, environment: &str, cluster: usize, namespace: &str) -> anyhow::Result<()> {
        let agent = self.agents.get(cluster).context("no such agent")?;
        let body = json!({"env": environment, "project": PROJECT, "agent": agent, "namespace": namespace});
        let started = self.api.post("/api/v1/deployments", &body).await?;
        let text = |name: &str| started.get(name).and_then(Value::as_str).map(str::to_owned);
        let (id, of) = (text("id").context("an id")?, text("environment").context("an environment")?);
        self.api.post(&format!("/api/v1/deployments/{id}/finish"), &json!({})).await?;
        self.environments.insert(environment.to_owned(), of);
        Ok(())
    }

    /// Memory at rest, in bytes: what filling took goes back within some seconds.
    async fn resident(&mut self) -> anyhow::Result<u64> {
        let pid = self.kasbah.replicas()?.process(INDEXER).context("the indexer has ended")?.pid();
        tokio::time::sleep(RESTS).await;
        usage::resident(&[pid])
    }

    /// From the start of its process until it is ready, with its own store.
    async fn starts_again(&mut self) -> anyhow::Result<Duration> {
        let replicas = self.kasbah.replicas()?;
        replicas.stop(INDEXER)?;
        let begun = Instant::now();
        replicas.start_again(INDEXER).await?;
        Ok(begun.elapsed())
    }

    /// Pods of all clusters change from now on.
    fn changing(&self) -> Changing {
        let ended = Arc::new(AtomicBool::new(false));
        let (log, world, organization) = (Arc::clone(&self.log), self.world.clone(), self.organization);
        let agents: Vec<(AgentId, u64)> =
            self.agents.iter().copied().zip(self.next.iter().copied()).collect();
        let task = tokio::spawn(change(log, world, organization, agents, Arc::clone(&ended)));
        Changing { ended, task, begun: Instant::now() }
    }
}

/// Agents whose objects the project's members see; the commit.
fn configure(tree: &WorkTree, agents: &[String]) -> anyhow::Result<String> {
    let source =
        "sources:\n  - name: shop\n    include: [\"objects/**\"]\n    namespace: shop\n    interval: 10m\n";
    for agent in agents {
        tree.write(&format!(".kasbah/agents/{agent}/config.yaml"), format!("{source}{}", access(PROJECT)))?;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop"}});
    tree.write("objects/shop.yaml", object.to_string())?;
    tree.commit_and_push("configure all agents")
}

/// Changes that go on until they are ended.
struct Changing {
    ended: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<anyhow::Result<Vec<(AgentId, u64)>>>,
    begun: Instant,
}

impl Changing {
    /// How many there were, and in which time; each agent goes on behind them.
    async fn end(self, next: &mut [u64]) -> anyhow::Result<(u64, Duration)> {
        self.ended.store(true, Ordering::Relaxed);
        let mut changes = 0;
        for (next, (_, now)) in next.iter_mut().zip(self.task.await??) {
            changes += now - *next;
            *next = now;
        }
        ensure!(changes > 0, "nothing changed");
        Ok((changes, self.begun.elapsed()))
    }
}

async fn change(
    log: Arc<dyn EventLog>,
    world: World,
    organization: OrganizationId,
    mut agents: Vec<(AgentId, u64)>,
    ended: Arc<AtomicBool>,
) -> anyhow::Result<Vec<(AgentId, u64)>> {
    let begun = Instant::now();
    let mut changes = 0;
    for round in 1.. {
        for cluster in 0..agents.len() {
            if ended.load(Ordering::Relaxed) {
                return Ok(agents);
            }
            let Some((agent, next)) = agents.get_mut(cluster) else { continue };
            let place = |number| Place {
                cluster,
                namespace: "shop-000".to_owned(),
                name: format!("app-{number:05}"),
            };
            let pods = (0..OF_NAMESPACE).flat_map(|number| place(number).pods().collect::<Vec<_>>());
            let words: Vec<Observed> = pods.take(CHANGES_OF_RECORD).map(|pod| pod.changed(round)).collect();
            let (first, count) = (*next, words.len());
            *next += u64::try_from(count)?;
            append(&log, &world, organization, *agent, first, words).await?;
            changes += count;
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let due = Duration::from_secs_f64(changes as f64 / RATE as f64);
            tokio::time::sleep_until((begun + due).into()).await;
        }
    }
    Ok(agents)
}

async fn append(
    log: &Arc<dyn EventLog>,
    world: &World,
    organization: OrganizationId,
    agent: AgentId,
    first: u64,
    words: Vec<Observed>,
) -> anyhow::Result<()> {
    let at = Timestamp(world.clock.now_millis());
    let batch = ObservationBatch {
        organization,
        writer: ObservationBatch::agent_writer(agent),
        epoch: 1,
        first,
        observations: words.into_iter().map(|what| Observation { at, what }).collect(),
    };
    let writer = batch.writer.clone();
    let data = events::encode(&batch)?;
    log.append_batch(NewBatch { stream: Stream::Objects, organization, writer, data }).await?;
    Ok(())
}

fn now(world: &World) -> String {
    Timestamp(world.clock.now_millis()).to_string()
}
