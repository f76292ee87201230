//! Those who use clusters' APIs while everything else goes on, and what they must and must not be answered in the end.

use std::time::Duration;

use events::directory::{Role, Scope};
use events::requests::authz::{CreateUser, IssueToken, RevokeToken, SecretToken, UserView};
use events::{AgentId, UserId};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::visits::{Visitor, Wish};
use super::{PROJECTS, Person};
use crate::access::Asker;

/// Who they are, with the project in which they are developers; the last one only looks, and is never let in.
const VISITORS: [(&str, Option<usize>); 3] = [("ann", Some(0)), ("bob", Some(1)), ("eve", None)];
/// How often somebody looks around while something goes on.
const LOOK: Duration = Duration::from_millis(500);
/// Those who read a log so far and no further: enough to fill whatever lies in between.
const READ: usize = 64 * 1024;
/// How long an answer may take beside those who do not read.
const SOON: Duration = Duration::from_secs(5);
/// Logs that nobody reads, at each cluster.
const UNREAD: usize = 3;

impl Person {
    /// Makes their accounts and tokens.
    pub(super) async fn set_up_visitors(&self) {
        for (name, project) in VISITORS {
            let projects = self.facts.lock().projects.clone();
            let scope = projects.get(project.unwrap_or(0)).copied().map(Scope::Project);
            let role = if project.is_some() { Role::Developer } else { Role::Viewer };
            let create = CreateUser { name: name.to_owned(), role, scope };
            let made: Option<UserView> = self.insist("user", &create).await;
            let Some(UserView { id, .. }) = made else { return };
            let role = project.and_then(|project| {
                Some(((*PROJECTS.get(project)?).to_owned(), projects.get(project).copied()?))
            });
            let asker = Asker { user: id, name: name.to_owned(), role };
            let Some(SecretToken { view, secret }) = self.insist("token", &token_for(id)).await else {
                return;
            };
            let visitor = Visitor { asker, token: view.id, secret: secret.clone() };
            let mut facts = self.facts.lock();
            facts.secrets.push(secret);
            facts.visitors.push(visitor);
        }
    }

    pub(super) fn visitors(&self) -> Vec<Visitor> {
        self.facts.lock().visitors.clone()
    }

    fn visitor(&self, number: usize) -> Option<Visitor> {
        self.facts.lock().visitors.get(number).cloned()
    }

    fn agents(&self) -> Vec<AgentId> {
        self.facts.lock().agents.iter().map(|agent| agent.id).collect()
    }

    /// Does one thing after another, until nothing new is to be begun.
    pub(super) async fn use_clusters(&self, number: usize) {
        self.facts.lock().working += 1;
        loop {
            let pause = self.executor.roll(|dice| Duration::from_millis(dice.between(50, 1_500)));
            self.world.clock.sleep(pause).await;
            if self.facts.lock().tidy {
                break;
            }
            let agents = self.agents();
            let agent = self.executor.roll(|dice| dice.one_of(&agents).copied());
            let (Some(agent), Some(visitor)) = (agent, self.visitor(number)) else { continue };
            match self.executor.roll(|dice| dice.below(100)) {
                0..30 => drop(self.visit(&visitor, agent, &Wish::Get).await),
                30..45 => drop(self.visit(&visitor, agent, &Wish::List).await),
                45..65 => self.write(&visitor, agent).await,
                65..80 => self.stay(visitor, agent, Wish::Watch),
                80..88 => self.stay(visitor, agent, Wish::Log),
                _ => self.renew_token(number).await,
            }
            self.facts.lock().done += 1;
        }
        self.facts.lock().working -= 1;
    }

    async fn write(&self, visitor: &Visitor, agent: AgentId) {
        let value = {
            let mut facts = self.facts.lock();
            facts.last_value += 1;
            facts.last_value
        };
        let status = self.visit(visitor, agent, &Wish::Write(value)).await;
        if status.is_some_and(|status| status.is_success()) {
            let written = (agent, Wish::object_of(&visitor.asker), value);
            self.facts.lock().written.push(written);
        }
    }

    /// Follows something for a while, beside everything else; a log is not read to its end.
    fn stay(&self, visitor: Visitor, agent: AgentId, wish: Wish) {
        let person = self.clone();
        let staying = async move {
            let Some(answer) = person.begin(&visitor, agent, &wish).await else { return };
            let until = person.executor.roll(|dice| Duration::from_millis(dice.between(200, 30_000)));
            let until = person.world.clock.monotonic() + until;
            let is_read = matches!(wish, Wish::Watch);
            let mut reading = std::pin::pin!(read(answer, if is_read { usize::MAX } else { READ }));
            while person.world.clock.monotonic() < until && !person.facts.lock().tidy {
                tokio::select! {
                    biased;
                    left = &mut reading => {
                        if is_read || left.is_none() {
                            return;
                        }
                        // What is left of it is held and not read.
                        person.rest(until).await;
                        return;
                    }
                    () = person.world.clock.sleep(LOOK) => {}
                }
            }
        };
        self.world.spawner.spawn("visitor's stay", Box::pin(staying));
    }

    async fn rest(&self, until: Duration) {
        while self.world.clock.monotonic() < until && !self.facts.lock().tidy {
            self.world.clock.sleep(LOOK).await;
        }
    }

    async fn renew_token(&self, number: usize) {
        let Some(former) = self.visitor(number) else { return };
        let Ok(issued) = self.ask(&token_for(former.asker.user)).await else { return };
        {
            let mut facts = self.facts.lock();
            facts.secrets.push(issued.secret.clone());
            let Some(visitor) = facts.visitors.get_mut(number) else { return };
            (visitor.token, visitor.secret) = (issued.view.id, issued.secret);
        }
        if self.ask(&RevokeToken { token: former.token }).await.is_ok() {
            self.facts.lock().former_visitors.push(former);
        }
    }

    fn violated(&self, what: String) {
        self.facts.lock().violations.push(what);
    }

    /// Who is let in is answered, who is not is not, and what was revoked opens nothing.
    pub(crate) async fn check_visitors(&self) {
        for agent in self.agents() {
            for visitor in self.visitors() {
                let status = self.insist_on_visit(&visitor, agent, &Wish::Get).await;
                let is_let_in = visitor.asker.role.is_some();
                if is_let_in != (status == StatusCode::OK) || (!is_let_in && !is_refusal(status)) {
                    self.violated(format!("{} is answered {status} in the end", visitor.asker.name));
                }
            }
        }
        let former = self.facts.lock().former_visitors.clone();
        let agents = self.agents();
        for (visitor, agent) in former.iter().zip(agents.iter().cycle()) {
            let status = self.insist_on_visit(visitor, *agent, &Wish::Get).await;
            if status != StatusCode::UNAUTHORIZED {
                self.violated(format!("a revoked token of {} is answered {status}", visitor.asker.name));
            }
        }
    }

    /// Who does not read stops nobody, and what is open ends with its token.
    pub(crate) async fn check_streams(&self) {
        let visitors = self.visitors();
        let [one, other, ..] = visitors.as_slice() else { return };
        let Ok(issued) = self.ask(&token_for(one.asker.user)).await else { return };
        self.facts.lock().secrets.push(issued.secret.clone());
        let one = Visitor { token: issued.view.id, secret: issued.secret, ..one.clone() };
        let mut unread = Vec::new();
        for agent in self.agents() {
            for _ in 0..UNREAD {
                unread.push(self.insist_on_stream(&one, agent, &Wish::Log).await);
            }
        }
        // Everything in between fills.
        self.world.clock.sleep(SOON).await;
        let mut watches = Vec::new();
        for agent in self.agents() {
            let asked_at = self.world.clock.monotonic();
            let status = self.insist_on_visit(other, agent, &Wish::List).await;
            let took = self.world.clock.monotonic().saturating_sub(asked_at);
            if status != StatusCode::OK || took > SOON {
                self.violated(format!("beside those who do not read, {status} comes after {took:?}"));
            }
            watches.push(self.insist_on_stream(&one, agent, &Wish::Watch).await);
        }
        if self.access.open_by(one.token) < unread.len() + watches.len() {
            self.violated("what somebody follows is not open".to_owned());
        }
        if self.ask(&RevokeToken { token: one.token }).await.is_err() {
            return;
        }
        for watch in watches {
            // How long it may take is looked at elsewhere.
            read(watch, usize::MAX).await;
        }
        while self.access.open_by(one.token) > 0 {
            self.world.clock.sleep(LOOK).await;
        }
        drop(unread);
        self.facts.lock().former_visitors.push(one);
    }

    /// What is open ends when a configuration lets in nobody any more.
    pub(crate) async fn check_withdrawal(&self) {
        let (Some(visitor), Some(agent)) = (self.visitor(1), self.agents().first().copied()) else { return };
        let _watch = self.insist_on_stream(&visitor, agent, &Wish::Watch).await;
        if let Some(known) = self.facts.lock().agents.first_mut() {
            known.model.lets_in = super::model::VisitorAccess::default();
        }
        self.push_all(0).await;
        while self.access.open_by(visitor.token) > 0 {
            self.world.clock.sleep(LOOK).await;
        }
        let status = self.insist_on_visit(&visitor, agent, &Wish::Get).await;
        if !is_refusal(status) {
            self.violated(format!("whom no configuration lets in any more is answered {status}"));
        }
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

fn token_for(user: UserId) -> IssueToken {
    IssueToken {
        agent: None,
        user: Some(user.to_string()),
        name: "visits".to_owned(),
        lifetime_seconds: None,
        clusters_only: false,
    }
}

/// Reads so many bytes of an answer; gives what is left of it, if it has not ended.
async fn read(mut answer: Response<Incoming>, bytes: usize) -> Option<Response<Incoming>> {
    let mut came = 0;
    while came < bytes {
        let frame = answer.frame().await?.ok()?;
        came += frame.data_ref().map_or(0, bytes::Bytes::len);
    }
    Some(answer)
}
