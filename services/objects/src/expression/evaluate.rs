//! Evaluation, at a cost that is counted.

use serde_json::Value as Json;

use super::compile::{Access, Node, Op};
use super::value::Value;

/// Bytes of text that cost as much as a step.
const BYTES_A_STEP: usize = 64;

/// What there is to spend.
#[derive(Debug)]
pub(super) struct Meter {
    left: u64,
}

impl Meter {
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Fault::Spent)
            }
        }
    }

    /// For looking at a text of so many bytes, or making it.
    pub(super) fn spend_text(&mut self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / BYTES_A_STEP)
    }
}

/// Why there is no value.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Nothing is left to spend. No operator turns this into a value.
    Spent,
    /// The object does not go with the expression.
    Failed {
        /// Letters before the place.
        at: u32,
        /// What is wrong.
        message: String,
    },
}

impl Fault {
    pub(super) fn at(node: &Node, message: impl Into<String>) -> Self {
        Self::Failed { at: node.at, message: message.into() }
    }

    /// A value of another type than the one that belongs there.
    pub(super) fn misfit(node: &Node, value: &Value<'_>, wanted: &str) -> Self {
        Self::at(node, format!("{} where {wanted} is expected", value.type_name()))
    }
}

/// One evaluation.
pub(super) struct Run<'a> {
    object: &'a Json,
    pub(super) meter: Meter,
    pub(super) locals: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Run<'a> {
    pub(super) const fn new(object: &'a Json, budget: u64) -> Self {
        Self { object, meter: Meter { left: budget }, locals: Vec::new() }
    }

    pub(super) const fn left(&self) -> u64 {
        self.meter.left
    }

    /// The value of a step. Nesting is limited when the expression is compiled.
    pub(super) fn value(&mut self, node: &'a Node) -> Result<Value<'a>, Fault> {
        self.meter.spend(1)?;
        match &node.op {
            Op::Literal(literal) => Ok(literal.value()),
            Op::Name(name) => self.name(node, name),
            Op::Select { of, field, how } => {
                let of = self.value(of)?;
                self.field(node, of, &Value::borrowed(field), *how)
            }
            Op::Index { of, key, how } => {
                let (of, key) = (self.value(of)?, self.value(key)?);
                self.field(node, of, &key, *how)
            }
            Op::List(items) => self.list(items),
            Op::Map(entries) => self.map(entries),
            Op::Not(of) => Ok(Value::Bool(!self.truth(of)?)),
            Op::And(left, right) => self.logical(left, right, false),
            Op::Or(left, right) => self.logical(left, right, true),
            Op::If(test, then, otherwise) => {
                let branch = if self.truth(test)? { then } else { otherwise };
                self.value(branch)
            }
            Op::Operator(operator, args) => self.operate(node, *operator, args),
            Op::Call(function, args) => self.call(node, *function, args),
            Op::Macro(of) => self.run_macro(node, of),
        }
    }

    /// The values of arguments, in their order.
    pub(super) fn values(&mut self, nodes: &'a [Node]) -> Result<Vec<Value<'a>>, Fault> {
        nodes.iter().map(|node| self.value(node)).collect()
    }

    pub(super) fn truth(&mut self, node: &'a Node) -> Result<bool, Fault> {
        match self.value(node)? {
            Value::Bool(value) => Ok(value),
            other => Err(Fault::misfit(node, &other, "true or false")),
        }
    }

    /// `&&` and `||`: a side that decides does so whatever is wrong with the other one.
    fn logical(&mut self, left: &'a Node, right: &'a Node, decisive: bool) -> Result<Value<'a>, Fault> {
        let first = match self.truth(left) {
            Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Err(Fault::Spent) => return Err(Fault::Spent),
            first => first,
        };
        match self.truth(right) {
            Ok(value) if value == decisive => Ok(Value::Bool(decisive)),
            Err(Fault::Spent) => Err(Fault::Spent),
            second => first.and(second).map(|_| Value::Bool(!decisive)),
        }
    }

    fn name(&self, node: &Node, name: &str) -> Result<Value<'a>, Fault> {
        let local = self.locals.iter().rev().find(|(known, _)| *known == name);
        if let Some((_, value)) = local {
            return Ok(value.clone());
        }
        if name == "self" {
            return Ok(Value::of(self.object));
        }
        match self.object.get(name) {
            Some(value) => Ok(Value::of(value)),
            None if matches!(name, "metadata" | "spec" | "status") => Ok(Value::Map([].into())),
            None => Err(Fault::at(node, format!("the object has no field '{name}'"))),
        }
    }

    /// What is under a key of a mapping, or at a place of a list.
    fn field(
        &mut self,
        node: &Node,
        of: Value<'a>,
        key: &Value<'a>,
        how: Access,
    ) -> Result<Value<'a>, Fault> {
        // Of an optional value each further step is optional.
        let (of, how) = match of {
            Value::Optional(None) if how == Access::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) if how == Access::Test => ((*inner).clone(), how),
            Value::Optional(Some(inner)) => ((*inner).clone(), Access::Optional),
            of => (of, how),
        };
        let found = match &of {
            Value::Map(_) | Value::JsonMap(_) => of.entry(key, &mut self.meter)?,
            Value::List(_) | Value::JsonList(_) => {
                let Some(place) = place_of(key) else {
                    return Err(Fault::misfit(node, key, "a list's place"));
                };
                usize::try_from(place).ok().and_then(|place| of.item(place))
            }
            other => {
                let message = format!("{} has no {}", other.type_name(), shown(key));
                return Err(Fault::at(node, message));
            }
        };
        match (how, found) {
            (Access::Test, found) => Ok(Value::Bool(found.is_some())),
            (Access::Required, Some(found)) => Ok(found),
            (Access::Required, None) => Err(Fault::at(node, format!("there is no {}", shown(key)))),
            (Access::Optional, found) => Ok(found.map_or_else(Value::none, Value::some)),
        }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Result<Value<'a>, Fault> {
        let mut list = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.value(item)?;
            list.extend(present(value, *optional));
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<Value<'a>, Fault> {
        let mut map: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let (place, key, value) = (key, self.value(key)?, self.value(value)?);
            let is_key = matches!(key, Value::Text(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_));
            if !is_key {
                return Err(Fault::at(place, format!("{} cannot be a key", key.type_name())));
            }
            for (known, _) in &map {
                if known.equals(&key, &mut self.meter)? {
                    return Err(Fault::at(place, format!("{} twice", shown(&key))));
                }
            }
            map.extend(present(value, *optional).map(|value| (key, value)));
        }
        Ok(Value::Map(map.into()))
    }
}

/// The value, or what an optional one has.
fn present(value: Value<'_>, optional: bool) -> Option<Value<'_>> {
    match value {
        Value::Optional(inner) if optional => inner.map(|inner| (*inner).clone()),
        value => Some(value),
    }
}

fn place_of(key: &Value<'_>) -> Option<i128> {
    match key {
        Value::Int(place) => Some(i128::from(*place)),
        Value::Uint(place) => Some(i128::from(*place)),
        _ => None,
    }
}

/// Letters of a key that a message repeats.
const SHOWN: usize = 60;

fn shown(key: &Value<'_>) -> String {
    match key {
        Value::Text(text) => format!("field '{}'", text.chars().take(SHOWN).collect::<String>()),
        Value::Int(place) => format!("item {place}"),
        Value::Uint(place) => format!("item {place}"),
        other => format!("field under {}", other.type_name()),
    }
}
