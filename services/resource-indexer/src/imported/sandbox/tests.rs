use serde_json::json;

use super::*;

const NOW: i64 = 1_700_000_000;

/// In the form of Argo CD's own: a global `hs`, conditions in a loop.
const BERTH: &str = r#"
hs = {}
if obj.status ~= nil then
  if obj.status.conditions ~= nil then
    for i, condition in ipairs(obj.status.conditions) do
      if condition.type == "Moored" and condition.status == "False" then
        hs.status = "Degraded"
        hs.message = condition.message
        return hs
      end
      if condition.type == "Moored" and condition.status == "True" then
        hs.status = "Healthy"
        hs.message = "ropes: " .. obj.status.ropes .. " of " .. table.getn(obj.spec.bollards)
        return hs
      end
    end
  end
end
hs.status = "Progressing"
hs.message = "Waiting for the berth"
return hs
"#;

/// A function, `goto`, patterns, and the time.
const TIDE: &str = r#"
local os = require("os")
local function age(text)
  local year, month, day = string.match(text, "(%d+)-(%d+)-(%d+)")
  return os.time() - os.time({ year = year, month = month, day = day, hour = 0 })
end
hs = { status = "Healthy" }
for _, gauge in ipairs(obj.status.gauges) do
  if gauge.ignored then goto next end
  if age(gauge.read) > 86400 then
    hs.status = "Suspended"
    hs.message = string.format("%s was read before %s", gauge.name, os.date("!%Y-%m-%d"))
  end
  ::next::
end
return hs
"#;

fn health(status: &str, message: &str) -> Said {
    Said::Health { status: status.to_owned(), message: message.to_owned() }
}

fn said_of(script: &str) -> Said {
    judge(script, &json!({"spec": {"replicas": 3, "none": null}}), NOW).said
}

#[test]
fn rules_in_the_form_of_argo_cd_judge() {
    let berth = |status: Value| {
        judge(BERTH, &json!({"spec": {"bollards": ["a", "b", "c"]}, "status": status}), NOW).said
    };
    assert_eq!(berth(json!(null)), health("Progressing", "Waiting for the berth"));
    let moored = |status: &str| json!({"ropes": 2, "conditions": [{"type": "Fed", "status": "True"}, {"type": "Moored", "status": status, "message": "adrift"}]});
    assert_eq!(berth(moored("True")), health("Healthy", "ropes: 2 of 3"));
    assert_eq!(berth(moored("False")), health("Degraded", "adrift"));
}

#[test]
fn the_time_is_that_of_the_verdict_and_a_rule_that_asks_for_it_is_asked_again() {
    let gauges = |read: &str, ignored: bool| json!({"status": {"gauges": [{"name": "north", "read": read, "ignored": ignored}]}});
    let fresh = judge(TIDE, &gauges("2023-11-14T00:00:00Z", false), NOW);
    assert_eq!(fresh, Answer { said: health("Healthy", ""), asked_time: true });
    let old = judge(TIDE, &gauges("2023-11-01T00:00:00Z", false), NOW);
    assert_eq!(old.said, health("Suspended", "north was read before 2023-11-14"));
    let ignored = judge(TIDE, &gauges("2023-11-01T00:00:00Z", true), NOW);
    assert_eq!(ignored, Answer { said: health("Healthy", ""), asked_time: false });
}

#[test]
fn what_a_rule_returns_is_read_as_argo_cd_does() {
    for (script, said) in [
        ("return nil", Said::Nothing),
        ("return {}", Said::Nothing),
        ("", Said::Nothing),
        ("return {status='Healthy', message=obj.spec.replicas}", health("Healthy", "3")),
        ("return {message='only'}", health("", "only")),
        ("return {status='Fine'}", health("Fine", "")),
        (
            "return {status='Healthy', message='replicas: ' .. obj.spec.replicas}",
            health("Healthy", "replicas: 3"),
        ),
        ("if obj.spec.none == nil then return {status='Missing'} end", health("Missing", "")),
        ("return {status='Unknown', message=unpack({'first'})}", health("Unknown", "first")),
        ("return 'Healthy'", Said::Failed("it returned a string, and no table".to_owned())),
    ] {
        assert_eq!(said_of(script), said, "{script}");
    }
    for (script, part) in [
        ("\n\nreturn obj.status.phase", "rule:3: attempt to index a nil value (field 'status')"),
        ("hs = {", "rule:1: unexpected symbol near <eof>"),
        ("error('by itself', 0)", "by itself"),
    ] {
        let Said::Failed(why) = said_of(script) else { panic!("{script}") };
        assert!(why.contains(part) && !why.contains('\n'), "{why}");
    }
}

#[test]
fn nothing_reaches_outside() {
    for name in [
        "io",
        "debug",
        "package",
        "coroutine",
        "utf8",
        "load",
        "loadfile",
        "dofile",
        "os.execute",
        "os.exit",
        "os.getenv",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "os.setlocale",
        "string.dump",
    ] {
        assert_eq!(said_of(&format!("return {{status = type({name})}}")), health("nil", ""), "{name}");
    }
    assert!(matches!(said_of("require('io')"), Said::Failed(why) if why.contains("there is no module 'io'")));
    assert_eq!(
        said_of("print('to nobody') collectgarbage('stop') return {status='Healthy'}"),
        health("Healthy", "")
    );
}

#[test]
fn one_rule_leaves_nothing_for_the_next() {
    assert_eq!(said_of("string.format = nil leak = 1 return {status='Healthy'}"), health("Healthy", ""));
    assert_eq!(said_of("return {status=type(leak) .. type(string.format)}"), health("nilfunction", ""));
}

#[test]
fn memory_has_a_limit_however_it_is_used() {
    for script in [
        "local all = {} while true do all[#all + 1] = {} end",
        "local text = 'x' while true do text = text .. text end",
        "return string.rep('x', 1 << 40)",
        "collectgarbage('stop') local all = {} for i = 1, 1e9 do all[i] = tostring(i) end",
    ] {
        let said = said_of(script);
        let is_told = match &said {
            Said::OutOfMemory => true,
            Said::Failed(why) => why.contains("resulting string too large"),
            _ => false,
        };
        assert!(is_told, "{script}: {said:?}");
    }
    let deep = "local function deeper(n) return 1 + deeper(n + 1) end return deeper(1)";
    assert!(matches!(said_of(deep), Said::Failed(why) if why.contains("stack overflow")));
}

#[test]
fn long_messages_are_cut() {
    let Said::Health { message, .. } = said_of("return {status='Healthy', message=string.rep('ä', 5000)}")
    else {
        panic!()
    };
    assert_eq!(message.chars().count(), MESSAGE);
}
