//! What people do while it runs.

use std::time::Duration;

use events::requests::authz::{
    Authenticate, CreateProject, DeleteAgent, IssueToken, RegisterAgent, RevokeToken, ShowAgent,
};
use events::requests::delivery::SyncSource;
use events::requests::repository::RepositoryPushed;
use events::{CorrelationId, RefusalKind, Sha256, SourceId};

use super::model::{Change, Model};
use super::{Person, REPOSITORIES};

/// So long an election takes and a leader that was cut off may go on answering, see [`crate::log::LogServers::change_leader`].
const CUT_OFF_AT_MOST: Duration = Duration::from_secs(9);

impl Person {
    /// Does one thing after another, until nothing new is to be begun.
    pub(super) async fn work(&self) {
        self.facts.lock().working += 1;
        let mut number = 0_u64;
        loop {
            let pause = self.executor.roll(|dice| Duration::from_millis(dice.between(50, 1_200)));
            self.world.clock.sleep(pause).await;
            if self.facts.lock().tidy {
                break;
            }
            number += 1;
            match self.executor.roll(|dice| dice.below(100)) {
                0..75 => self.push().await,
                75..83 => self.rotate_token().await,
                83..90 => self.create_at_once().await,
                90..95 => self.sync_again().await,
                _ => self.come_and_go(number).await,
            }
            self.facts.lock().done += 1;
        }
        self.facts.lock().working -= 1;
    }

    fn any_agent(&self) -> usize {
        let count = self.facts.lock().agents.len();
        self.executor.roll(|dice| dice.index(count))
    }

    async fn push(&self) {
        let index = self.any_agent();
        let change = {
            let mut facts = self.facts.lock();
            let Some(agent) = facts.agents.get_mut(index) else { return };
            let before = agent.model.clone();
            let change = self.executor.roll(|dice| agent.model.change(dice));
            agent.pushes.lock().leave(agent.model.left_since(&before));
            change
        };
        let repository = match change {
            Change::Objects(source) | Change::Broken(source) => Model::repository_of(source),
            Change::Configuration => 0,
        };
        self.push_to(index, repository).await;
    }

    /// Pushes what an agent's sources are to be, to every repository.
    pub(super) async fn push_all(&self, agent: usize) {
        for repository in 0..REPOSITORIES.len() {
            self.push_to(agent, repository).await;
        }
    }

    async fn push_to(&self, agent: usize, repository: usize) {
        let Some(url) = REPOSITORIES.get(repository) else { return };
        let (pushed, project) = {
            let facts = self.facts.lock();
            let Some(agent) = facts.agents.get(agent) else { return };
            let mut files = self.forge.files(url);
            agent.model.write(repository, &mut files);
            let pushed = self.forge.push(url, files);
            let place = pushed.as_ref().ok().and_then(|commit| self.forge.place_of(commit));
            agent.pushes.lock().note(place.unwrap_or_default(), repository, &agent.model);
            (pushed, facts.projects.get(repository).copied())
        };
        if let Err(error) = pushed {
            self.facts.lock().violations.push(format!("a commit cannot be made: {error}"));
        }
        // Not every push is announced: the next look finds it.
        let told = self.executor.roll(|dice| dice.permille(700));
        if let Some(project) = project.filter(|_| told) {
            let correlation_id = CorrelationId(self.world.new_uuid());
            let pushed = RepositoryPushed { project, reference: None, correlation_id, traceparent: None };
            let _unheard = bus::announce(&*self.bus, &pushed).await;
        }
    }

    /// Everything as it is in mind, once more and without anything broken.
    pub async fn tidy(&self) {
        let agents = {
            let mut facts = self.facts.lock();
            for agent in &mut facts.agents {
                self.executor.roll(|dice| agent.model.tidy(dice));
            }
            facts.agents.len()
        };
        for agent in 0..agents {
            self.push_all(agent).await;
        }
    }

    /// Good commits in place of those of which something never becomes available.
    pub async fn mend(&self) {
        let mended: Vec<usize> = {
            let mut facts = self.facts.lock();
            let agents = facts.agents.iter_mut().enumerate();
            agents.filter_map(|(number, agent)| agent.model.mend().then_some(number)).collect()
        };
        for agent in mended {
            self.push_all(agent).await;
        }
    }

    async fn rotate_token(&self) {
        let index = self.any_agent();
        let known = {
            let facts = self.facts.lock();
            facts.agents.get(index).map(|agent| (agent.id, agent.token, agent.secret.clone()))
        };
        let Some((id, old, secret)) = known else { return };
        let issue = IssueToken {
            agent: Some(id.to_string()),
            user: None,
            name: "next".to_owned(),
            lifetime_seconds: None,
            clusters_only: false,
        };
        let Ok(issued) = self.ask(&issue).await else { return };
        let former = {
            let mut facts = self.facts.lock();
            let Some(agent) = facts.agents.get_mut(index).filter(|agent| agent.token == old) else { return };
            agent.token = issued.view.id;
            let fresh = issued.secret.clone();
            facts.secrets.push(fresh);
            secret.replace(&issued.secret)
        };
        if self.ask(&RevokeToken { token: old }).await.is_ok() {
            self.facts.lock().revoked.push(former);
        }
    }

    /// Two want the same name at the same time.
    async fn create_at_once(&self) {
        let path = format!("shop/contended-{}", self.executor.roll(|dice| dice.below(50)));
        let create = CreateProject {
            path: path.clone(),
            repository: "https://git.example/none".to_owned(),
            default_branch: None,
            credential: None,
            external_id: None,
        };
        let (one, other) = futures::join!(self.ask(&create), self.ask(&create));
        let ids = [one, other].into_iter().flatten().map(|project| project.id).collect();
        self.facts.lock().names.push((path, ids));
    }

    /// Something happens of which others are told.
    pub async fn disturb(&self) {
        self.rotate_token().await;
        self.sync_again().await;
    }

    async fn sync_again(&self) {
        let index = self.any_agent();
        let known = self.facts.lock().agents.get(index).map(|agent| agent.id);
        let Some(agent) = known else { return };
        let number = self.executor.roll(|dice| dice.below(4));
        let source = SourceId::derive(agent, &format!("source-{number}"));
        // One that is not there, or never had a bundle, is refused.
        let _refused = self.ask(&SyncSource { source }).await;
    }

    /// An agent is registered and deleted again: its token opens nothing then.
    async fn come_and_go(&self, number: u64) {
        let name = format!("guest-{number}-{}", self.executor.roll(|dice| dice.below(1_000_000)));
        let register = RegisterAgent { name, project: "shop/extra".to_owned(), group: None };
        let Ok(made) = self.ask(&register).await else { return };
        self.facts.lock().secrets.push(made.token.secret.clone());
        let agent = made.agent.id.to_string();
        if !self.is_found(&agent).await {
            self.facts.lock().violations.push(format!("agent {agent} was registered and is not found"));
        }
        if self.ask(&DeleteAgent { agent }).await.is_ok() {
            self.facts.lock().revoked.push(made.token.secret);
        }
    }

    /// A leader of the log that was cut off says for a while that there is nothing new; not for longer.
    async fn is_found(&self, agent: &str) -> bool {
        let give_up_at = self.executor.now() + CUT_OFF_AT_MOST;
        loop {
            let shown = self.ask(&ShowAgent { agent: agent.to_owned() }).await;
            if !shown.is_err_and(|refusal| refusal.kind == RefusalKind::NotFound) {
                return true;
            }
            if self.executor.now() > give_up_at {
                return false;
            }
            self.world.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Whether what was revoked opens nothing, and what was not opens everything.
    pub async fn check_tokens(&self) {
        let (revoked, live) = {
            let facts = self.facts.lock();
            let live: Vec<String> = facts.agents.iter().map(|agent| agent.secret.read()).collect();
            (facts.revoked.clone(), live)
        };
        for secret in revoked {
            if self.opens(&secret).await {
                self.facts.lock().violations.push("a revoked token is taken".to_owned());
            }
        }
        for secret in live {
            if !self.opens(&secret).await {
                self.facts.lock().violations.push("a live token is not taken".to_owned());
            }
        }
    }

    async fn opens(&self, secret: &str) -> bool {
        let hash = Sha256::of(secret.as_bytes());
        loop {
            let context =
                bus::context_for_service(&self.world, "tunnel-gateway", events::OrganizationId::SYSTEM);
            match bus::ask(&*self.bus, &context, &Authenticate { hash }).await {
                Ok(_) => return true,
                Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                    self.world.clock.sleep(Duration::from_millis(500)).await;
                }
                Err(_) => return false,
            }
        }
    }
}
