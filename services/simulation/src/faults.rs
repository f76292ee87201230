//! What goes wrong, one thing after another.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::agent::PORT;
use crate::dice::Dice;
use crate::executor::NodeId;
use crate::log::SERVERS;
use crate::receivers::is_port;
use crate::scene::{CLUSTERS_PORT, Scene};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// A replica of a service dies.
    Crash = "crash",
    /// A replica dies with its disk.
    MachineLost = "machine lost",
    /// A process is asked to stop.
    Stop = "stop",
    /// An instance of an agent dies.
    AgentCrash = "agent crash",
    /// Another server leads a stream of the log.
    LeaderChange = "leader change",
    /// The same, and the old leader does not know it yet.
    LeaderParted = "leader parted",
    /// A server of the log stands still.
    ReplicaBehind = "log server stopped",
    /// A server of the log begins anew.
    ReplicaLost = "log server's disk lost",
    /// The log stores nothing for a while.
    LogStall = "log stall",
    /// A message to the log is lost.
    LostRequest = "lost request",
    /// A message to the log arrives after it was sent again.
    LateRequest = "late request",
    /// An acknowledgement is lost.
    LostAcknowledgement = "lost acknowledgement",
    /// A copy for those who follow is lost.
    LostCopy = "lost copy",
    /// A copy for those who follow comes twice.
    DoubledCopy = "doubled copy",
    /// The time in which the log knows ids passes.
    WindowPasses = "duplicate window passes",
    /// A replica is cut off from the log.
    LogCut = "cut off from the log",
    /// A replica is cut off from the bus.
    BusCut = "cut off from the bus",
    /// What a replica says and hears on the bus is late.
    BusHeld = "bus delayed",
    /// A process stands still.
    Paused = "process stands still",
    /// A process is slow.
    Slow = "slow peer",
    /// A wall clock goes ahead.
    ClockForward = "clock forward",
    /// A wall clock goes back.
    ClockBack = "clock back",
    /// Repositories cannot be reached.
    GitErrors = "git errors",
    /// The API servers of clusters answer with errors.
    ApiErrors = "API server errors",
    /// What was written is there, and whoever wrote it is not told.
    ApiAnswerLost = "API server's answer lost",
    /// Answers of API servers take long.
    ApiSlow = "API server slow",
    /// Watches end.
    WatchesCut = "watches cut",
    /// A resource version is too old.
    VersionsForgotten = "resource versions forgotten",
    /// The controllers of a cluster do nothing for a while.
    ControllersStill = "controllers stand still",
    /// A Deployment loses pods for a while.
    PodsLost = "pods lost",
    /// An API server closes its connections in order.
    ApiServerLeaves = "API server leaves",
    /// Connections of agents to API servers break.
    ApiConnectionCut = "API server's connection cut",
    /// Connections of people to gateways break.
    VisitorCut = "visitor cut off",
    /// Tunnels break.
    TunnelCut = "tunnel cut",
    /// Nothing moves in tunnels for a while.
    TunnelStalled = "tunnel stalled",
    /// A receiver of webhooks takes no connections for a while.
    ReceiverAway = "receiver away",
    /// A receiver answers with errors for a while.
    ReceiverErrors = "receiver errors",
    /// A receiver takes messages for a while, and does not answer.
    ReceiverSilent = "receiver silent",
    /// A receiver has a message, and whoever sent it is not told.
    ReceiverAnswerLost = "receiver's answer lost",
    /// Connections to receivers break.
    ReceiverCut = "receiver cut off",
}

/// Faults of one run.
pub struct Faults {
    dice: Dice,
    fired: BTreeMap<&'static str, u64>,
    /// How often each kind was begun.
    begun: BTreeMap<&'static str, u64>,
    next: Duration,
    restarts: Vec<(Duration, NodeId)>,
}

impl Faults {
    /// Those of a run.
    #[must_use]
    pub const fn new(dice: Dice) -> Self {
        Self {
            dice,
            fired: BTreeMap::new(),
            begun: BTreeMap::new(),
            next: Duration::ZERO,
            restarts: Vec::new(),
        }
    }

    /// How often each kind took effect.
    #[must_use]
    pub fn fired(&self, scene: &Scene) -> BTreeMap<&'static str, u64> {
        let mut fired = self.fired.clone();
        for (name, count) in scene.log.fired() {
            *fired.entry(name).or_default() += count;
        }
        if scene.forge.failed() > 0 {
            fired.insert(Kind::GitErrors.name(), scene.forge.failed());
        }
        for (kind, count) in scene.clusters.iter().flat_map(|cluster| cluster.server.fired()) {
            *fired.entry(kind.name()).or_default() += count;
        }
        for (kind, count) in scene.receivers.fired() {
            *fired.entry(kind.name()).or_default() += count;
        }
        fired
    }

    /// How many faults there were that took effect: an outage is one, however many meet it.
    #[must_use]
    pub fn count(&self, scene: &Scene) -> u64 {
        let fired = self.fired(scene);
        let of = |(name, begun): (&&'static str, &u64)| fired.get(*name).map_or(0, |fired| *fired.min(begun));
        self.begun.iter().map(of).sum()
    }

    /// A process is to run again soon.
    pub fn start_later(&mut self, scene: &Scene, node: NodeId) {
        let pause = Duration::from_millis(self.dice.between(200, 4_000));
        self.restarts.push((scene.executor.now() + pause, node));
    }

    /// Does what is due.
    pub fn go_on(&mut self, scene: &mut Scene) {
        self.restart(scene);
        let now = scene.executor.now();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(self.dice.between(30, 700));
        let kinds = Kind::ALL;
        let Some(kind) = self.dice.one_of(kinds).copied() else { return };
        *self.begun.entry(kind.name()).or_default() += 1;
        if self.happen(kind, scene) {
            *self.fired.entry(kind.name()).or_default() += 1;
        }
    }

    /// Starts what is to run again.
    pub fn restart(&mut self, scene: &mut Scene) {
        let now = scene.executor.now();
        let (due, later): (Vec<_>, Vec<_>) = self.restarts.drain(..).partition(|(at, _)| *at <= now);
        self.restarts = later;
        for (_, node) in due {
            scene.start(node);
        }
    }

    fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.dice.between(low, high))
    }

    fn service(&mut self, scene: &Scene) -> Option<NodeId> {
        let running = scene.nodes(|service, runs| service.is_some() && runs);
        self.dice.one_of(&running).copied()
    }

    fn agent(&mut self, scene: &Scene) -> Option<NodeId> {
        let running = scene.nodes(|service, runs| service.is_none() && runs);
        self.dice.one_of(&running).copied()
    }

    fn anybody(&mut self, scene: &Scene) -> Option<NodeId> {
        let running = scene.nodes(|_, runs| runs);
        self.dice.one_of(&running).copied()
    }

    fn kill(&mut self, scene: &mut Scene, node: Option<NodeId>, with_disk: bool) -> bool {
        let Some(node) = node else { return false };
        if with_disk {
            scene.lose_disk(node);
        }
        let killed = scene.kill(node);
        self.start_later(scene, node);
        killed
    }

    /// Lets it happen; true if it took effect. What is counted where it takes effect is not counted here.
    fn happen(&mut self, kind: Kind, scene: &mut Scene) -> bool {
        match kind {
            Kind::Crash | Kind::MachineLost => {
                let node = self.service(scene);
                self.kill(scene, node, kind == Kind::MachineLost)
            }
            Kind::AgentCrash => {
                let node = self.agent(scene);
                self.kill(scene, node, false)
            }
            Kind::Stop => self.anybody(scene).is_some_and(|node| scene.stop(node)),
            Kind::LostRequest
            | Kind::LateRequest
            | Kind::LostAcknowledgement
            | Kind::LostCopy
            | Kind::DoubledCopy => {
                scene.log.will(kind);
                false
            }
            Kind::LeaderChange
            | Kind::LeaderParted
            | Kind::ReplicaBehind
            | Kind::ReplicaLost
            | Kind::LogStall
            | Kind::WindowPasses => self.happen_to_log(kind, scene),
            Kind::LogCut | Kind::BusCut | Kind::BusHeld => self.happen_to_connection(kind, scene),
            Kind::Paused | Kind::Slow | Kind::ClockForward | Kind::ClockBack => {
                self.happen_to_process(kind, scene)
            }
            Kind::GitErrors => {
                scene.forge.fail(self.millis(200, 8_000));
                false
            }
            Kind::ApiErrors
            | Kind::ApiAnswerLost
            | Kind::ApiSlow
            | Kind::WatchesCut
            | Kind::VersionsForgotten
            | Kind::ControllersStill
            | Kind::PodsLost
            | Kind::ApiServerLeaves => self.happen_to_cluster(kind, scene),
            Kind::ApiConnectionCut => scene.internet.cut(|port| port < PORT) > 0,
            Kind::VisitorCut => scene.internet.cut(|port| port == CLUSTERS_PORT) > 0,
            Kind::TunnelCut => scene.internet.cut(|port| port == PORT) > 0,
            Kind::ReceiverAway | Kind::ReceiverErrors | Kind::ReceiverSilent => {
                scene.receivers.trouble(kind, self.millis(500, 45_000));
                false
            }
            Kind::ReceiverAnswerLost => {
                scene.receivers.lose_answers(self.dice.between(1, 3));
                false
            }
            Kind::ReceiverCut => scene.internet.cut(is_port) > 0,
            Kind::TunnelStalled => scene.internet.stall(self.millis(100, 25_000)) > 0,
        }
    }

    fn happen_to_log(&mut self, kind: Kind, scene: &Scene) -> bool {
        let log = &scene.log;
        match kind {
            Kind::LeaderChange => log.change_leader(false),
            Kind::LeaderParted => log.change_leader(true),
            Kind::ReplicaBehind => log.replica_falls_behind(self.millis(50, 4_000), false),
            Kind::ReplicaLost => log.replica_falls_behind(self.millis(50, 2_000), true),
            Kind::LogStall => log.stall(self.millis(50, 7_000)),
            _ => return log.window_passes() > 0,
        }
        true
    }

    fn happen_to_cluster(&mut self, kind: Kind, scene: &Scene) -> bool {
        // Now and then longer than a Lease lasts.
        let time =
            if self.dice.permille(200) { self.millis(12_000, 25_000) } else { self.millis(100, 5_000) };
        let Some(cluster) = self.dice.one_of(&scene.clusters) else { return false };
        if kind == Kind::ApiSlow {
            cluster.disturb();
        }
        match kind {
            Kind::ApiErrors => cluster.server.fail(time),
            Kind::ApiAnswerLost => cluster.server.lose_answers(self.dice.between(1, 3)),
            Kind::ApiSlow => cluster.server.slow_down(time),
            Kind::WatchesCut => cluster.cut_watches(false),
            Kind::ApiServerLeaves => cluster.front.leave(),
            Kind::ControllersStill => cluster.controllers_stand_still(time * 2),
            Kind::PodsLost => return cluster.lose_pods(time),
            _ => cluster.cut_watches(true),
        }
        false
    }

    fn happen_to_connection(&mut self, kind: Kind, scene: &Scene) -> bool {
        let time = self.millis(20, 6_000);
        let Some(life) = self.service(scene).and_then(|node| scene.life(node)) else { return false };
        match kind {
            Kind::LogCut => scene.log.cut(life, time),
            Kind::BusCut => scene.nats.cut(life, time),
            _ => scene.nats.hold(life, time),
        }
    }

    fn happen_to_process(&mut self, kind: Kind, scene: &Scene) -> bool {
        let executor = &scene.executor;
        let moves = matches!(kind, Kind::ClockForward | Kind::ClockBack);
        let servers = moves && self.dice.permille(200);
        let Some(node) = (if servers { Some(SERVERS.node) } else { self.anybody(scene) }) else {
            return false;
        };
        if !moves {
            scene.clusters.iter().for_each(crate::cluster::Cluster::disturb);
        }
        let millis = i64::try_from(self.dice.between(10, 120_000)).unwrap_or(0);
        match kind {
            Kind::Paused => executor.pause(node, self.millis(20, 15_000)),
            Kind::Slow => executor.slow(node, self.dice.between(200, 20_000)),
            Kind::ClockForward => executor.move_clock(node, millis),
            _ => executor.move_clock(node, -millis),
        }
        true
    }
}
