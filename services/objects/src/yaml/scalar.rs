//! What a plain scalar means: YAML 1.1 as kubectl's reader knows it.

use super::Value;
use serde_json::Number;

/// Meaning of a plain scalar without a tag.
pub(super) fn resolve_plain(text: &str) -> Value {
    if let Some(value) = word(text) {
        return value;
    }
    match text.bytes().next() {
        Some(b'.') => float(text),
        Some(b'0'..=b'9' | b'+' | b'-') => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| yaml_float(&digits))
        }
        _ => None,
    }
    .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn word(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Value::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// An integer with an optional sign and a prefix `0x`, `0b`, `0o` or just `0`.
fn integer(text: &str) -> Option<Value> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let signed = unsigned.len() != text.len();
    let (radix, digits) = radix_of(unsigned);
    if unsigned.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let Some(magnitude) = magnitude(digits, radix) else {
        // Larger than 64 bits: JSON readers take it as a float. Decimal ones are left to the float rule.
        return (radix != 10).then(|| Value::Float(large(digits, radix, negative)));
    };
    let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    if let Ok(value) = i64::try_from(value) {
        return Some(Value::Int(value));
    }
    // Only an unsigned text may use the range above i64.
    (!signed).then_some(Value::UInt(magnitude))
}

fn radix_of(text: &str) -> (u32, &str) {
    let bytes = text.as_bytes();
    let prefixed = || text.get(2..).filter(|digits| !digits.is_empty());
    match (bytes.first(), bytes.get(1)) {
        (Some(b'0'), Some(b'x' | b'X')) => prefixed().map_or((8, text), |digits| (16, digits)),
        (Some(b'0'), Some(b'b' | b'B')) => prefixed().map_or((8, text), |digits| (2, digits)),
        (Some(b'0'), Some(b'o' | b'O')) => prefixed().map_or((8, text), |digits| (8, digits)),
        (Some(b'0'), Some(_)) => (8, text.get(1..).unwrap_or_default()),
        _ => (10, text),
    }
}

fn magnitude(digits: &str, radix: u32) -> Option<u64> {
    u64::from_str_radix(digits, radix).ok()
}

fn large(digits: &str, radix: u32, negative: bool) -> f64 {
    let value = digits
        .chars()
        .filter_map(|digit| digit.to_digit(radix))
        .fold(0.0, |value: f64, digit| value.mul_add(f64::from(radix), f64::from(digit)));
    if negative { -value } else { value }
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`
fn yaml_float(text: &str) -> Option<Value> {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (body.get(..at)?, body.get(at + 1..)),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if exponent.is_empty() || !digits(exponent) {
            return None;
        }
    }
    float(text)
}

/// A decimal float in range; one that is out of range stays text.
fn float(text: &str) -> Option<Value> {
    let decimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let value: f64 = if decimal { text.parse().ok()? } else { return None };
    value.is_finite().then_some(Value::Float(value))
}

/// Meaning of a scalar with one of YAML's own tags (`!!int`, ...), given the tag's last part.
/// `Err` says what is wrong; `None` means that the tag is not one that changes a scalar's type.
pub(super) fn resolve_tagged(tag: &str, text: &str) -> Option<Result<Value, String>> {
    let plain = resolve_plain(text);
    let fits = match (tag, &plain) {
        ("str", _) => return Some(Ok(Value::String(text.to_owned()))),
        ("timestamp", _) => return Some(Ok(Value::String(text.to_owned()))),
        ("binary", _) => return Some(binary(text)),
        ("float", Value::Int(value)) => return Some(Ok(Value::Float(to_float(*value)))),
        ("int", Value::Int(_) | Value::UInt(_))
        | ("float", Value::Float(_))
        | ("bool", Value::Bool(_))
        | ("null", Value::Null) => true,
        ("int" | "float" | "bool" | "null", _) => false,
        _ => return None,
    };
    Some(if fits { Ok(plain) } else { Err(format!("'{text}' is not what its tag !!{tag} says")) })
}

fn binary(text: &str) -> Result<Value, String> {
    use base64::Engine as _;
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(compact)
        .map_err(|_| "a !!binary value that is not base64".to_owned())?;
    String::from_utf8(bytes).map(Value::String).map_err(|_| {
        "a !!binary value that is not text cannot be sent as JSON; use the kind's own base64 field without the tag"
            .to_owned()
    })
}

#[expect(clippy::cast_precision_loss, reason = "!!float asks for exactly this conversion")]
const fn to_float(value: i64) -> f64 {
    value as f64
}

/// A float without a fraction as an integer, where that loses nothing.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
pub fn int_as_number(value: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then(|| Number::from(value as i64))
}

/// A mapping's key as the text that JSON needs. `None`: kubectl has no text for it either.
pub(super) fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Int(value) => Some(value.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Float(value) => Some(float_key(*value)),
        Value::Null | Value::UInt(_) | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// Shortest form of a single-precision float; below 1e-4 and from 1e6 on with a two-digit exponent.
#[expect(clippy::cast_possible_truncation, reason = "kubectl writes float keys in single precision")]
fn float_key(value: f64) -> String {
    let single = value as f32;
    if single.is_nan() {
        return ".nan".to_owned();
    }
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{single:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{single}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
