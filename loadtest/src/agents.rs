//! Scenario `agents`: two gateways under many simulated agents with real handshakes.

pub mod bare;
mod fleet;
mod reports;
mod simulated;
mod stage;

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::figure::{Figure, Target, percentile};
use crate::log::events_per_second;
use crate::usage;
use bare::{Held, Holder};
pub use fleet::Fleet;
pub use simulated::Behaviour;
use stage::Stage;
pub use stage::{client_of, register, targets};

/// How long anything may take before something is wrong.
const LIMIT: Duration = Duration::from_secs(300);
/// How long agents are left alone before and while it is measured what they cost.
const SETTLE: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(60);
/// How long servers have for what was open.
const LET_GO: Duration = Duration::from_secs(1);
/// Of a hundred agents, so many are slow and so many stall, while others are told of a push.
const SLOW: usize = 1;
const STALLED: usize = 1;

type Runs = Vec<(f64, Option<f64>)>;

/// Who simulates how much.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct AgentLoad {
    /// Number of simulated agents.
    #[arg(long, default_value_t = 10_000)]
    agents: usize,
    /// Reports per agent and minute while their cost is measured; 0 for none.
    #[arg(long, default_value_t = 6)]
    reports_per_minute: u32,
}

/// Measures with such a crowd; with its idle minutes, or without.
pub async fn run(count: usize, crowd: AgentLoad, minutes: bool) -> anyhow::Result<Vec<Figure>> {
    let mut stage = Stage::start(crowd.agents).await?;
    let [mut storms, mut told, mut killed, mut dials] = [Runs::new(), Runs::new(), Runs::new(), Runs::new()];
    let mut figures = Vec::new();
    if let Some((bytes, cores)) = first(&mut stage, minutes).await.context("the first ones")? {
        figures.push(Figure::of("agents.resident-per-agent", "KB", Target::AtMost(60.0), vec![bytes]));
        figures.push(Figure::of("agents.idle-processor", "cores", Target::AtMost(0.15), vec![(cores, None)]));
        if let Some(interval) = Duration::from_secs(60).checked_div(crowd.reports_per_minute) {
            reports(&mut stage, interval).await.context("reports")?;
        }
    }
    for _ in 0..count {
        storms.push(storm(&mut stage).await.context("a storm")?);
        told.push((pushed(&mut stage).await.context("a push")?, None));
        let (moved, dialled) = gateway_killed(&mut stage).await.context("a gateway is killed")?;
        killed.push((moved, None));
        dials.push((dialled, None));
    }
    figures.extend([
        Figure::of("agents.storm", "s", Target::RatioAtMost(1.5), storms),
        Figure::of("agents.push-told-p99", "s", Target::AtMost(3.0), told),
        Figure::of("agents.gateway-killed", "s", Target::AtMost(15.0), killed),
        Figure::of("agents.dials-after-kill", "a moved agent", Target::AtMost(2.0), dials),
    ]);
    Ok(figures)
}

/// All of them for the first time. Idle for minutes: kilobytes for each beside those for each bare connection, and cores for all.
async fn first(stage: &mut Stage, minutes: bool) -> anyhow::Result<Option<((f64, Option<f64>), f64)>> {
    let count = stage.tokens().len();
    let bare = {
        let holders = holders(Held::Connections)?;
        let pids = holders.each_ref().map(Holder::pid);
        let before = usage::resident(&pids)?;
        let (_, _open) = bare::storm(&holders, count).await?;
        per_agent(usage::resident(&pids)?.saturating_sub(before), count)
    };
    let before = stage.resident()?;
    let fleet = Fleet::start(stage.targets()?, stage.tokens(), |_| Behaviour::Good);
    fleet.ready(count, LIMIT).await?;
    let begun = Instant::now();
    let commit = stage.commit()?;
    fleet.told(&commit, count, LIMIT).await?;
    println!("    all agents told what they are to have {:.1?} after they were ready", begun.elapsed());
    if !minutes {
        return Ok(None);
    }
    tokio::time::sleep(SETTLE).await;
    let cores = cores(stage).await?;
    let resident = per_agent(stage.resident()?.saturating_sub(before), count);
    println!("    an idle agent takes {resident:.1} KB beside {bare:.1} KB, all of them {cores:.3} cores");
    Ok(Some(((resident, Some(bare)), cores)))
}

/// Processor time of the gateways for as long as agents are left alone, in cores.
async fn cores(stage: &mut Stage) -> anyhow::Result<f64> {
    let before = stage.processor_time()?;
    tokio::time::sleep(IDLE).await;
    Ok(stage.processor_time()?.saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn per_agent(bytes: u64, count: usize) -> f64 {
    bytes as f64 / 1000.0 / count as f64
}

/// What it costs that all agents report something so often, and how soon that is durable.
async fn reports(stage: &mut Stage, interval: Duration) -> anyhow::Result<()> {
    let count = stage.tokens().len();
    let fleet = Fleet::start(stage.targets()?, stage.tokens(), |_| Behaviour::Good);
    fleet.ready(count, LIMIT).await?;
    fleet.told(&stage.commit()?, count, LIMIT).await?;
    fleet.report_every(interval);
    tokio::time::sleep(SETTLE).await;
    drop(fleet.take_durable());
    let begun = Instant::now();
    let cores = cores(stage).await?;
    let times = fleet.take_durable();
    let rate = events_per_second(times.len(), begun);
    let [half, most] = [50.0, 99.0].map(|part| percentile(times.clone(), part));
    println!(
        "    {count} agents that report every {interval:?}: {rate:.0} reports a second, durable after {half:.0} ms, 99 of 100 within \
         {most:.0} ms, the gateways' processor time {cores:.2} cores"
    );
    anyhow::ensure!(!times.is_empty(), "no report was durable within {IDLE:?}");
    Ok(())
}

/// Seconds until all agents of a fleet that lost its gateways have a tunnel again, beside the seconds until as many bare connections
/// are open.
async fn storm(stage: &mut Stage) -> anyhow::Result<(f64, Option<f64>)> {
    let count = stage.tokens().len();
    // First of all: gateways that still see to the agents before would slow down the bare connections.
    stage.restart_gateways().await?;
    let bare = {
        let holders = holders(Held::Connections)?;
        let spent = Spent::begin(&holders.each_ref().map(Holder::pid))?;
        let bare = bare::storm(&holders, count).await?.0.as_secs_f64();
        println!("    {count} bare connections are open after {bare:.2} s{}", spent.each(count)?);
        bare
    };
    {
        let holders = holders(Held::Tunnels)?;
        let targets: Vec<_> = holders.iter().map(Holder::target).collect();
        let pids = holders.each_ref().map(Holder::pid);
        let spent = Spent::begin(&pids)?;
        let (fleet, alone) = all_ready(targets.clone(), stage).await?;
        println!("    tunnels with nothing behind them after {alone:.2} s{}", spent.each(count)?);
        let kept = fleet.kept();
        drop(fleet);
        tokio::time::sleep(LET_GO).await;
        let spent = Spent::begin(&pids)?;
        let (_fleet, alone) = ready(Fleet::come_back(targets, stage.tokens(), kept), count).await?;
        println!("    the same of agents that come back after {alone:.2} s{}", spent.each(count)?);
    }
    let kept = {
        let spent = Spent::begin(&stage.gateways()?)?;
        let (fleet, all) = all_ready(stage.targets()?, stage).await?;
        println!("    tunnels of agents that have nothing yet after {all:.2} s{}", spent.each(count)?);
        first_told(stage, &fleet).await?;
        fleet.kept()
    };
    stage.restart_gateways().await?;
    let spent = Spent::begin(&stage.gateways()?)?;
    let (fleet, all) = ready(Fleet::come_back(stage.targets()?, stage.tokens(), kept), count).await?;
    println!("    tunnels of agents that come back after {all:.2} s{}", spent.each(count)?);
    anyhow::ensure!(fleet.told_anything() == 0, "agents were told what they have");
    Ok((all, Some(bare)))
}

/// Prints when agents that have just come in are told what they are to have.
async fn first_told(stage: &Stage, fleet: &Fleet) -> anyhow::Result<()> {
    let count = stage.tokens().len();
    let told = fleet.told(&stage.commit()?, count, LIMIT).await?;
    let times = told.iter().map(|at| at.saturating_duration_since(fleet.begun()).as_secs_f64()).collect();
    let [half, last] = [50.0, 100.0].map(|part| percentile(Vec::clone(&times), part));
    println!(
        "    half of them were told what they are to have after {half:.2} s, the last one after {last:.2} s"
    );
    Ok(())
}

/// Processor time of servers and of this process, which is their clients.
struct Spent {
    servers: Vec<u32>,
    before: [Duration; 2],
}

impl Spent {
    fn begin(servers: &[u32]) -> anyhow::Result<Self> {
        Ok(Self { servers: servers.to_vec(), before: Self::now(servers)? })
    }

    fn now(servers: &[u32]) -> anyhow::Result<[Duration; 2]> {
        Ok([usage::processor_time(servers)?, usage::processor_time(&[std::process::id()])?])
    }

    /// What one of so many cost since, in words.
    fn each(&self, count: usize) -> anyhow::Result<String> {
        let [servers, clients] = Self::now(&self.servers)?;
        let [servers_before, clients_before] = self.before;
        let each = |now: Duration, before| per_agent_micros(now.saturating_sub(before), count);
        let (servers, clients) = (each(servers, servers_before), each(clients, clients_before));
        Ok(format!("; processor time of each: {servers:.0} us at servers, {clients:.0} us at clients"))
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn per_agent_micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1_000_000.0 / count as f64
}

fn holders(held: Held) -> anyhow::Result<[Holder; 2]> {
    Ok([Holder::start(held)?, Holder::start(held)?])
}

/// Agents who come at once, and the seconds until all of them are ready.
async fn all_ready(targets: Vec<tunnel::agent::Target>, stage: &Stage) -> anyhow::Result<(Fleet, f64)> {
    ready(Fleet::start(targets, stage.tokens(), |_| Behaviour::Good), stage.tokens().len()).await
}

/// Seconds until so many are ready.
async fn ready(fleet: Fleet, count: usize) -> anyhow::Result<(Fleet, f64)> {
    let last = fleet.ready(count, LIMIT).await?.last().copied();
    let seconds = last.map_or(0.0, |last| last.duration_since(fleet.begun()).as_secs_f64());
    Ok((fleet, seconds))
}

/// Seconds from the end of a push until of a hundred agents ninety-nine were told, while some are slow and some never answer.
async fn pushed(stage: &mut Stage) -> anyhow::Result<f64> {
    let count = stage.tokens().len();
    let manner = |number: usize| match number % 100 {
        place if place < SLOW => Behaviour::Slow,
        place if place < SLOW + STALLED => Behaviour::Stalled,
        _ => Behaviour::Good,
    };
    let good = (0..count).filter(|number| manner(*number) == Behaviour::Good).count();
    let fleet = Fleet::start(stage.targets()?, stage.tokens(), manner);
    fleet.ready(count, LIMIT).await?;
    let before = stage.commit()?;
    fleet.told(&before, good, LIMIT).await?;
    let (commit, pushed) = stage.push()?;
    let told = fleet.told(&commit, good, LIMIT).await?;
    let times = told.into_iter().take(good).map(|at| at.saturating_duration_since(pushed).as_secs_f64());
    let times: Vec<f64> = times.collect();
    let [first, half] = [1.0, 50.0].map(|part| percentile(times.clone(), part));
    println!("    one of a hundred agents told {first:.2} s after a push, half of them after {half:.2} s");
    Ok(percentile(times, 99.0))
}

/// Seconds from the end of the first gateway until half of the agents, all of which it had, are with the second; and how often
/// each of them dialled for that.
async fn gateway_killed(stage: &mut Stage) -> anyhow::Result<(f64, f64)> {
    stage.restart_gateways().await?;
    let moved = stage.tokens().len() / 2;
    let tokens: Vec<_> = stage.tokens().iter().take(moved).cloned().collect();
    let targets = stage.targets()?;
    // Each dials the first one first: the second turn is the other gateway's.
    let fleet = Fleet::start_at_first(targets, &tokens);
    fleet.ready(moved, LIMIT).await?;
    tokio::time::sleep(SETTLE).await;
    let before = fleet.dials();
    let killed = Instant::now();
    stage.kill_gateway()?;
    let last = fleet.back(killed, moved, LIMIT).await?;
    let dials = fleet.dials() - before;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let dials = dials as f64 / moved as f64;
    stage.restart_gateways().await?;
    Ok((last.duration_since(killed).as_secs_f64(), dials))
}
