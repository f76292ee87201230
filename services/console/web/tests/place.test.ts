import assert from "node:assert/strict";
import { test } from "node:test";
import type { Line } from "../src/api/place.ts";
import type { Change, Health } from "../src/api/types.ts";
import { board, percent } from "../src/model/board.ts";
import { facts } from "../src/model/facts.ts";
import { pieces } from "../src/model/highlight.ts";
import { appended, parsed, plain } from "../src/model/log-lines.ts";
import { actionsOf } from "../src/model/actions.ts";
import { patched, touched, withNewer } from "../src/model/patches.ts";
import { lanes } from "../src/model/timeline.ts";
import { family, type Forest, HEIGHT, layout, next, type Node, WIDTH } from "../src/model/tree.ts";

const NOW = Date.parse("2026-01-31T12:00:00Z");
const at = (minutesAgo: number) => new Date(NOW - minutesAgo * 60_000).toISOString();

function line(kind: string, name: string, state: Health = "HEALTHY", more: Partial<Line> = {}): Line {
  const health = { state, message: "", terminating: false, optional: false };
  const group = ["Deployment", "ReplicaSet", "StatefulSet"].includes(kind) ? "apps" : "";
  const identity = { agent: "a", agentName: "edge", group, version: "v1", kind, namespace: "shop", name, uid: name };
  return { ...identity, health, createdAt: at(600), changedAt: at(5), stale: null, owners: [], ...more };
}

function forestOf(...nodes: [line: Line, parent?: string][]): Forest {
  return new Map(nodes.map(([line, parent = null]): [string, Node] => [line.uid, { line, parent, relation: parent ? "controls" : null }]));
}

const web = () =>
  forestOf(
    [line("Deployment", "web", "DEGRADED")],
    [line("ReplicaSet", "web-1", "DEGRADED"), "web"],
    ...Array.from({ length: 12 }, (_, number): [Line, string] => [line("Pod", `web-1-${number}`, number === 3 ? "DEGRADED" : "HEALTHY"), "web-1"]),
    [line("ConfigMap", "settings", "NONE")],
  );

test("siblings of one kind are folded, the worst stays open, and the way to it is marked", () => {
  const { drawn } = layout(web(), new Set(), new Set());
  assert.deepEqual(
    drawn.map((one) => one.line?.name ?? `${one.fold?.count} ${one.fold?.kind}`),
    ["web", "web-1", "web-1-3", "11 Pod", "settings"],
  );
  assert.deepEqual(drawn.filter(({ guilty }) => guilty).map(({ line }) => line?.name), ["web", "web-1", "web-1-3"]);
  const opened = layout(web(), new Set(["web-1/Pod."]), new Set());
  assert.equal(opened.drawn.length, 5 + 11);
  const closed = layout(web(), new Set(), new Set(["web"]));
  assert.deepEqual(closed.drawn.map(({ line }) => line?.name), ["web", "settings"]);
});

test("the one that has the pods stays beside its folded siblings", () => {
  const sets = ["a", "b", "c", "d", "e"].map((name): [Line, string] => [line("ReplicaSet", name), "web"]);
  const { drawn } = layout(forestOf([line("Deployment", "web")], ...sets, [line("Pod", "c-1"), "c"]), new Set(), new Set());
  assert.deepEqual(drawn.map((one) => one.line?.name ?? `${one.fold?.count} ${one.fold?.kind}`), ["web", "c", "c-1", "4 ReplicaSet"]);
});

test("nothing is drawn upon anything else, and children stand right of their parents", () => {
  const { drawn, width, height } = layout(web(), new Set(["web-1/Pod."]), new Set());
  const places = new Set(drawn.map(({ x, y }) => `${x} ${y}`));
  assert.equal(places.size, drawn.length);
  for (const { x, y, parent } of drawn) {
    assert.ok(x + WIDTH <= width && y + HEIGHT <= height);
    if (parent !== null) assert.ok((drawn[parent]?.x ?? 0) < x && (drawn[parent]?.y ?? 0) <= y);
  }
});

test("with the order of what was drawn, nothing moves when its health changes", () => {
  const before = forestOf([line("Deployment", "api")], [line("Deployment", "web")]);
  const order = new Map(layout(before, new Set(), new Set()).drawn.map(({ key }, at) => [key, at]));
  const after = forestOf([line("Deployment", "api")], [line("Deployment", "web", "DEGRADED")]);
  const names = (order: ReadonlyMap<string, number> | null) => layout(after, new Set(), new Set(), order).drawn.map(({ key }) => key);
  assert.deepEqual(names(order), ["api", "web"]);
  assert.deepEqual(names(null), ["web", "api"]);
});

test("a ring of owners and twenty thousand objects are laid out at once", () => {
  const ring = forestOf([line("A", "one"), "two"], [line("A", "two"), "one"], [line("A", "three")]);
  assert.ok(layout(ring, new Set(), new Set()).drawn.length <= 3);
  const many: [Line, string?][] = [];
  for (let number = 0; number < 2000; number++) {
    many.push([line("Deployment", `d${number}`)], [line("ReplicaSet", `d${number}-1`), `d${number}`]);
    for (let pod = 0; pod < 8; pod++) many.push([line("Pod", `d${number}-1-${pod}`), `d${number}-1`]);
  }
  const began = performance.now();
  layout(forestOf(...many), new Set(["/Deployment.apps"]), new Set());
  assert.ok(performance.now() - began < 1500, `${performance.now() - began} ms`);
});

test("a layout that is made from the one before is the same as a new one", () => {
  const kinds: Health[] = ["HEALTHY", "DEGRADED", "PROGRESSING", "NONE"];
  let forest: Map<string, Node> = new Map();
  let before: ReturnType<typeof layout> | null = null;
  for (let step = 0; step < 60; step++) {
    forest = new Map(forest);
    for (let many = 0; many < 6; many++) {
      const number = (step * 7 + many * 13) % 40;
      const [set, pod] = [`set-${number % 5}`, `set-${number % 5}-${number}`];
      if (step % 9 === 8) forest.delete(pod);
      else forest.set(pod, { line: line("Pod", pod, kinds[(step + many) % 4]), parent: set, relation: "controls" });
      forest.set(set, { line: line("ReplicaSet", set, kinds[step % 4]), parent: null, relation: null });
    }
    const open = new Set(["set-1/Pod.", "/ReplicaSet.apps"]);
    before = layout(forest, open, new Set(), null, before);
    assert.deepEqual(before.drawn, layout(forest, open, new Set()).drawn, `step ${step}`);
  }
});

test("changes come in front of those that are known, once each, and old ones leave", () => {
  const change = (uid: string, minutesAgo: number): Change => ({
    agent: "a", agentName: "edge", group: "", kind: "Pod", namespace: "shop", name: uid, uid, recordedAt: at(minutesAgo), seenAt: at(minutesAgo), notBefore: null, owned: false, what: "changed",
    writer: null, fields: [], fieldCount: 0, health: "HEALTHY", healthBefore: null,
  });
  const known = [change("b", 2), change("a", 3), change("old", 70)];
  const names = (some: Change[], limit = 10) => withNewer(known, some, NOW - 3_600_000, limit).map(({ uid }) => uid);
  assert.deepEqual(names([change("c", 1), change("d", 0)]), ["d", "c", "b", "a"]);
  assert.deepEqual(names([change("b", 2), change("late", 2.5)]), ["b", "late", "a"], "the one that is known comes once, the late one at its time");
  assert.deepEqual(names([change("c", 1)], 2), ["c", "b"]);
});

test("all that is below an object is of its family, and a ring ends", () => {
  const forest = forestOf([line("A", "one"), "two"], [line("A", "two"), "one"], [line("A", "three"), "two"], [line("A", "other")]);
  assert.deepEqual([...family(line("A", "two"), forest).keys()].sort(), ["one", "three", "two"]);
});

test("the arrows lead through a tree", () => {
  const drawing = layout(web(), new Set(), new Set());
  const name = (at: number) => drawing.drawn[at]?.line?.name;
  assert.equal(name(next(drawing, 0, "ArrowRight")), "web-1");
  assert.equal(name(next(drawing, 2, "ArrowLeft")), "web-1");
  assert.equal(name(next(drawing, 0, "ArrowUp")), "web");
  assert.equal(name(next(drawing, 0, "End")), "settings");
});

const labels = (all: Record<string, string>, replicas: number, ready: number) => ({ metadata: { labels: all }, spec: { replicas }, status: { readyReplicas: ready, updatedReplicas: replicas } });

test("stable and canary of one application stand in one block", () => {
  const forest = forestOf([line("Deployment", "web")], [line("Deployment", "web-canary")], [line("ReplicaSet", "s"), "web"], [line("Pod", "p1"), "s"], [line("ReplicaSet", "c"), "web-canary"], [line("Pod", "p2"), "c"]);
  const bodies = new Map([
    ["web", labels({ app: "web", track: "stable" }, 1, 1)],
    ["web-canary", labels({ app: "web", track: "canary" }, 1, 0)],
  ]);
  const [block, ...rest] = board(forest, bodies);
  assert.equal(rest.length, 0);
  assert.deepEqual(block?.tracks.map(({ name, pods }) => [name, pods.length]), [["canary", 1], ["stable", 1]]);
  assert.deepEqual([block?.wanted, block?.ready], [2, 1]);
});

test("a rollout shows new pods beside old ones, by the revision and not by age", () => {
  const forest = forestOf([line("Deployment", "web")], [line("ReplicaSet", "first"), "web"], [line("ReplicaSet", "second"), "web"], [line("Pod", "a"), "first"], [line("Pod", "b"), "second"]);
  const revision = (number: string) => ({ metadata: { annotations: { "deployment.kubernetes.io/revision": number } } });
  const [block] = board(forest, new Map([["first", revision("3")], ["second", revision("2")]]));
  assert.deepEqual(block?.tracks.map(({ name, pods }) => [name, pods[0]?.name]), [["new", "a"], ["old", "b"]]);
  const set = forestOf([line("StatefulSet", "db")], [line("Pod", "db-0"), "db"], [line("Pod", "db-1"), "db"], [line("Pod", "db-2"), "db"]);
  const [parted] = board(set, new Map([["db", { spec: { replicas: 3, updateStrategy: { rollingUpdate: { partition: 2 } } } }]]));
  assert.deepEqual(parted?.tracks.map(({ name, pods }) => [name, pods.length]), [["canary", 1], ["stable", 2]]);
  assert.equal(percent(2, 3), 66);
  assert.equal(percent(0, 0), 100);
});

test("a lane begins where something is known, and shows who did what", () => {
  const change = (minutesAgo: number, health: Health, healthBefore: Health | null, manager = "kubectl-edit"): Change => ({
    agent: "a", agentName: "edge", group: "apps", kind: "Deployment", namespace: "shop", name: "web", uid: "web", recordedAt: at(minutesAgo), seenAt: at(minutesAgo), notBefore: null, owned: false, what: "changed",
    writer: { manager, subresource: "" }, fields: ["spec.replicas"], fieldCount: 1, health, healthBefore,
  });
  const forest = forestOf([line("Deployment", "web", "HEALTHY")], [line("ConfigMap", "still", "NONE")]);
  const [lane, ...rest] = lanes(forest, [change(10, "HEALTHY", "DEGRADED"), change(20, "DEGRADED", "HEALTHY")], NOW - 3_600_000, NOW, NOW - 1_800_000);
  assert.equal(rest.length, 0, "what has no health and did not change has no lane");
  assert.deepEqual(lane?.stretches.map(({ from, status }) => [(NOW - from) / 60_000, status]), [[30, "healthy"], [20, "degraded"], [10, "healthy"]]);
  assert.deepEqual(lane?.marks.map(({ kind }) => kind), ["made", "degraded"]);
});

test("whatever a program writes is text", () => {
  assert.equal(plain("\u001b[31mred\u001b[0m \u001b]0;title\u0007x\u001b[2J"), "red x");
  assert.equal(plain("a\u0000b\u0008c\rd"), "a␀b␈c␍d");
  assert.equal(plain("user\u202Egnp.exe"), "user·gnp.exe");
  assert.equal(plain("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
  assert.ok(plain("x".repeat(100_000)).length < 5000);
  assert.deepEqual(parsed(1, "2026-01-31T12:00:00.123456789Z hello world"), { from: 1, at: "2026-01-31T12:00:00.123456789Z", text: "hello world" });
  assert.equal(parsed(0, "no time here").text, "no time here");
  const said = (at: string, text: string) => ({ from: 0, at, text });
  assert.deepEqual(appended([said("1", "a")], [said("3", "c"), said("2", "b")], 2).map(({ text }) => text), ["b", "c"]);
});

test("YAML is coloured by the line, and nothing is lost of it", () => {
  for (const text of ["metadata:", "  name: web", "- port: 80", '  "a: b": true', "    plain text: with colon", "  url: http://x:80/", "", "    <script>"]) {
    assert.equal(pieces(text).map((piece) => piece.text).join(""), text);
  }
  assert.deepEqual(pieces("  replicas: 3").filter(({ kind }) => kind).map(({ kind, text }) => [kind, text.trim()]), [["key", "replicas"], ["number", "3"]]);
});

test("what can be done is one request, and the command says the same", () => {
  const found = actionsOf(line("Deployment", "web"), { spec: { replicas: 3 } }, 3, 5);
  assert.deepEqual(found.map(({ name }) => name), ["Restart", "Scale", "Pause"]);
  const scale = found.find(({ name }) => name === "Scale");
  assert.equal(scale?.path, "/apis/apps/v1/namespaces/shop/deployments/web/scale");
  assert.equal(scale?.says, "Changes web in shop from 3 to 5 replicas.");
  assert.equal(scale?.kubectl, "kubectl -n shop scale deployment/web --replicas 5");
  const [removal] = actionsOf(line("Pod", "web-1"), null, 0, null);
  assert.deepEqual([removal?.method, removal?.path], ["DELETE", "/api/v1/namespaces/shop/pods/web-1"]);
  assert.deepEqual(actionsOf(line("ConfigMap", "x"), null, 0, null), []);
  assert.deepEqual(facts("Deployment", { spec: { replicas: 3 }, status: { readyReplicas: 2, updatedReplicas: 3 } }).map(({ value }) => value), ["2 of 3", "3 of 3"]);
});

test("a change says health by itself, and what is gone; other fields and new objects are asked for", () => {
  const change = (uid: string, what: string, health: Health): Change => ({
    agent: "a", agentName: "edge", group: "", kind: "Pod", namespace: "shop", name: uid, uid, recordedAt: at(0), seenAt: at(0), notBefore: null, owned: false, what,
    writer: null, fields: [], fieldCount: 0, health, healthBefore: null,
  });
  const forest = forestOf([line("Deployment", "web")], [line("ReplicaSet", "set"), "web"], [line("Pod", "old"), "set"], [line("Pod", "kept"), "set"]);
  const after = touched(forest, [change("old", "deleted", "NONE"), change("kept", "changed", "DEGRADED"), change("new", "created", "PROGRESSING")]);
  assert.deepEqual([...after.keys()], ["web", "set", "kept"]);
  assert.equal(after.get("kept")?.line.health.state, "DEGRADED");
  assert.equal(forest.get("kept")?.line.health.state, "HEALTHY", "what is shown is not changed under its reader");
  const above = { relation: "controls", inwards: true, uid: "set" };
  const fresh = { resource: line("Pod", "new"), environments: [], related: [{ relation: "mounts", inwards: false, uid: "x" }, above] };
  const others = { resource: line("Pod", "stranger"), environments: [{ id: "another" }], related: [] };
  const found = patched(after, [fresh, others], "mine");
  assert.equal(found.get("new")?.parent, "set");
  assert.equal(found.has("stranger"), false, "it belongs to another environment");
  assert.equal(patched(after, [others], "another").get("stranger")?.parent, null);
});
