//! Functions: those of the language that health needs, and what Flux offers besides (optional values, strings, sets).

use jiff::{SignedDuration, Timestamp};

use super::compile::Node;
use super::evaluate::{Fault, Run};
use super::value::Value;

/// Names of functions, with how many arguments they take, the receiver counted, and whether they are called on a receiver.
macro_rules! functions {
    ($($function:ident = $name:literal $style:ident $from:literal ..= $to:literal),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Function { $($function),+ }

        impl Function {
            const ALL: &'static [(Self, &'static str, Style, usize, usize)] =
                &[$((Self::$function, $name, Style::$style, $from, $to)),+];
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `f(x)`
    Plain,
    /// `x.f()`
    Member,
    /// Either.
    Both,
    /// `space.f(x)`
    Spaced,
}

functions! {
    Size = "size" Both 1..=1,
    Contains = "contains" Member 2..=2,
    StartsWith = "startsWith" Member 2..=2,
    EndsWith = "endsWith" Member 2..=2,
    LowerAscii = "lowerAscii" Member 1..=1,
    UpperAscii = "upperAscii" Member 1..=1,
    Trim = "trim" Member 1..=1,
    Split = "split" Member 2..=2,
    Join = "join" Member 1..=2,
    Int = "int" Plain 1..=1,
    Uint = "uint" Plain 1..=1,
    Double = "double" Plain 1..=1,
    String = "string" Plain 1..=1,
    Bool = "bool" Plain 1..=1,
    Dyn = "dyn" Plain 1..=1,
    Timestamp = "timestamp" Plain 1..=1,
    Duration = "duration" Plain 1..=1,
    HasValue = "hasValue" Member 1..=1,
    OptionalValue = "value" Member 1..=1,
    OrElse = "or" Member 2..=2,
    OrValue = "orValue" Member 2..=2,
    Of = "optional.of" Spaced 1..=1,
    OfNonZero = "optional.ofNonZeroValue" Spaced 1..=1,
    Nothing = "optional.none" Spaced 0..=0,
    SetContains = "sets.contains" Spaced 2..=2,
    SetEquivalent = "sets.equivalent" Spaced 2..=2,
    SetIntersects = "sets.intersects" Spaced 2..=2,
}

impl Function {
    fn entry(self) -> Option<&'static (Self, &'static str, Style, usize, usize)> {
        Self::ALL.iter().find(|(known, ..)| *known == self)
    }

    pub(super) fn name(self) -> &'static str {
        self.entry().map_or("", |(_, name, ..)| name)
    }

    pub(super) fn takes(self, count: usize) -> bool {
        self.entry().is_some_and(|(.., from, to)| (*from..=*to).contains(&count))
    }

    pub(super) fn find(name: &str, on_receiver: bool) -> Option<Self> {
        let fits = |style: Style| match style {
            Style::Both => true,
            Style::Plain => !on_receiver,
            Style::Member => on_receiver,
            Style::Spaced => false,
        };
        Self::ALL
            .iter()
            .find(|(_, known, style, ..)| *known == name && fits(*style))
            .map(|(known, ..)| *known)
    }

    pub(super) fn of_space(space: &str, name: &str) -> Option<Self> {
        let is_so = |known: &str| known.split_once('.') == Some((space, name));
        Self::ALL.iter().find(|(_, known, ..)| is_so(known)).map(|(known, ..)| *known)
    }
}

impl<'a> Run<'a> {
    pub(super) fn call(
        &mut self,
        node: &'a Node,
        function: Function,
        args: &'a [Node],
    ) -> Result<Value<'a>, Fault> {
        // What stands in for a missing value is looked at only where it is needed.
        if let (Function::OrValue | Function::OrElse, [of, instead]) = (function, args) {
            let value = self.value(of)?;
            return match (value, function) {
                (Value::Optional(Some(inner)), Function::OrValue) => Ok((*inner).clone()),
                (Value::Optional(None), _) => self.value(instead),
                (value @ Value::Optional(_), _) => Ok(value),
                (value, _) => Err(Fault::misfit(of, &value, "an optional value")),
            };
        }
        let values = self.values(args)?;
        match values.as_slice() {
            [] => Ok(Value::none()),
            [value] => self.of_one(node, function, value),
            [left, right] => self.of_two(node, function, left, right),
            _ => Err(Fault::at(node, format!("{} has too many arguments", function.name()))),
        }
    }

    fn of_one(&mut self, node: &Node, function: Function, value: &Value<'a>) -> Result<Value<'a>, Fault> {
        if let Value::Text(text) = value {
            // All of it is looked at, and as much may be made.
            self.meter.spend_text(text.len())?;
        }
        let made = match (function, value) {
            (Function::Size, Value::Text(text)) => Some(count(text.chars().count())),
            (Function::Size, _) => value.length().map(count),
            (Function::LowerAscii, Value::Text(text)) => Some(Value::text(text.to_ascii_lowercase())),
            (Function::UpperAscii, Value::Text(text)) => Some(Value::text(text.to_ascii_uppercase())),
            (Function::Trim, Value::Text(text)) => Some(Value::text(text.trim())),
            (Function::Join, _) => return self.joined(node, value, ""),
            (Function::Int | Function::Uint | Function::Double, _) => number(function, value),
            (Function::String, _) => string(value),
            (Function::Bool, Value::Bool(value)) => Some(Value::Bool(*value)),
            (Function::Bool, Value::Text(text)) => match &**text {
                "true" | "True" | "TRUE" | "t" | "1" => Some(Value::Bool(true)),
                "false" | "False" | "FALSE" | "f" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            (Function::Dyn, _) => Some(value.clone()),
            (Function::Timestamp, Value::Timestamp(_)) | (Function::Duration, Value::Duration(_)) => {
                Some(value.clone())
            }
            (Function::Timestamp, Value::Text(text)) => text.parse::<Timestamp>().ok().map(Value::Timestamp),
            (Function::Duration, Value::Text(text)) => duration(text).map(Value::Duration),
            (Function::HasValue, Value::Optional(inner)) => Some(Value::Bool(inner.is_some())),
            (Function::OptionalValue, Value::Optional(Some(inner))) => Some((**inner).clone()),
            (Function::Of, _) => Some(Value::some(value.clone())),
            (Function::OfNonZero, _) if value.is_zero() => Some(Value::none()),
            (Function::OfNonZero, _) => Some(Value::some(value.clone())),
            _ => None,
        };
        made.ok_or_else(|| {
            let (name, given) = (function.name(), value.type_name());
            Fault::at(node, format!("{name} does not take {given}, or not this one"))
        })
    }

    fn of_two(
        &mut self,
        node: &Node,
        function: Function,
        left: &Value<'a>,
        right: &Value<'a>,
    ) -> Result<Value<'a>, Fault> {
        match (function, left, right) {
            (Function::Join, _, Value::Text(between)) => self.joined(node, left, between),
            (Function::SetContains, ..) => self.contains_all(node, left, right).map(Value::Bool),
            (Function::SetEquivalent, ..) => {
                let both = self.contains_all(node, left, right)? && self.contains_all(node, right, left)?;
                Ok(Value::Bool(both))
            }
            (Function::SetIntersects, ..) => {
                let items =
                    right.items(&mut self.meter)?.ok_or_else(|| Fault::misfit(node, right, "a list"))?;
                for item in items {
                    if self.is_in(node, &item, left)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            (_, Value::Text(text), Value::Text(part)) => {
                self.meter.spend_text(text.len().saturating_add(part.len()))?;
                match function {
                    Function::Contains => Ok(Value::Bool(text.contains(&**part))),
                    Function::StartsWith => Ok(Value::Bool(text.starts_with(&**part))),
                    Function::EndsWith => Ok(Value::Bool(text.ends_with(&**part))),
                    Function::Split => self.split(text, part),
                    _ => Err(Fault::misfit(node, left, "something else")),
                }
            }
            _ => {
                let (name, left, right) = (function.name(), left.type_name(), right.type_name());
                Err(Fault::at(node, format!("{name} does not take {left} and {right}")))
            }
        }
    }

    fn split(&mut self, text: &str, between: &str) -> Result<Value<'a>, Fault> {
        let mut parts = Vec::new();
        if between.is_empty() {
            for letter in text.chars() {
                self.meter.spend(1)?;
                parts.push(Value::text(letter.to_string()));
            }
        } else {
            for part in text.split(between) {
                self.meter.spend(1)?;
                parts.push(Value::text(part));
            }
        }
        Ok(Value::list(parts))
    }

    fn joined(&mut self, node: &Node, list: &Value<'a>, between: &str) -> Result<Value<'a>, Fault> {
        let items = list.items(&mut self.meter)?.ok_or_else(|| Fault::misfit(node, list, "a list"))?;
        let mut joined = String::new();
        for (place, item) in items.iter().enumerate() {
            let Value::Text(text) = item else { return Err(Fault::misfit(node, item, "a text")) };
            self.meter.spend_text(text.len().saturating_add(between.len()))?;
            if place > 0 {
                joined.push_str(between);
            }
            joined.push_str(text);
        }
        Ok(Value::text(joined))
    }

    fn contains_all(&mut self, node: &Node, all: &Value<'a>, some: &Value<'a>) -> Result<bool, Fault> {
        let items = some.items(&mut self.meter)?.ok_or_else(|| Fault::misfit(node, some, "a list"))?;
        for item in items {
            if !self.is_in(node, &item, all)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn count<'a>(count: usize) -> Value<'a> {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A number of another type; a fraction is cut towards zero, as the language says.
fn number<'a>(function: Function, value: &Value<'_>) -> Option<Value<'a>> {
    #[expect(clippy::cast_precision_loss, reason = "doubles are as exact as they are")]
    let double = match value {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::Text(text) => text.trim().parse().ok()?,
        _ => 0.0,
    };
    match (function, value) {
        (Function::Double, Value::Double(_) | Value::Int(_) | Value::Uint(_) | Value::Text(_)) => {
            Some(Value::Double(double))
        }
        (Function::Int, Value::Int(value)) => Some(Value::Int(*value)),
        (Function::Int, Value::Uint(value)) => i64::try_from(*value).ok().map(Value::Int),
        (Function::Int, Value::Text(text)) => text.parse().ok().map(Value::Int),
        (Function::Int, Value::Timestamp(time)) => Some(Value::Int(time.as_second())),
        (Function::Uint, Value::Uint(value)) => Some(Value::Uint(*value)),
        (Function::Uint, Value::Int(value)) => u64::try_from(*value).ok().map(Value::Uint),
        (Function::Uint, Value::Text(text)) => text.parse().ok().map(Value::Uint),
        #[expect(clippy::cast_possible_truncation, reason = "checked to be inside")]
        (Function::Int, Value::Double(value)) if value.abs() < 9.0e18 => Some(Value::Int(*value as i64)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be inside")]
        (Function::Uint, Value::Double(value)) if (0.0..1.8e19).contains(value) => {
            Some(Value::Uint(*value as u64))
        }
        _ => None,
    }
}

fn string<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    Some(match value {
        Value::Text(_) => value.clone(),
        Value::Bool(value) => Value::text(value.to_string()),
        Value::Int(value) => Value::text(value.to_string()),
        Value::Uint(value) => Value::text(value.to_string()),
        Value::Double(value) => Value::text(value.to_string()),
        Value::Timestamp(time) => Value::text(time.to_string()),
        Value::Duration(span) => Value::text(format!("{}s", span.as_secs_f64())),
        _ => return None,
    })
}

/// Such as `1h30m`, `90s`, `1.5h`, `-2ms`.
fn duration(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let mut seconds = 0.0_f64;
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at_checked(end)?;
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, factor) = units.into_iter().find(|(unit, _)| behind.starts_with(unit))?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = behind.strip_prefix(unit)?;
    }
    SignedDuration::try_from_secs_f64(sign * seconds).ok()
}
