//! What agents' configurations declare of their objects: how they are judged, and how they are related.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use events::configuration::{DeclaredRelation, HealthSettings};
use events::{AgentId, Timestamp};
use objects::health::RuleSet;
use serde_json::Value;

use super::{Index, Slot};
use crate::model::former::{Declaring, FormerDeclared};
use crate::model::imported::ImportedRules;
use crate::model::record::{Kind, Record, Rule, Verdict};
use crate::model::relations::{Link, Relation, RelationSet};

/// What an agent's configuration declares of its objects.
#[derive(Debug, Default)]
pub struct Declared {
    /// How they are judged.
    pub rules: Arc<RuleSet>,
    /// How they are judged that have no such rule, by rules of Argo CD.
    pub imported: ImportedRules,
    /// How they are related.
    pub relations: RelationSet,
}

impl Declared {
    /// What a configuration says.
    #[must_use]
    pub fn new(health: &HealthSettings, relations: &[DeclaredRelation]) -> Self {
        Self {
            rules: Arc::new(RuleSet::new(&health.rules)),
            imported: ImportedRules::new(&health.imported),
            relations: RelationSet::new(relations),
        }
    }

    /// Whether it has a rule that judges a kind.
    #[must_use]
    pub fn judges(&self, kind: &Kind) -> bool {
        self.rules.covers(&kind.group, &kind.kind) || self.imported.script_for(kind).is_some()
    }
}

/// What the configurations of all agents declare.
pub type Declarations = BTreeMap<AgentId, Arc<Declared>>;

impl Index {
    /// An index of a moment of the past, without objects, of which this is declared. It is made for few questions.
    #[must_use]
    pub fn of_a_moment(declared: Declarations) -> Self {
        let declaring = Declaring { today: declared, ..Declaring::default() };
        Self { declaring, late: Some(OnceLock::new()), ..Self::default() }
    }

    /// What the configurations of all agents declare, and did.
    #[must_use]
    pub const fn declaring(&self) -> &Declaring {
        &self.declaring
    }

    /// What an agent's configuration declares.
    #[must_use]
    pub fn declared(&self, agent: AgentId) -> Option<&Arc<Declared>> {
        self.declaring.today.get(&agent)
    }

    /// The health rules of an agent's configuration.
    #[must_use]
    pub fn rules(&self, agent: AgentId) -> Option<&Arc<RuleSet>> {
        self.declared(agent).map(|declared| &declared.rules)
    }

    /// The imported rule that judges an agent's objects of a kind, where nothing comes before it.
    #[must_use]
    pub fn imported_rule(&self, agent: AgentId, kind: &Kind) -> Option<&Arc<str>> {
        self.declared(agent)?.imported.script_for(kind)
    }

    /// Some objects that wait for their imported rules, of each agent in turn.
    #[must_use]
    pub fn asking(&self, most: usize) -> Vec<Slot> {
        let mut of_agents: Vec<_> = self.asking.values().map(|slots| slots.iter()).collect();
        let mut found = Vec::new();
        while !of_agents.is_empty() && found.len() < most {
            of_agents.retain_mut(|slots| slots.next().map(|slot| found.push(*slot)).is_some());
        }
        found.truncate(most);
        found
    }

    /// Whether an object waits for its imported rule.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// The version of the rules by which a verdict on an object of an agent was made, where they are the agent's own.
    #[must_use]
    pub fn rule_set(&self, agent: AgentId, verdict: &Verdict) -> Option<String> {
        let declared = self.declared(agent)?;
        match verdict.rule {
            Rule::Declared => Some(declared.rules.version().to_owned()),
            Rule::Imported => Some(declared.imported.version().to_owned()),
            _ => None,
        }
    }

    /// What a relation is called in an answer about an agent's objects.
    #[must_use]
    pub fn relation_name(&self, agent: AgentId, relation: Relation) -> &str {
        match relation {
            Relation::Declared(place) => {
                let declared = self.declared(agent);
                declared.and_then(|declared| declared.relations.name(place)).unwrap_or(relation.as_str())
            }
            relation => relation.as_str(),
        }
    }

    /// This is declared of an agent's objects from now on. Those that it concerns, and those that what was before concerned, are due at `now`.
    pub fn declare(&mut self, agent: AgentId, declared: Declared, now: Timestamp) {
        let declared = Arc::new(declared);
        self.declaring.today.insert(agent, Arc::clone(&declared));
        let mut concerned: Vec<Slot> = Vec::new();
        for (kind, of_kind) in self.places.get(&agent).into_iter().flatten() {
            let is_named = declared.judges(kind) || declared.relations.begins_at(kind);
            let was_named = |record: &Record| {
                matches!(record.own.rule, Rule::Declared | Rule::Imported) || !record.declared().is_empty()
            };
            let is_concerned = |record: &Record| record.is_there() && (is_named || was_named(record));
            let slots = of_kind.slots();
            concerned.extend(slots.filter(|slot| self.get(*slot).is_some_and(is_concerned)));
        }
        for slot in concerned {
            let Some(record) = self.get(slot) else { continue };
            let own = Verdict { recheck_at: Some(now).into(), ..Verdict::clone(&record.own) };
            self.judge(slot, own);
        }
    }

    /// Sets what was declared of an agent's objects before, the oldest first.
    pub fn declared_before(&mut self, agent: AgentId, former: Vec<FormerDeclared>) {
        self.declaring.former.insert(agent, former.into());
    }

    /// The links that an agent's object of a kind with this body has by declared relations.
    #[must_use]
    pub fn declared_links(&self, agent: AgentId, kind: &Kind, body: &Value) -> Vec<Link> {
        self.declared(agent).map(|declared| declared.relations.links_of(body, kind)).unwrap_or_default()
    }

    /// Sets the links that an object has by declared relations.
    pub fn relate(&mut self, slot: Slot, links: Vec<Link>) {
        if self.get(slot).is_none_or(|record| *record.declared() == *links) {
            return;
        }
        self.note(slot, false);
        if let Some(record) = self.get_mut(slot) {
            record.set_declared(links);
        }
        self.note(slot, true);
    }

    /// Forgets what was declared of the objects of an agent that was deleted.
    pub fn forget_declared(&mut self, agent: AgentId) {
        self.declaring.today.remove(&agent);
        self.declaring.former.remove(&agent);
    }
}
