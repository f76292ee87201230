//! `cargo xtask demo`: the main job in a minute, with nothing faked on the way.
//!
//! A cluster (a real control plane on this machine, or one that exists), a Git server with a demo shop, `kasbah up`, an
//! agent. Everything lies in one folder; Ctrl-C ends all of it, the next start goes on where it was.

mod chaos;
mod cluster;
mod kasbah;
mod narrate;
mod running;
mod shop;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::{self, spent, step};
use crate::testbed::{self, Part};
use cluster::Cluster;
use kasbah::{Kasbah, Shape};
use narrate::Narrator;
use shop::Shop;

/// Of each service, where `--chaos` does not say.
const CHAOS_REPLICAS: usize = 3;

#[derive(clap::Args)]
pub struct Arguments {
    /// Kubeconfig of an existing cluster to use, instead of starting one on this machine.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig; by default its current one.
    #[arg(long, requires = "kubeconfig")]
    context: Option<String>,
    /// Run this number of processes of each service, on three NATS servers, instead of one process with all services.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: Option<u8>,
    /// Kill one process after another while pushes and commands continue, and report what was lost. Uses three replicas of each
    /// service by default. Ends when it is done.
    #[arg(long)]
    chaos: bool,
    /// Another `kasbah` program for the servers.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Folder for all state; by default `.kasbah/demo`, or `.kasbah/demo-replicas` with replicas.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Use fake nodes even if a real one is possible.
    #[arg(long)]
    fake_nodes: bool,
    /// Print without colours.
    #[arg(long)]
    no_color: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let shape = arguments.shape();
    let kept = if shape.replicas.is_some() { ".kasbah/demo-replicas" } else { ".kasbah/demo" };
    let state = report::root()?.join(arguments.state.as_deref().unwrap_or(Path::new(kept)));
    std::fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
    let lock = std::fs::File::create(state.join("lock"))?;
    lock.try_lock().with_context(|| format!("another demo runs in {}", state.display()))?;
    prepare(arguments, &shape)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        let mut interrupted = std::pin::pin!(asked_to_end());
        let mut running = tokio::select! {
            started = Running::start(arguments, &shape, &state) => started?,
            () = &mut interrupted => {
                println!("\nended before it was up");
                return Ok(());
            }
        };
        println!("==> up after {}", spent(start.elapsed()));
        if !arguments.chaos {
            running.explain(&state)?;
        }
        let going_on = async {
            match arguments.chaos {
                true => chaos::run(&mut running, &state).await,
                false => running.watch().await,
            }
        };
        let outcome = tokio::select! {
            ended = going_on => ended,
            () = &mut interrupted => Ok(()),
        };
        println!("\n==> ending; `cargo xtask demo` goes on from here");
        running.stop()?;
        outcome
    })
}

impl Arguments {
    fn shape(&self) -> Shape {
        let replicas = self.replicas.map(usize::from).or(self.chaos.then_some(CHAOS_REPLICAS));
        Shape { replicas, program: self.program.clone() }
    }
}

/// Builds what is missing: Kasbah's programs, and beside them what the cluster needs, whose sources are fetched meanwhile.
fn prepare(arguments: &Arguments, shape: &Shape) -> Result<()> {
    let mut parts = Vec::new();
    if shape.replicas.is_some() {
        parts.push(Part::Nats);
    }
    if arguments.fake_nodes || !rustix::process::geteuid().is_root() {
        parts.push(Part::FakeNodes);
    }
    let own_cluster = arguments.kubeconfig.is_none();
    // With somebody's own cluster, NATS alone is left to build.
    let missing =
        if own_cluster || shape.replicas.is_some() { testbed::missing(&parts)? } else { Vec::new() };
    let compiled = testkit::program("kasbah").is_ok() && testkit::program("kasbah-agent").is_ok();
    if !compiled {
        println!(
            "==> Kasbah is compiled now (about four minutes on two cores); later starts compile what has changed"
        );
    }
    if !missing.is_empty() {
        println!("==> built from their sources beside that, once: {}", missing.join(", "));
    }
    step("Kasbah and what the cluster runs on", || {
        std::thread::scope(|scope| {
            let cluster = (!missing.is_empty()).then(|| scope.spawn(|| testbed::build(&parts)));
            let built = build();
            let cluster = cluster.map_or(Ok(()), |building| match building.join() {
                Ok(outcome) => outcome,
                Err(_) => Err(anyhow::anyhow!("the build of the control plane ended by a panic")),
            });
            built.and(cluster)
        })
    })
}

/// Builds Kasbah's programs.
pub fn build() -> Result<()> {
    let mut command = testkit::cargo();
    command.current_dir(report::root()?).args([
        "build",
        "--locked",
        "--bin",
        "kasbah",
        "--bin",
        "kasbah-agent",
    ]);
    report::run(&mut command)
}

/// Ctrl-C, or what a service manager sends.
async fn asked_to_end() {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

fn settings_file(state: &Path) -> PathBuf {
    state.join("env")
}

/// Everything that runs. Fields drop in this order.
struct Running {
    /// Nobody narrates chaos.
    narrator: Option<Narrator>,
    kasbah: Kasbah,
    shop: Shop,
    cluster: Cluster,
}

impl Running {
    async fn start(arguments: &Arguments, shape: &Shape, state: &Path) -> Result<Self> {
        let ports = kasbah::Ports::kept(state)?;
        println!("==> a cluster");
        let cluster = match &arguments.kubeconfig {
            Some(path) => Cluster::existing(path, arguments.context.as_deref(), state)?,
            None => Cluster::on_this_machine(&state.join("cluster"), arguments.fake_nodes).await?,
        };
        println!("    {}", cluster.describe());
        println!("==> a Git server with the demo shop");
        let shop = Shop::start(state, ports.git)?;
        println!("    {}", shop.url());
        match shape.replicas {
            Some(each) => println!(
                "==> three NATS servers, {each} of each service behind a load balancer, an agent, and what ties them together"
            ),
            None => println!("==> kasbah up, an agent, and what ties them together"),
        }
        let first = !state.join("kasbah").exists();
        let kasbah = Kasbah::start(state, &ports, shape).await?;
        let narrator = match arguments.chaos {
            true => None,
            false => Some(Narrator::start(&kasbah, first, !arguments.no_color)?),
        };
        kasbah.introduce(&shop)?;
        let mut running = Self { narrator, kasbah, shop, cluster };
        running.write_settings(state)?;
        running.kasbah.start_agent(state, running.cluster.kubeconfig())?;
        Ok(running)
    }

    /// What another terminal needs to know, so that the lines that are suggested are ones that a person types.
    fn write_settings(&self, state: &Path) -> Result<()> {
        let folders = |program: &Path| program.parent().map(|folder| folder.display().to_string());
        let path: Vec<String> = [&self.kasbah.client().program, &self.cluster.kubectl()]
            .into_iter()
            .filter_map(|one| folders(one))
            .collect();
        let client = self.kasbah.client().variables.iter();
        let client: String =
            client.map(|(name, value)| format!("export {name}='{}'\n", value.display())).collect();
        let text = format!(
            "{client}export KUBECONFIG='{}'\nexport PATH='{}':\"$PATH\"\ncd '{}'\n",
            self.cluster.kubeconfig().display(),
            path.join(":"),
            self.shop.clone_path().display(),
        );
        std::fs::write(settings_file(state), text).context("cannot write the settings for other terminals")
    }

    /// What to try, the web page first.
    fn explain(&self, state: &Path) -> Result<()> {
        let link = self.kasbah.client().json(&["open", "--no-open"])?;
        let link = link.get("url").and_then(Value::as_str).context("no link to the web page")?;
        println!(
            "
    Open the web page. The link signs in once, within five minutes; `kasbah open` makes another.

      {link}

    In another terminal: `. {settings}`, which leads into a clone of the shop's repository and knows `kasbah` and
    `kubectl`. Then try, and watch it here:

      edit staging/storefront.yaml; git commit -am greeting && git push           it arrives
      git rm staging/reviews.yaml; git commit -m reviews && git push              it is pruned, nothing else is
      kubectl -n shop-staging scale deployment search --replicas 3                it is corrected
      write `replicas: many` in staging/stock.yaml; git commit -am stock && git push
                                                                                  the error names file and line
      kasbah kubeconfig --agent demo --file ../through.yaml; kubectl --kubeconfig ../through.yaml get pods -A
                                                                                  the same cluster, through the tunnel
      kasbah source list; kasbah source show demo/staging; kubectl get pods -A    where things stand
      kasbah env ls; kasbah env show staging; kasbah env tree staging             the environments, and their objects
      kasbah get --health degraded,progressing; kasbah tree deploy/search; kasbah why deploy/search; kasbah history deploy/search
                                                                                  what runs, how it is, why, and since when
      kasbah subscription create mine --webhook http://127.0.0.1:9000/ --types 'kasbah.sync.*'; kasbah subscription show mine
                                                                                  events for your own programs, signed and retried
      curl -N -H \"Authorization: Bearer $(kasbah token issue --name events --token-only)\" -H 'Accept: text/event-stream' http://{api}/api/events
                                                                                  the same as they come

    Logs: {logs}/*.log. Ctrl-C ends everything.
",
            settings = settings_file(state).display(),
            api = self.kasbah.api(),
            logs = state.display(),
        );
        Ok(())
    }

    /// Runs until a part ends by itself, which is an error that says which. Once the shop is up, says what runs.
    async fn watch(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
        let mut is_shown = false;
        loop {
            ticks.tick().await;
            self.kasbah.must_run()?;
            if let Some(narrator) = &mut self.narrator {
                narrator.must_run()?;
            }
            if !is_shown && let Some(text) = running::shown(self.kasbah.client()) {
                println!("\n==> the shop is up; what runs, in another terminal:\n{text}");
                is_shown = true;
            }
        }
    }

    fn stop(self) -> Result<()> {
        let Self { narrator, kasbah, shop, cluster } = self;
        drop(narrator);
        step("agent and server", || kasbah.stop())?;
        drop(shop);
        step("cluster", || cluster.stop())
    }
}
