//! `cargo xtask demo`: the main job in a minute, with nothing faked on the way.
//!
//! A cluster (a real control plane on this machine, or one that exists), a Git server with a demo shop, `kasbah up`, an
//! agent. Everything lies in one folder; Ctrl-C ends all of it, the next start goes on where it was.

mod cluster;
mod kasbah;
mod narrate;
mod shop;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::report::{self, spent, step};
use crate::testbed;
use cluster::Cluster;
use kasbah::Kasbah;
use narrate::Narrator;
use shop::Shop;

#[derive(clap::Args)]
pub struct Arguments {
    /// Take a cluster that exists, instead of starting one on this machine.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The context in that kubeconfig; its current one when not given.
    #[arg(long, requires = "kubeconfig")]
    context: Option<String>,
    /// Where everything lies.
    #[arg(long, default_value = ".kasbah/demo")]
    state: PathBuf,
    /// Fake nodes although a real one is possible.
    #[arg(long)]
    fake_nodes: bool,
    /// No colours.
    #[arg(long)]
    no_color: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let state = report::root()?.join(&arguments.state);
    std::fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
    let lock = std::fs::File::create(state.join("lock"))?;
    lock.try_lock().with_context(|| format!("another demo runs in {}", state.display()))?;
    step("Kasbah, built (the first time takes some minutes)", kasbah::build)?;
    if arguments.kubeconfig.is_none() {
        step("the control plane's programs (the first time takes about ten minutes)", testbed::build)?;
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let mut running = tokio::select! {
            started = Running::start(arguments, &state) => started?,
            _ = &mut interrupted => {
                println!("\nended before it was up");
                return Ok(());
            }
        };
        println!("==> up after {}", spent(start.elapsed()));
        running.explain(&state);
        let outcome = tokio::select! {
            ended = running.watch() => ended,
            _ = &mut interrupted => Ok(()),
        };
        println!("\n==> ending; `cargo xtask demo` goes on from here");
        running.stop()?;
        outcome
    })
}

/// Everything that runs. Fields drop in this order.
struct Running {
    narrator: Narrator,
    kasbah: Kasbah,
    shop: Shop,
    cluster: Cluster,
}

impl Running {
    async fn start(arguments: &Arguments, state: &std::path::Path) -> Result<Self> {
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
        println!("==> kasbah up, an agent, and what ties them together");
        let mut kasbah = Kasbah::start(state, &ports).await?;
        kasbah.introduce(&shop)?;
        kasbah.start_agent(state, cluster.kubeconfig())?;
        let narrator = Narrator::start(&kasbah, !arguments.no_color)?;
        Ok(Self { narrator, kasbah, shop, cluster })
    }

    fn explain(&self, state: &std::path::Path) {
        let clone = self.shop.clone_path();
        let kubectl = self.cluster.kubectl();
        println!(
            "
    The shop's repository is cloned in {clone}
    Kasbah's command line: {kasbah}
    kubectl for the cluster: {kubectl}
    All logs: {state}

    Try, in another terminal:
      edit staging/storefront.yaml, then `git commit -am greeting && git push`   it arrives
      `git rm staging/reviews.yaml && git commit -m reviews && git push`         it is pruned, nothing else is
      {kubectl} -n shop-staging scale deployment search --replicas 3             it is corrected
      break staging/stock.yaml (write `replicas: many`), commit, push            the error names file and line

    Ctrl-C ends everything.
",
            clone = clone.display(),
            kasbah = self.kasbah.command_line(),
            state = state.display(),
        );
    }

    /// Runs until a part ends by itself, which is an error that says which.
    async fn watch(&mut self) -> Result<()> {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            ticks.tick().await;
            self.kasbah.must_run()?;
            self.narrator.must_run()?;
        }
    }

    fn stop(self) -> Result<()> {
        let Self { narrator, kasbah, shop, cluster } = self;
        drop(narrator);
        kasbah.stop()?;
        drop(shop);
        cluster.stop()
    }
}
