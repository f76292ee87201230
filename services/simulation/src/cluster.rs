//! A cluster: its API server, its controllers, and what must hold of each write to it.

mod controllers;
mod reported;
mod rollout;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use events::{AgentId, InstanceId};
use http::uri::Authority;
use parking_lot::Mutex;
use serde_json::Value;
use world::World;

use crate::access::Access;
use crate::api_server::{ApiServer, Front, Written};
use crate::executor::{Executor, Life};
use crate::forge::Forge;
use crate::log::LogServers;
use crate::people::{SharedPushes, source_of};
use controllers::Controllers;
use reported::Known;
pub(crate) use reported::Reported;
use truth::SharedTruth;

/// Where everything is.
const NAMESPACE: &str = "default";
/// What nobody here made.
pub(crate) const FOREIGN: &str = "somebody-elses";
/// How the names of what people write begin.
pub(crate) const OF_PEOPLE: &str = "people-";
/// What an object of an agent's source carries.
const OWNER_MARKS: [&str; 2] =
    ["/metadata/labels/kasbah.dev~1source", "/metadata/annotations/kasbah.dev~1owner"];

/// Which process each instance of an agent is.
type SharedInstances = Arc<Mutex<BTreeMap<InstanceId, Life>>>;

/// What was written so far.
struct Ledger {
    log: LogServers,
    pushes: SharedPushes,
    instances: SharedInstances,
    newest_epoch: u64,
    /// How far each source has come, as its commit's place in the history.
    reached: BTreeMap<u64, u64>,
    /// What people wrote: values by the name of the object.
    of_people: BTreeSet<(String, u64)>,
    violations: Vec<String>,
}

impl Ledger {
    fn note(&mut self, written: &Written<'_>) {
        if let Err(violation) = self.judge(written) {
            self.violations.push(violation);
        }
    }

    fn judge(&mut self, written: &Written<'_>) -> Result<(), String> {
        let name = written.name;
        let Some(life) = written.by else { return self.judge_people(written) };
        let instance =
            self.instances.lock().iter().find(|(_, known)| **known == life).map(|(instance, _)| *instance);
        let instance = instance.ok_or("somebody who is no agent writes")?;
        let epoch = self.log.audit(|audit| audit.epoch_of(instance));
        let epoch = epoch.ok_or_else(|| format!("{name} is written by an instance that was never named"))?;
        let newest = self.newest_epoch;
        if epoch < newest {
            return Err(format!("{name} is written in epoch {epoch}, after one of {newest}"));
        }
        self.newest_epoch = epoch;
        if written.before.is_some_and(|before| !is_owned(before)) {
            return Err(format!("{name} is somebody else's and is written"));
        }
        match written.after {
            Some(after) => self.comes_to(name, value_of(after)),
            None if self.pushes.lock().may_be_deleted(name) => Ok(()),
            None => Err(format!("{name} is deleted and never left its source")),
        }
    }

    /// What people do through the agent is not the agent's doing.
    fn judge_people(&mut self, written: &Written<'_>) -> Result<(), String> {
        let name = written.name;
        let value = written.after.and_then(value_of).filter(|_| name.starts_with(OF_PEOPLE));
        let value = value.ok_or_else(|| format!("{name} is no object of people, and one wrote it"))?;
        self.of_people.insert((name.to_owned(), value));
        Ok(())
    }

    /// Nothing older is applied after something newer.
    fn comes_to(&mut self, name: &str, value: Option<u64>) -> Result<(), String> {
        let source = source_of(name).ok_or_else(|| format!("{name} is in no source"))?;
        let span = value.and_then(|value| self.pushes.lock().span(name, value));
        let span = span.ok_or_else(|| format!("{name} never was to be {value:?}"))?;
        let reached = self.reached.entry(source).or_default();
        if span.end <= *reached {
            let end = span.end;
            return Err(format!("source {source} goes back before commit {end}, from {reached}"));
        }
        *reached = (*reached).max(span.start);
        Ok(())
    }
}

/// A cluster; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) server: ApiServer,
    /// Where people's requests come in.
    pub(crate) front: Front,
    /// The port of that.
    pub(crate) port: u16,
    ledger: Arc<Mutex<Ledger>>,
    instances: SharedInstances,
    controllers: Controllers,
    untouched: Vec<Value>,
}

impl Cluster {
    /// The cluster of an agent, in which somebody else has an object already. Its API server is a process of `world`.
    pub(crate) fn new(
        executor: &Executor,
        (log, forge, access): (&LogServers, &Forge, &Access),
        (agent, pushes): (AgentId, &SharedPushes),
        (world, port): (World, u16),
    ) -> Self {
        let (instances, truth) = (SharedInstances::default(), SharedTruth::default());
        let (pushes, forge) = (Arc::clone(pushes), forge.clone());
        let known = Known {
            forge,
            truth: Arc::clone(&truth),
            pushes: Arc::clone(&pushes),
            instances: Arc::clone(&instances),
        };
        log.audit(|audit| audit.know_cluster(agent, Reported::new(executor, agent, known)));
        let controllers = Controllers::new(executor, &truth);
        let ledger = Arc::new(Mutex::new(Ledger {
            log: log.clone(),
            pushes,
            instances: Arc::clone(&instances),
            newest_epoch: 0,
            reached: BTreeMap::new(),
            of_people: BTreeSet::new(),
            violations: Vec::new(),
        }));
        let (noting, rolling) = (Arc::clone(&ledger), controllers.clone());
        let warden = move |server: &ApiServer, written: &Written<'_>| {
            noting.lock().note(written);
            if written.kind == "Deployment" {
                rolling.saw(server, written);
            }
        };
        let server = ApiServer::new(executor, Box::new(warden));
        server.add_config_map(NAMESPACE, FOREIGN);
        let untouched = server.contents();
        let front = Front::new(world, server.clone(), access.clone(), agent);
        front.listen(port);
        Self { server, front, port, ledger, instances, controllers, untouched }
    }

    /// Whether people's write of this value took place.
    pub(crate) fn was_written(&self, name: &str, value: u64) -> bool {
        self.ledger.lock().of_people.contains(&(name.to_owned(), value))
    }

    /// How its agent names it.
    pub(crate) fn authority(&self) -> Authority {
        let named = format!("api-server:{}", self.port).parse();
        named.unwrap_or_else(|_| Authority::from_static("api-server"))
    }

    /// Whether it speaks HTTP/2 where it is asked to; some do not.
    pub(crate) const fn speaks_http2(&self) -> bool {
        self.port.is_multiple_of(2)
    }

    /// A process is this instance of the cluster's agent.
    pub fn knows(&self, life: Life, instance: InstanceId) {
        self.instances.lock().insert(instance, life);
    }

    /// Its agent's watches end, and versions may be too old for others.
    pub(crate) fn cut_watches(&self, forgotten: bool) {
        if forgotten {
            self.server.forget_versions();
        } else {
            self.server.cut_watches();
        }
    }

    /// Its agent does not see, or does not read, what happens for a while.
    pub(crate) fn disturb(&self) {
        self.controllers.sight_breaks();
    }

    /// Its controllers do nothing for a while.
    pub(crate) fn controllers_stand_still(&self, time: Duration) {
        self.controllers.stand_still(time);
    }

    /// A Deployment loses pods for a while; whether there was one that had any.
    pub(crate) fn lose_pods(&self, time: Duration) -> bool {
        self.controllers.lose_pods(&self.server, time)
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        self.server.heal();
        self.controllers.go_on();
    }

    /// The first thing that should not have happened.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        let lacking = self.server.lacking();
        self.ledger.lock().violations.first().cloned().or(lacking)
    }

    /// How it differs from what is wanted: the value of each object by its name.
    #[must_use]
    pub fn difference(&self, wanted: &BTreeMap<String, u64>) -> Option<String> {
        let objects = self.server.contents().into_iter().filter(|object| !is_of_people(object));
        let (owned, others): (Vec<Value>, Vec<Value>) = objects.partition(is_owned);
        if others != self.untouched {
            return Some("what is somebody else's was touched".to_owned());
        }
        let there: BTreeMap<String, u64> = owned
            .iter()
            .map(|object| (name_of(object).to_owned(), value_of(object).unwrap_or(u64::MAX)))
            .collect();
        (there != *wanted).then(|| format!("{there:?} is there, not {wanted:?}"))
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn is_of_people(object: &Value) -> bool {
    name_of(object).starts_with(OF_PEOPLE)
}

fn is_owned(object: &Value) -> bool {
    OWNER_MARKS.iter().all(|mark| object.pointer(mark).is_some())
}

/// The value that an object has.
fn value_of(object: &Value) -> Option<u64> {
    let places = ["/data/value", "/spec/template/metadata/annotations/value"];
    places.iter().find_map(|place| object.pointer(place))?.as_str()?.parse().ok()
}
