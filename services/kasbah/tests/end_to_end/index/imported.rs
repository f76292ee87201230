//! Health rules of Argo CD on a real API server: those that judge, and hostile ones.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::eventually;

use super::declared::{create, definition};
use super::stage::{Stage, names};
use crate::scene::LIMIT;

/// What the agent's configuration imports.
const IMPORTED: &str = r#"health:
  rules:
    - group: harbour.example
      kind: Dock
      healthy: status.level == 'low'
  imported:
    - group: harbour.example
      kind: Dock
      lua: return {status = "Degraded", message = "nobody asks me"}
    - group: harbour.example
      kind: Pier
      lua: |
        hs = {}
        if obj.status ~= nil and obj.status.conditions ~= nil then
          for i, condition in ipairs(obj.status.conditions) do
            if condition.type == "Moored" and condition.status == "False" then
              hs.status = "Degraded"
              hs.message = condition.message
              return hs
            end
            if condition.type == "Moored" and condition.status == "True" then
              hs.status = "Healthy"
              return hs
            end
          end
        end
        hs.status = "Progressing"
        hs.message = "Waiting for " .. obj.spec.metres .. " metres"
        return hs
    - group: harbour.example
      kind: Loop
      lua: while true do pcall(function() while true do end end) end
    - group: harbour.example
      kind: Hoard
      lua: local all = {} while true do all[#all + 1] = {} end
    - group: harbour.example
      kind: Pattern
      lua: return {status = string.find(string.rep("a", 60), string.rep("a-", 30) .. "b")}
    - group: harbour.example
      kind: Chatter
      lua: for i = 1, 100000 do print(i) end return {status = "Healthy"}
    - group: harbour.example
      kind: Wrong
      lua: return obj.status.phase.name
    - group: harbour.example
      kind: Other
      lua: return {status = "Splendid"}
"#;

const HOSTILE: [(&str, &str, &str); 6] = [
    ("loop", "unknown", "the imported rule took longer than 1 s and was stopped"),
    ("hoard", "unknown", "the imported rule needed more than 64 MiB"),
    ("pattern", "unknown", "the imported rule took longer than 1 s and was stopped"),
    ("chatter", "healthy", ""),
    ("wrong", "unknown", "the imported rule failed: rule:1: attempt to index a nil value"),
    ("other", "unknown", "no valid health status: 'Splendid'"),
];

fn moored(status: &str) -> Value {
    json!({"conditions": [{"type": "Moored", "status": status, "message": "adrift"}]})
}

fn capital(kind: &str) -> String {
    kind.get(..1).unwrap_or_default().to_uppercase() + kind.get(1..).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_rules_judge_and_harm_nobody() {
    let stage = Stage::start_with(IMPORTED).await;
    let kinds = HOSTILE.iter().map(|(kind, ..)| *kind).chain(["pier", "dock"]);
    for kind in kinds {
        stage.cluster().kubectl_with_input(["create", "-f", "-"], &definition(&capital(kind))).await.unwrap();
    }
    let spec = json!({"metres": 3});
    for (kind, ..) in HOSTILE {
        create(&stage, &capital(kind), "one", &spec, &json!({"phase": null, "seen": true})).await;
    }
    create(&stage, "Dock", "low", &spec, &json!({"level": "low"})).await;
    create(&stage, "Pier", "long", &spec, &json!({})).await;
    let waits = stage.health_becomes("pier/long", "progressing").await;
    eventually(LIMIT, || async {
        let pier = stage.health_becomes("pier/long", "progressing").await["health"].clone();
        anyhow::ensure!(pier["message"] == "Waiting for 3 metres", "{pier}");
        Ok(())
    })
    .await;
    assert_eq!(waits["health"]["rule"], "imported", "{waits}");
    assert!(waits["health"]["rule_set"].as_str().is_some_and(|set| set.len() == 12), "{waits}");
    // What the configuration declares itself comes before, and what an imported rule says changes with the object.
    assert_eq!(stage.health_becomes("dock/low", "healthy").await["health"]["rule"], "declared");
    for (status, state) in [("True", "healthy"), ("False", "degraded"), ("True", "healthy")] {
        create(&stage, "Pier", "long", &spec, &moored(status)).await;
        stage.health_becomes("pier/long", state).await;
    }
    for (kind, state, part) in HOSTILE {
        let object = format!("{kind}/one");
        let health = eventually(LIMIT, || async {
            let health = stage.health_becomes(&object, state).await["health"].clone();
            anyhow::ensure!(
                health["message"].as_str().unwrap_or_default().contains(part),
                "{object}: {health}"
            );
            Ok(health)
        })
        .await;
        assert_eq!(health["rule"], "imported", "{object}: {health}");
    }
    the_past_is_judged_too(&stage);
    // Objects of others are judged while some loop.
    let began = Instant::now();
    create(&stage, "Pier", "late", &spec, &moored("False")).await;
    stage.health_becomes("pier/late", "degraded").await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

fn the_past_is_judged_too(stage: &Stage) {
    let history = stage.json(&["history", "pier/long", "-n", stage.namespace()]).unwrap();
    let states = names(&history, "/health");
    assert_eq!(states[..4], ["healthy", "degraded", "healthy", "progressing"], "{history:#}");
}

#[test]
fn rule_test_asks_imported_rules_and_outlives_them() {
    let folder = testkit::Folder::temporary().unwrap();
    let file = folder.path().join("tests.yaml");
    let imported = IMPORTED
        .split_once("  imported:\n")
        .unwrap()
        .1
        .lines()
        .map(|line| format!("{}\n", line.get(2..).unwrap()));
    let tests = HOSTILE.map(|(kind, state, _)| {
        let object = json!({"apiVersion": "harbour.example/v1", "kind": capital(kind), "metadata": {"name": "one"}, "status": {}});
        format!("  - {{state: {state}, object: {object}}}\n")
    });
    let deleted = json!({"apiVersion": "harbour.example/v1", "kind": "Loop", "metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let last = format!("  - {{state: progressing, object: {deleted}}}\n");
    let content = format!("imported:\n{}tests:\n{}{last}", imported.collect::<String>(), tests.concat());
    std::fs::write(&file, content).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kasbah"));
    let output = command.args(["rule", "test", "-o", "json"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let tested: Value = serde_json::from_str(&text).unwrap();
    for (place, (kind, _, part)) in HOSTILE.iter().enumerate() {
        let message = tested["tests"][place]["message"].as_str().unwrap();
        assert!(message.contains(part), "{kind}: {message}");
    }
    assert_eq!(tested["tests"][HOSTILE.len()]["rule"], "deletion", "{tested:#}");
}
