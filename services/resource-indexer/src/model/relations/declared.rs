//! Relations that an agent's configuration declares: expressions over one object that name others, or select them by labels.

use events::configuration::{DeclaredRelation, KindPattern};
use objects::expression::{BUDGET, Expression};
use objects::kinds::glob;
use serde_json::Value;

use super::{Key, Link, Relation, Selected, Target, text};
use crate::model::record::Kind;
use crate::model::selector::Selector;
use crate::model::text::Text;

/// Links that one declared relation gives one object.
const LINKS: usize = 100;

/// The relations of one configuration, ready to be followed.
#[derive(Debug, Default)]
pub struct RelationSet {
    relations: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    from: KindPattern,
    to: Kind,
    /// What cannot be read here gives no links.
    way: Option<Way>,
}

#[derive(Debug)]
enum Way {
    Names { names: Expression, namespace: Option<Expression> },
    Labels { labels: Expression, namespace: Option<Expression> },
}

impl Way {
    fn compile(declared: &DeclaredRelation) -> Option<Self> {
        let compiled = |text: &String| Expression::compile(text).ok();
        let namespace = match &declared.namespace {
            Some(text) => Some(compiled(text)?),
            None => None,
        };
        match (&declared.names, &declared.labels) {
            (Some(names), _) => Some(Self::Names { names: compiled(names)?, namespace }),
            (None, Some(labels)) => Some(Self::Labels { labels: compiled(labels)?, namespace }),
            (None, None) => None,
        }
    }
}

impl RelationSet {
    /// The relations as they were declared.
    #[must_use]
    pub fn new(declared: &[DeclaredRelation]) -> Self {
        let relations = declared.iter().map(|relation| Rule {
            name: relation.name.clone(),
            from: relation.from.clone(),
            to: Kind::new(&relation.to.group, &relation.to.kind),
            way: Way::compile(relation),
        });
        Self { relations: relations.take(usize::from(u16::MAX)).collect() }
    }

    /// The name of a declared relation, by its place.
    #[must_use]
    pub fn name(&self, place: u16) -> Option<&str> {
        self.relations.get(usize::from(place)).map(|rule| rule.name.as_str())
    }

    /// Whether objects of a kind may have such relations.
    #[must_use]
    pub fn begins_at(&self, kind: &Kind) -> bool {
        self.relations.iter().any(|rule| rule.begins_at(kind))
    }

    /// The relations of an object. An expression that fails for it gives none.
    #[must_use]
    pub fn links_of(&self, body: &Value, kind: &Kind) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        for (place, rule) in (0_u16..).zip(&self.relations) {
            if rule.begins_at(kind) {
                for target in rule.targets(body).into_iter().flatten().take(LINKS) {
                    let link = Link { relation: Relation::Declared(place), target };
                    if !links.contains(&link) {
                        links.push(link);
                    }
                }
            }
        }
        links
    }
}

impl Rule {
    fn begins_at(&self, kind: &Kind) -> bool {
        glob(&self.from.group, &kind.group) && glob(&self.from.kind, &kind.kind)
    }

    fn targets(&self, body: &Value) -> Option<Vec<Target>> {
        let mut budget = BUDGET;
        let mut namespace_of = |expression: &Option<Expression>| match expression {
            Some(expression) => expression.text(body, &mut budget).ok(),
            None => Some(text(body, "/metadata/namespace").to_owned()),
        };
        match self.way.as_ref()? {
            Way::Names { names, namespace } => {
                let namespace = namespace_of(namespace)?;
                let names = names.texts(body, &mut budget).ok()?;
                let key = |name: &String| Key::new(&self.to.group, &self.to.kind, &namespace, name);
                Some(
                    names.iter().filter(|name| !name.is_empty()).map(|name| Target::Key(key(name))).collect(),
                )
            }
            Way::Labels { labels, namespace } => {
                let namespace = namespace_of(namespace)?;
                let labels = labels.pairs(body, &mut budget).ok()?;
                let selector = Selector::of_pairs(labels)?;
                let (kind, namespace) = (self.to.clone(), Text::from(namespace.as_str()));
                Some(vec![Target::Labels(Box::new(Selected { kind, namespace, selector }))])
            }
        }
    }
}
