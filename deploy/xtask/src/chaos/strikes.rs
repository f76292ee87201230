//! What is done to the processes, and undone after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use testkit::{Dice, Process, Proxy};
use tokio::time::{Instant, sleep};

use super::scene::{LIMIT, Scene};

const TICK: Duration = Duration::from_millis(50);
/// At most so many processes give up at their start in a minute before that is an error. Hardly one has a reason: it waits 30 s for the log, what
/// is done to NATS lasts half of that, and of three servers one can always be reached. But one that is frozen meanwhile waits no longer.
const GIVE_UP: usize = 3;

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Strike {
    Kill(String),
    Stop(String),
    Freeze(String),
    KillAgent(String),
    FreezeAgent(String),
    CutTunnels,
    SilenceTunnels,
    DelayTunnels,
    KillNats(usize),
    FreezeNats(usize),
    IsolateNats(usize),
    CutWays(usize),
    SilenceWays(usize),
    DelayWays(usize),
}

impl Strike {
    /// One of them.
    fn rolled(scene: &Scene, dice: &mut Dice) -> Option<Self> {
        let nats = usize::try_from(dice.roll(scene.nats.servers.len() as u64)).unwrap_or(0);
        let names = scene.replicas.names();
        let agents: Vec<String> = scene.agents.keys().cloned().collect();
        Some(match dice.roll(20) {
            0..=3 => Self::Kill(dice.pick(&names)?.clone()),
            4 | 5 => Self::Stop(dice.pick(&names)?.clone()),
            6..=8 => Self::Freeze(dice.pick(&names)?.clone()),
            9 => Self::KillAgent(dice.pick(&agents)?.clone()),
            10 => Self::CutTunnels,
            11 => Self::SilenceTunnels,
            12 => Self::DelayTunnels,
            13 => Self::KillNats(nats),
            14 => Self::FreezeNats(nats),
            15 => Self::IsolateNats(nats),
            16 => Self::FreezeAgent(dice.pick(&agents)?.clone()),
            17 => Self::CutWays(nats),
            18 => Self::SilenceWays(nats),
            _ => Self::DelayWays(nats),
        })
    }

    /// Its name, without whom it strikes.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Kill(_) => "services killed",
            Self::Stop(_) => "services stopped",
            Self::Freeze(_) => "services frozen",
            Self::KillAgent(_) => "agents killed",
            Self::FreezeAgent(_) => "agents frozen",
            Self::CutTunnels => "tunnels cut",
            Self::SilenceTunnels => "tunnels silent",
            Self::DelayTunnels => "tunnels delayed",
            Self::KillNats(_) => "nats-servers killed",
            Self::FreezeNats(_) => "nats-servers frozen",
            Self::IsolateNats(_) => "nats-servers isolated",
            Self::CutWays(_) => "ways to nats cut",
            Self::SilenceWays(_) => "ways to nats silent",
            Self::DelayWays(_) => "ways to nats delayed",
        }
    }

    /// What may be struck once at a time: one replica of each service, one of the three NATS servers, the
    /// ways to one of them, an agent, the tunnels.
    fn target(&self) -> String {
        match self {
            Self::Kill(name) | Self::Stop(name) | Self::Freeze(name) => {
                name.trim_end_matches(|end: char| end.is_ascii_digit()).to_owned()
            }
            Self::KillAgent(name) | Self::FreezeAgent(name) => name.clone(),
            Self::CutTunnels | Self::SilenceTunnels | Self::DelayTunnels => "tunnels".to_owned(),
            Self::KillNats(_) | Self::FreezeNats(_) | Self::IsolateNats(_) => "nats".to_owned(),
            Self::CutWays(_) | Self::SilenceWays(_) | Self::DelayWays(_) => "ways to nats".to_owned(),
        }
    }

    /// For how long: 1 to 30 s for what is frozen, less for what takes NATS away.
    fn lasts(&self, dice: &mut Dice) -> Duration {
        let most = match self {
            Self::Freeze(_) | Self::FreezeAgent(_) => 29_000,
            Self::SilenceTunnels | Self::SilenceWays(_) | Self::IsolateNats(_) | Self::FreezeNats(_) => {
                14_000
            }
            _ => 4_000,
        };
        Duration::from_millis(1_000 + dice.roll(most))
    }

    /// The one that it is done to.
    fn proxy<'a>(&self, scene: &'a Scene) -> Result<&'a Proxy> {
        match self {
            Self::CutWays(number) | Self::SilenceWays(number) | Self::DelayWays(number) => {
                scene.ways.get(*number).context("no such server")
            }
            _ => Ok(&scene.tunnels),
        }
    }

    fn strike(&self, scene: &mut Scene, dice: &mut Dice) -> Result<()> {
        match self {
            Self::Kill(name) => scene.replicas.kill(name),
            Self::Stop(name) => scene.replicas.stop(name),
            Self::Freeze(name) => scene.replicas.signal(name, Signal::STOP),
            Self::KillAgent(name) => {
                scene.agents.get_mut(name).context("no such agent")?.process = None;
                Ok(())
            }
            Self::FreezeAgent(name) => signal_agent(scene, name, Signal::STOP),
            Self::CutTunnels | Self::CutWays(_) => self.proxy(scene).map(Proxy::cut),
            Self::SilenceTunnels | Self::SilenceWays(_) => self.proxy(scene).map(|proxy| proxy.silence(true)),
            Self::DelayTunnels | Self::DelayWays(_) => {
                let delay = Duration::from_millis(50 + dice.roll(450));
                self.proxy(scene).map(|proxy| proxy.delay(delay))
            }
            Self::KillNats(number) => {
                scene.nats.servers.get_mut(*number).context("no such server")?.kill();
                Ok(())
            }
            Self::FreezeNats(number) => signal_nats(scene, *number, Signal::STOP),
            Self::IsolateNats(number) => {
                scene.nats.isolate(*number, true);
                Ok(())
            }
        }
    }

    async fn undo(&self, scene: &mut Scene) -> Result<()> {
        match self {
            Self::Kill(name) | Self::Stop(name) => scene.replicas.spawn_again(name),
            Self::Freeze(name) => scene.replicas.signal(name, Signal::CONT),
            Self::KillAgent(name) => scene.start_agent(name),
            Self::FreezeAgent(name) => signal_agent(scene, name, Signal::CONT),
            Self::CutTunnels | Self::CutWays(_) => Ok(()),
            Self::SilenceTunnels | Self::SilenceWays(_) => {
                self.proxy(scene).map(|proxy| proxy.silence(false))
            }
            Self::DelayTunnels | Self::DelayWays(_) => {
                self.proxy(scene).map(|proxy| proxy.delay(Duration::ZERO))
            }
            Self::KillNats(number) => {
                scene.nats.servers.get_mut(*number).context("no such server")?.start_again().await
            }
            Self::FreezeNats(number) => signal_nats(scene, *number, Signal::CONT),
            Self::IsolateNats(number) => {
                scene.nats.isolate(*number, false);
                Ok(())
            }
        }
    }
}

fn signal_nats(scene: &mut Scene, number: usize, signal: Signal) -> Result<()> {
    let server = scene.nats.servers.get_mut(number).context("no such server")?;
    server.process().context("the server does not run")?.signal(signal);
    Ok(())
}

fn signal_agent(scene: &mut Scene, name: &str, signal: Signal) -> Result<()> {
    let agent = scene.agents.get_mut(name).context("no such agent")?;
    agent.process.as_mut().context("the agent does not run")?.signal(signal);
    Ok(())
}

/// Agents never end by themselves: they dial until somebody answers.
fn agents_run(scene: &mut Scene) -> Result<()> {
    let mut running = scene.agents.values_mut().filter_map(|agent| agent.process.as_mut());
    running.try_for_each(Process::must_run)
}

/// The strikes of a run.
#[derive(Debug, Default)]
pub struct Strikes {
    lasting: Vec<(Instant, Strike)>,
    counts: BTreeMap<&'static str, usize>,
    gave_up: Vec<String>,
}

impl fmt::Display for Strikes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(f, "{}; {} processes gave up at their start", counts.join(", "), self.gave_up.len())?;
        self.gave_up.iter().try_for_each(|gave_up| write!(f, "\n      {gave_up}"))
    }
}

impl Strikes {
    /// Strikes for so long.
    pub async fn run(&mut self, scene: &mut Scene, dice: &mut Dice, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut next = Instant::now();
        while Instant::now() < end {
            sleep(TICK).await;
            self.undo_due(scene, Instant::now()).await?;
            self.gave_up.extend(scene.replicas.supervise()?);
            agents_run(scene)?;
            if Instant::now() >= next {
                next = Instant::now() + Duration::from_millis(300 + dice.roll(2_200));
                self.strike(scene, dice)?;
            }
        }
        let most = GIVE_UP * (1 + usize::try_from(time.as_secs() / 60)?);
        ensure!(self.gave_up.len() <= most, "processes give up at their start all the time: {self}");
        Ok(())
    }

    fn strike(&mut self, scene: &mut Scene, dice: &mut Dice) -> Result<()> {
        let Some(strike) = Strike::rolled(scene, dice) else { return Ok(()) };
        let struck: BTreeSet<String> = self.lasting.iter().map(|(_, strike)| strike.target()).collect();
        if struck.contains(&strike.target()) {
            return Ok(());
        }
        strike.strike(scene, dice)?;
        *self.counts.entry(strike.kind()).or_default() += 1;
        self.lasting.push((Instant::now() + strike.lasts(dice), strike));
        Ok(())
    }

    async fn undo_due(&mut self, scene: &mut Scene, now: Instant) -> Result<()> {
        let lasting = std::mem::take(&mut self.lasting);
        let (due, lasting) = lasting.into_iter().partition(|(until, _)| *until <= now);
        self.lasting = lasting;
        let due: Vec<(Instant, Strike)> = due;
        for (_, strike) in due {
            strike.undo(scene).await?;
        }
        Ok(())
    }

    /// Undoes what lasts, and waits until everything is ready.
    pub async fn undo_all(&mut self, scene: &mut Scene) -> Result<()> {
        for (_, strike) in std::mem::take(&mut self.lasting) {
            strike.undo(scene).await?;
        }
        let end = Instant::now() + LIMIT;
        while let Err(behind) = scene.nats.is_current() {
            ensure!(Instant::now() < end, "nats does not come back: {behind:#}");
            sleep(TICK).await;
        }
        scene.replicas.supervise()?;
        for name in scene.replicas.names() {
            // Who began to wait for NATS while it was struck may give up only now, and is started again once more.
            if let Err(error) = scene.replicas.ready(&name).await {
                println!("    {name} is waited for once more: {error:#}");
                scene.replicas.supervise()?;
                scene.replicas.ready(&name).await?;
            }
        }
        agents_run(scene)
    }
}
