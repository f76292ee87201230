//! One imported rule judges one object: in a state of Lua of its own, with the libraries that Argo CD gives, and nothing that reaches outside.

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaOptions, StdLib, Table, Value as LuaValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Memory that a rule may use, in bytes; the object that it judges is part of it.
pub(super) const MEMORY: usize = 64 << 20;
/// Longest text of an answer that is passed on, in letters.
const MESSAGE: usize = 1_000;

/// What a rule said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) said: Said,
    /// It asked for the time: another time it may say something else.
    pub(super) asked_time: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    /// Nothing of the object's health.
    Nothing,
    /// Argo CD's word for a health, and a text for people.
    Health { status: String, message: String },
    /// Nothing that can be understood.
    Failed(String),
    /// It needed more memory than it may use.
    OutOfMemory,
}

/// Runs before each rule. Rules were written for Lua 5.1; what they use of it beyond 5.4 is here. `os` keeps what tells the time, and the time
/// is that of the verdict.
const PRELUDE: &str = r#"
local now = ...
local asked = false
local time, date = os.time, os.date
for name in pairs(os) do os[name] = nil end
function os.time(parts)
  if parts ~= nil then return time(parts) end
  asked = true
  return now
end
function os.date(format, at)
  asked = asked or at == nil
  return date(format or "%c", at or now)
end
function table.getn(list) return #list end
unpack = table.unpack
string.dump = nil
dofile, loadfile, load = nil, nil, nil
function print() end
function collectgarbage() return 0 end
local libraries = { os = os, string = string, table = table, math = math }
function require(name)
  return libraries[name] or error("there is no module '" .. tostring(name) .. "'", 2)
end
actionParams = {}
return function() return asked end
"#;

/// Lets a rule judge an object at an instant, in seconds since 1970.
pub(super) fn judge(script: &str, object: &Value, now: i64) -> Answer {
    run(script, object, now).unwrap_or_else(|error| Answer { said: failed(&error), asked_time: false })
}

fn run(script: &str, object: &Value, now: i64) -> Result<Answer, Error> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(MEMORY)?;
    let asked: Function = lua.load(PRELUDE).set_name("=prelude").set_mode(ChunkMode::Text).call(now)?;
    lua.globals().set("obj", value_of(&lua, object)?)?;
    let chunk = lua.load(script).set_name("=rule").set_mode(ChunkMode::Text);
    let said = match chunk.call::<LuaValue>(()) {
        Ok(returned) => said(&returned)?,
        Err(error) => failed(&error),
    };
    Ok(Answer { said, asked_time: asked.call(())? })
}

fn value_of(lua: &Lua, value: &Value) -> Result<LuaValue, Error> {
    Ok(match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(value) => LuaValue::Boolean(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => LuaValue::Integer(whole),
            (None, Some(part)) => LuaValue::Number(part),
            (None, None) => LuaValue::Nil,
        },
        Value::String(text) => LuaValue::String(lua.create_string(text)?),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (place, item) in (1_i64..).zip(items) {
                table.raw_set(place, value_of(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(name.as_str(), value_of(lua, field)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// What a rule returned, in Argo CD's terms: a table with `status` and `message`, or nothing.
fn said(returned: &LuaValue) -> Result<Said, Error> {
    let table = match returned {
        LuaValue::Nil => return Ok(Said::Nothing),
        LuaValue::Table(table) if is_empty(table)? => return Ok(Said::Nothing),
        LuaValue::Table(table) => table,
        other => {
            return Ok(Said::Failed(format!("it returned a {}, and no table", other.type_name())));
        }
    };
    let message = match table.raw_get::<LuaValue>("message")? {
        LuaValue::String(text) => shortened(&text.to_string_lossy()),
        LuaValue::Integer(number) => number.to_string(),
        LuaValue::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let status = match table.raw_get::<LuaValue>("status")? {
        LuaValue::String(status) => shortened(&status.to_string_lossy()),
        _ => String::new(),
    };
    Ok(Said::Health { status, message })
}

fn is_empty(table: &Table) -> Result<bool, Error> {
    Ok(table.pairs::<LuaValue, LuaValue>().next().transpose()?.is_none())
}

fn failed(error: &Error) -> Said {
    match error {
        Error::MemoryError(_) => Said::OutOfMemory,
        Error::RuntimeError(message) | Error::SyntaxError { message, .. } => {
            // What follows is the way through the script.
            Said::Failed(shortened(message.lines().next().unwrap_or_default()))
        }
        other => Said::Failed(shortened(&other.to_string())),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE).collect()
}

#[cfg(test)]
mod tests;
