//! Operators on two values, and the sign.

use std::cmp::Ordering;

use cel::common::ast::operators as names;

use super::compile::Node;
use super::evaluate::{Fault, Run};
use super::value::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Negate,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    pub(super) fn of(name: &str, arguments: usize) -> Option<Self> {
        Some(match (name, arguments) {
            (names::ADD, 2) => Self::Add,
            (names::SUBSTRACT, 2) => Self::Subtract,
            (names::MULTIPLY, 2) => Self::Multiply,
            (names::DIVIDE, 2) => Self::Divide,
            (names::MODULO, 2) => Self::Remainder,
            (names::NEGATE, 1) => Self::Negate,
            (names::EQUALS, 2) => Self::Equal,
            (names::NOT_EQUALS, 2) => Self::NotEqual,
            (names::LESS, 2) => Self::Less,
            (names::LESS_EQUALS, 2) => Self::LessOrEqual,
            (names::GREATER, 2) => Self::Greater,
            (names::GREATER_EQUALS, 2) => Self::GreaterOrEqual,
            (names::IN, 2) => Self::In,
            _ => return None,
        })
    }
}

impl<'a> Run<'a> {
    pub(super) fn operate(
        &mut self,
        node: &'a Node,
        operator: Operator,
        args: &'a [Node],
    ) -> Result<Value<'a>, Fault> {
        let values = self.values(args)?;
        match values.as_slice() {
            [value] => match value {
                Value::Int(value) => value.checked_neg().map(Value::Int),
                Value::Double(value) => Some(Value::Double(-value)),
                Value::Duration(value) => value.checked_neg().map(Value::Duration),
                _ => None,
            }
            .ok_or_else(|| Fault::at(node, format!("{} cannot be negated", value.type_name()))),
            [left, right] => self.on_two(node, operator, left, right),
            _ => Err(Fault::at(node, "not an operator")),
        }
    }

    fn on_two(
        &mut self,
        node: &Node,
        operator: Operator,
        left: &Value<'a>,
        right: &Value<'a>,
    ) -> Result<Value<'a>, Fault> {
        match operator {
            Operator::Equal => left.equals(right, &mut self.meter).map(Value::Bool),
            Operator::NotEqual => left.equals(right, &mut self.meter).map(|same| Value::Bool(!same)),
            Operator::In => self.is_in(node, left, right).map(Value::Bool),
            Operator::Less => self.compared(node, left, right, Ordering::is_lt),
            Operator::LessOrEqual => self.compared(node, left, right, Ordering::is_le),
            Operator::Greater => self.compared(node, left, right, Ordering::is_gt),
            Operator::GreaterOrEqual => self.compared(node, left, right, Ordering::is_ge),
            Operator::Add => self.sum(node, left, right),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                arithmetic(operator, left, right).ok_or_else(|| unusable(node, left, right))
            }
            Operator::Negate => Err(unusable(node, left, right)),
        }
    }

    pub(super) fn is_in(&mut self, node: &Node, item: &Value<'a>, of: &Value<'a>) -> Result<bool, Fault> {
        match of {
            Value::Map(_) | Value::JsonMap(_) => Ok(of.entry(item, &mut self.meter)?.is_some()),
            Value::List(_) | Value::JsonList(_) => {
                for known in of.items(&mut self.meter)?.unwrap_or_default() {
                    if known.equals(item, &mut self.meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            other => Err(Fault::misfit(node, other, "a list or a mapping")),
        }
    }

    fn compared(
        &mut self,
        node: &Node,
        left: &Value<'a>,
        right: &Value<'a>,
        holds: fn(Ordering) -> bool,
    ) -> Result<Value<'a>, Fault> {
        if let (Value::Text(left), Value::Text(right)) = (left, right) {
            self.meter.spend_text(left.len().min(right.len()))?;
        }
        match left.order(right) {
            Some(order) => Ok(Value::Bool(holds(order))),
            // What is not a number compares with nothing.
            None if is_number(left) && is_number(right) => Ok(Value::Bool(false)),
            None => {
                let message = format!("{} cannot be compared with {}", left.type_name(), right.type_name());
                Err(Fault::at(node, message))
            }
        }
    }

    fn sum(&mut self, node: &Node, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Fault> {
        if let (Value::Text(left), Value::Text(right)) = (left, right) {
            self.meter.spend_text(left.len().saturating_add(right.len()))?;
            return Ok(Value::text(format!("{}{}", &**left, &**right)));
        }
        if matches!(left, Value::List(_) | Value::JsonList(_))
            && matches!(right, Value::List(_) | Value::JsonList(_))
        {
            let mut all = left.items(&mut self.meter)?.unwrap_or_default();
            all.extend(right.items(&mut self.meter)?.unwrap_or_default());
            return Ok(Value::list(all));
        }
        arithmetic(Operator::Add, left, right).ok_or_else(|| unusable(node, left, right))
    }
}

const fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn unusable(node: &Node, left: &Value<'_>, right: &Value<'_>) -> Fault {
    let (left, right) = (left.type_name(), right.type_name());
    Fault::at(node, format!("{left} and {right} cannot be put together so, or the result is too large"))
}

fn arithmetic<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Option<Value<'a>> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => of_ints(operator, *left, *right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => of_uints(operator, *left, *right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => match operator {
            Operator::Add => Some(left + right),
            Operator::Subtract => Some(left - right),
            Operator::Multiply => Some(left * right),
            Operator::Divide => Some(left / right),
            _ => None,
        }
        .map(Value::Double),
        (Value::Timestamp(left), Value::Timestamp(right)) if operator == Operator::Subtract => {
            Some(Value::Duration(left.duration_since(*right)))
        }
        (Value::Timestamp(time), Value::Duration(span)) => match operator {
            Operator::Add => time.checked_add(*span).ok(),
            Operator::Subtract => time.checked_sub(*span).ok(),
            _ => None,
        }
        .map(Value::Timestamp),
        (Value::Duration(span), Value::Timestamp(time)) if operator == Operator::Add => {
            time.checked_add(*span).ok().map(Value::Timestamp)
        }
        (Value::Duration(left), Value::Duration(right)) => match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            _ => None,
        }
        .map(Value::Duration),
        _ => None,
    }
}

fn of_ints(operator: Operator, left: i64, right: i64) -> Option<i64> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
        _ => None,
    }
}

fn of_uints(operator: Operator, left: u64, right: u64) -> Option<u64> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
        _ => None,
    }
}
