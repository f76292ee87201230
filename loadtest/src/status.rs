//! Scenario `status`: from a fact in the cluster or in Git to the status of the source, as the API gives it.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use http::Method;
use serde_json::{Value, json};
use testkit::{Cluster, ControlPlane, ControlPlaneOptions, client_trusting, eventually};

use crate::figure::{Figure, Target, percentile};
use crate::push::{AGENT, Kind, LIMIT, SOURCE, Stage, Watch, millis, options, since};

/// Facts of a kind in a run.
const CHANGES: usize = 20;
/// Between two looks at the API.
const PAUSE: Duration = Duration::from_millis(2);
/// Targets of facts that an agent reports, and of its silence, milliseconds.
const REPORTED: f64 = 5_000.0;
const SILENCE: f64 = 35_000.0;
/// What an in-sync source says.
const WELL: &str = "in-sync";
const BROKEN: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x\n";

/// The delays of one run.
#[derive(Default)]
struct Delays {
    degraded: Vec<Duration>,
    bare: Vec<Duration>,
    well_again: Vec<Duration>,
    rejected: Vec<Duration>,
    accepted_again: Vec<Duration>,
    silent: Duration,
    heard_again: Duration,
}

/// The statuses of all runs, each with its baseline where it has one.
#[derive(Default)]
struct Runs {
    figures: [Vec<(f64, Option<f64>)>; 7],
}

/// Measures every figure so many times.
pub async fn run(count: usize) -> anyhow::Result<Vec<Figure>> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    define_things(&plane).await?;
    let mut runs = Runs::default();
    for number in 0..count {
        eprintln!("run {} of {count}", number + 1);
        runs.add(delays(&plane).await?);
    }
    Ok(runs.figures())
}

impl Runs {
    fn add(&mut self, delays: Delays) {
        let at = |samples: &[Duration], percent| {
            percentile(samples.iter().copied().map(millis).collect(), percent)
        };
        let values = [
            (at(&delays.degraded, 50.0), Some(at(&delays.bare, 50.0))),
            (at(&delays.degraded, 99.0), Some(at(&delays.bare, 99.0))),
            (at(&delays.well_again, 99.0), None),
            (at(&delays.rejected, 99.0), None),
            (at(&delays.accepted_again, 99.0), None),
            (millis(delays.silent), None),
            (millis(delays.heard_again), None),
        ];
        for (runs, value) in self.figures.iter_mut().zip(values) {
            runs.push(value);
        }
    }

    fn figures(self) -> Vec<Figure> {
        let named = [
            ("status.degraded-p50", REPORTED),
            ("status.degraded-p99", REPORTED),
            ("status.well-again-p99", REPORTED),
            ("status.rejected-p99", REPORTED),
            ("status.accepted-again-p99", REPORTED),
            ("status.silent-agent", SILENCE),
            ("status.heard-again", REPORTED),
        ];
        let figure = |((name, limit), runs)| Figure::of(name, "ms", Target::AtMost(limit), runs);
        named.into_iter().zip(self.figures).map(figure).collect()
    }
}

/// A kind whose health is what its conditions say, and which no controller looks after.
async fn define_things(plane: &ControlPlane) -> anyhow::Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.loadtest.kasbah.dev"},
        "spec": {
            "group": "loadtest.kasbah.dev",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    plane.create_object(definitions, &definition).await?;
    eventually(LIMIT, || plane.get("/apis/loadtest.kasbah.dev/v1/things")).await;
    Ok(())
}

/// One run: an installation with a source of one thing, which goes wrong in each way again and again.
async fn delays(plane: &ControlPlane) -> anyhow::Result<Delays> {
    let mut stage = Stage::start_as(options(), plane).await?;
    stage.first_sync(Kind::Thing, 1).await?;
    let api = Api::of(&stage)?;
    api.until("in sync", |status| status == WELL).await?;
    let mut delays = Delays::default();
    health(&stage, &api, &mut delays).await?;
    commits(&mut stage, &api, &mut delays).await?;
    silence(&mut stage, &api, &mut delays).await?;
    stage.end().await?;
    Ok(delays)
}

/// The thing's controller says that it stands still, and that it is ready again.
async fn health(stage: &Stage, api: &Api, delays: &mut Delays) -> anyhow::Result<()> {
    let watch = Watch::start(&stage.cluster, stage.namespace(), Kind::Thing).await?;
    let name = Kind::Thing.name(0);
    let path = format!("{}/namespaces/{}/things/{name}", Kind::Thing.api(), stage.namespace());
    for number in 0..CHANGES {
        let value = format!("stalled-{number}");
        let began = say(&stage.cluster, &path, &value, "Stalled", "True").await?;
        delays.degraded.push(api.until("degraded", |status| status == "degraded").await?.since(began));
        delays.bare.push(watch.sees(&name, &value).await?.duration_since(began).unwrap_or_default());
        let began = say(&stage.cluster, &path, &format!("ready-{number}"), "Ready", "True").await?;
        delays.well_again.push(api.until("well again", |status| status == WELL).await?.since(began));
    }
    Ok(())
}

/// States a condition of the thing; answers when.
async fn say(
    cluster: &Cluster,
    path: &str,
    value: &str,
    condition: &str,
    is: &str,
) -> anyhow::Result<SystemTime> {
    let conditions = json!([{"type": condition, "status": is, "reason": "Benchmark", "message": value}]);
    // Nothing that Git has: the agent would correct it, and the two would fight.
    let patch = json!({"status": {"conditions": conditions}});
    let began = SystemTime::now();
    let answer = cluster.send(Method::PATCH, path, Some(("application/merge-patch+json", &patch))).await?;
    ensure!(answer.status.is_success(), "{path}: {}: {}", answer.status, answer.body);
    Ok(began)
}

/// A commit that is rejected, and one that is good again.
async fn commits(stage: &mut Stage, api: &Api, delays: &mut Delays) -> anyhow::Result<()> {
    for number in 0..CHANGES {
        stage.write_file("broken.yaml", BROKEN)?;
        let (began, _) = stage.push(&format!("broken {number}")).await?;
        delays.rejected.push(api.until("rejected", |status| status == "rejected").await?.since(began));
        stage.remove_file("broken.yaml")?;
        let (began, _) = stage.push(&format!("good {number}")).await?;
        delays.accepted_again.push(api.until("accepted again", |status| status == WELL).await?.since(began));
    }
    Ok(())
}

/// The agent's process stands still, and goes on.
async fn silence(stage: &mut Stage, api: &Api, delays: &mut Delays) -> anyhow::Result<()> {
    let began = SystemTime::now();
    stage.kasbah.agent(AGENT)?.signal(testkit::Signal::STOP);
    delays.silent = api.until("silent", |status| status == "stale").await?.since(began);
    let began = SystemTime::now();
    stage.kasbah.agent(AGENT)?.signal(testkit::Signal::CONT);
    delays.heard_again = api.until("heard again", |status| status == WELL).await?.since(began);
    Ok(())
}

/// The source in the HTTP API.
struct Api {
    http: reqwest::Client,
    source: String,
    token: String,
}

/// When a status was seen.
struct Seen(SystemTime);

impl Seen {
    fn since(self, began: SystemTime) -> Duration {
        self.0.duration_since(began).unwrap_or_default()
    }
}

impl Api {
    fn of(stage: &Stage) -> anyhow::Result<Self> {
        let shown = stage.kasbah.json(["source", "show", SOURCE])?;
        let id = shown.get("id").and_then(Value::as_str).context("the source has an id")?;
        let token = std::fs::read_to_string(stage.kasbah.data().join("owner-token"))?;
        let http = client_trusting(&std::fs::read(stage.kasbah.authority())?)?;
        let source = format!("{}/api/v1/sources/{id}", stage.kasbah.api());
        Ok(Self { http, source, token: token.trim().to_owned() })
    }

    /// Waits until the source has a state.
    async fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> anyhow::Result<Seen> {
        let began = SystemTime::now();
        loop {
            let answer = self.http.get(&self.source).bearer_auth(&self.token).send().await?;
            let shown: Value = answer.error_for_status()?.json().await?;
            let now = SystemTime::now();
            if shown.pointer("/status/state").and_then(Value::as_str).is_some_and(&is) {
                return Ok(Seen(now));
            }
            ensure!(since(began) < LIMIT, "{what}: not in time: {shown:#}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
