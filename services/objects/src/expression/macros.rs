//! What goes over lists and mappings, with a variable for each item.

use super::compile::Node;
use super::evaluate::{Fault, Run};
use super::value::Value;

/// `range.kind(variable, bodies…)`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Macro {
    pub(super) kind: MacroKind,
    pub(super) range: Node,
    pub(super) variable: String,
    pub(super) bodies: Vec<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    /// With a condition before what is mapped to.
    MapIf,
    OptionalMap,
    OptionalFlatMap,
}

impl MacroKind {
    pub(super) fn of(name: &str, arguments: usize) -> Option<Self> {
        Some(match (name, arguments) {
            ("all", 2) => Self::All,
            ("exists", 2) => Self::Exists,
            ("exists_one" | "existsOne", 2) => Self::ExistsOne,
            ("filter", 2) => Self::Filter,
            ("map", 2) => Self::Map,
            ("map", 3) => Self::MapIf,
            ("optMap", 2) => Self::OptionalMap,
            ("optFlatMap", 2) => Self::OptionalFlatMap,
            _ => return None,
        })
    }
}

impl<'a> Run<'a> {
    pub(super) fn run_macro(&mut self, node: &'a Node, of: &'a Macro) -> Result<Value<'a>, Fault> {
        let range = self.value(&of.range)?;
        let (Some(first), last) = (of.bodies.first(), of.bodies.last()) else {
            return Err(Fault::at(node, "nothing to do for each item"));
        };
        if matches!(of.kind, MacroKind::OptionalMap | MacroKind::OptionalFlatMap) {
            return self.map_optional(node, of, first, &range);
        }
        let Some(items) = range.items(&mut self.meter)? else {
            return Err(Fault::misfit(&of.range, &range, "a list or a mapping"));
        };
        match of.kind {
            MacroKind::All => self.fold(items, of, first, false),
            MacroKind::Exists => self.fold(items, of, first, true),
            MacroKind::ExistsOne => {
                let mut found = 0_usize;
                for item in items {
                    found = found.saturating_add(usize::from(self.test_with(of, item, first)?));
                }
                Ok(Value::Bool(found == 1))
            }
            MacroKind::Filter => {
                let mut kept = Vec::new();
                for item in items {
                    if self.test_with(of, item.clone(), first)? {
                        kept.push(item);
                    }
                }
                Ok(Value::list(kept))
            }
            MacroKind::Map | MacroKind::MapIf => {
                let mut mapped = Vec::new();
                for item in items {
                    if of.kind == MacroKind::MapIf && !self.test_with(of, item.clone(), first)? {
                        continue;
                    }
                    mapped.push(self.value_with(of, item, last.unwrap_or(first))?);
                }
                Ok(Value::list(mapped))
            }
            MacroKind::OptionalMap | MacroKind::OptionalFlatMap => Ok(Value::none()),
        }
    }

    /// `exists` is done at the first item that holds, `all` at the first that does not. A fault counts only where no other item decides.
    fn fold(
        &mut self,
        items: Vec<Value<'a>>,
        of: &'a Macro,
        body: &'a Node,
        decisive: bool,
    ) -> Result<Value<'a>, Fault> {
        let mut fault = None;
        for item in items {
            match self.test_with(of, item, body) {
                Ok(holds) if holds == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(Fault::Spent) => return Err(Fault::Spent),
                Err(failed) => fault = fault.or(Some(failed)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn map_optional(
        &mut self,
        node: &'a Node,
        of: &'a Macro,
        body: &'a Node,
        range: &Value<'a>,
    ) -> Result<Value<'a>, Fault> {
        let Value::Optional(inner) = range else {
            return Err(Fault::misfit(&of.range, range, "an optional value"));
        };
        let Some(inner) = inner else { return Ok(Value::none()) };
        let value = self.value_with(of, (**inner).clone(), body)?;
        match (of.kind, &value) {
            (MacroKind::OptionalFlatMap, Value::Optional(_)) => Ok(value),
            (MacroKind::OptionalFlatMap, _) => Err(Fault::misfit(node, &value, "an optional value")),
            _ => Ok(Value::some(value)),
        }
    }

    fn value_with(&mut self, of: &'a Macro, item: Value<'a>, body: &'a Node) -> Result<Value<'a>, Fault> {
        self.locals.push((&of.variable, item));
        let value = self.value(body);
        self.locals.pop();
        value
    }

    fn test_with(&mut self, of: &'a Macro, item: Value<'a>, body: &'a Node) -> Result<bool, Fault> {
        self.locals.push((&of.variable, item));
        let holds = self.truth(body);
        self.locals.pop();
        holds
    }
}
