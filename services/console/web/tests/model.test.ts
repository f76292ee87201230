import assert from "node:assert/strict";
import { test } from "node:test";
import type { AroundAnswer, Link, Past } from "../src/api/queries.ts";
import type { Change, Health, Resource } from "../src/api/types.ts";
import { news } from "../src/model/news.ts";
import { isSomebody, lastMade, notWellSince, stretches, troublesOf, wrong } from "../src/model/overview.ts";
import { compare, worst } from "../src/model/status.ts";
import { ago, moment, readable, span } from "../src/model/time.ts";
import { yaml } from "../src/model/yaml.ts";

const MINUTE = 60_000;
const NOW = Date.parse("2026-01-31T12:00:00Z");
const at = (minutesAgo: number) => new Date(NOW - minutesAgo * MINUTE).toISOString();

function resource(kind: string, name: string, state: Health, more: Partial<Resource> = {}): Resource {
  const health = { state, message: `${name} says why`, terminating: false, optional: false };
  const identity = { agent: "a", agentName: "edge", group: "", kind, namespace: "shop", name, uid: name };
  return { ...identity, health, createdAt: null, changedAt: at(5), stale: null, ...more };
}

const chain = (...links: Resource[]): { resources: Link[] } => ({ resources: links });
const nothing: AroundAnswer = { environments: { nodes: [] }, sources: { nodes: [] }, agents: { nodes: [] }, coverage: { agents: [] } };

function past(minutesAgo: number, health: Health, healthBefore: Health | null = null, manager = "kubelet", fields = ["status.phase"]): Past {
  const writer = { manager, subresource: fields[0]?.startsWith("status") ? "status" : "" };
  return { uid: "web", recordedAt: at(minutesAgo), seenAt: at(minutesAgo), notBefore: null, what: "changed", writer, fields, fieldCount: fields.length, health, healthBefore };
}

test("an object that another one explains is shown with it, and only there", () => {
  const [deployment, set, pod] = [resource("Deployment", "web", "PROGRESSING"), resource("ReplicaSet", "web-1", "PROGRESSING"), resource("Pod", "web-1-x", "DEGRADED")];
  const chains = [chain(pod), chain(deployment, set, pod), chain(set, pod)];
  const found = troublesOf([deployment, set, pod], chains);
  assert.deepEqual(found.map(({ root, guilty, status }) => [root.name, guilty.name, status]), [["web", "web-1-x", "degraded"]]);
  assert.deepEqual(troublesOf([deployment, pod], null).map(({ root }) => root.name), ["web-1-x", "web"], "without chains each stands for itself");
  const optional = resource("PersistentVolumeClaim", "cache", "PROGRESSING");
  optional.health.optional = true;
  assert.deepEqual(troublesOf([optional], [chain(optional)]), []);
});

test("places come worst first, then latest, with the environment's name where there is one", () => {
  const [here, there, late] = [
    resource("Pod", "here", "PROGRESSING"),
    resource("Pod", "there", "DEGRADED", { namespace: "pay" }),
    resource("Pod", "late", "DEGRADED", { namespace: "search", changedAt: at(1) }),
  ];
  const deployment = { status: "SUCCESS", reason: "", ref: null, sha: "4f1a", by: "user:ann", createdAt: at(60), finishedAt: at(59) } as const;
  const lastDeployment = { ...deployment, agent: { id: "a", kubernetesNamespace: "pay" } };
  const environment = { id: "e", name: "production", projectPath: "shop/pay", tier: "PRODUCTION", state: "AVAILABLE", externalUrl: null, running: 0 } as const;
  const around: AroundAnswer = { ...nothing, environments: { nodes: [{ ...environment, lastDeployment, lastSuccess: lastDeployment }] } };
  const why = new Map([["a/shop", [chain(here)]], ["a/pay", [chain(there)]], ["a/search", [chain(late)]]]);
  const groups = wrong([here, there, late], why, around);
  assert.deepEqual(groups.map(({ title }) => title), ["search", "production", "shop"]);
  assert.equal(groups[1]?.tier, "PRODUCTION");
});

test("what no object says is shown as well: a rejected commit, a cluster that is gone", () => {
  const source = { id: "s", agent: "a", name: "shop", defaultNamespace: "shop", newestCommit: null, desiredCommit: null, syncedCommit: null, syncedAt: null, sync: null };
  const rejected = { ...source, status: { state: "REJECTED", reason: "commit-rejected", message: "web.yaml:3 is wrong", since: at(9) } } as const;
  const agent = { id: "b", name: "hel", projectPath: "ops/clusters", registeredAt: at(900), status: { state: "STALE", conditions: [], instances: [], goneSince: at(4) } } as const;
  const cluster = { agent: "b", agentName: "hel", objects: 1412, kinds: 3, heardAt: at(4), stale: "gone", blindCount: 0, blind: [] };
  const around = { ...nothing, sources: { nodes: [rejected] }, agents: { nodes: [agent] }, coverage: { agents: [cluster] } } as unknown as AroundAnswer;
  const [first, second] = wrong([], new Map(), around);
  assert.equal(first?.status, "out-of-sync");
  assert.equal(first?.remarks[0]?.text, "Source shop: web.yaml:3 is wrong");
  assert.equal(second?.word, "Not connected");
  assert.match(second?.remarks[0]?.text ?? "", /1,412 objects/);
});

test("a day is drawn from changes, and what is not known is left out", () => {
  const changes = [past(10, "DEGRADED", "HEALTHY"), past(60, "HEALTHY", "PROGRESSING"), past(70, "PROGRESSING")];
  const drawn = stretches(changes, NOW - 120 * MINUTE, NOW);
  assert.deepEqual(
    drawn.map(({ status, from, until }) => [status, (NOW - from) / MINUTE, (NOW - until) / MINUTE]),
    [["progressing", 70, 60], ["healthy", 60, 10], ["degraded", 10, 0]],
  );
  assert.equal(stretches([], NOW - 1, NOW).length, 0);
});

test("since when something is not well counts from when it last was", () => {
  const changes = [past(3, "DEGRADED"), past(10, "DEGRADED", "PROGRESSING"), past(12, "PROGRESSING", "HEALTHY"), past(50, "DEGRADED", "HEALTHY")];
  assert.equal(notWellSince(changes), NOW - 12 * MINUTE);
  assert.equal(notWellSince([past(3, "HEALTHY", "DEGRADED")]), null);
});

test("controllers follow, people and their programs decide", () => {
  const by = (manager: string, subresource = "") => isSomebody({ manager, subresource });
  assert.ok(by("kubectl-edit") && by("kasbah") && by("helm") && by("controller-gen"));
  assert.ok(!by("kube-controller-manager") && !by("kubelet") && !by("cert-manager-controller") && !by("kubectl-edit", "status") && !isSomebody(null));
  const changes = [past(1, "HEALTHY"), past(2, "HEALTHY", null, "kubectl-scale", ["spec.replicas"])];
  assert.equal(lastMade(changes)?.writer?.manager, "kubectl-scale");
});

test("an hour is grouped by cause", () => {
  const change = (minutesAgo: number, name: string, manager: string, more: Partial<Change> = {}): Change => {
    const { health: _, ...identity } = resource("ConfigMap", name, "NONE");
    return { ...identity, ...past(minutesAgo, "NONE", null, manager, ["data.a"]), uid: name, owned: false, ...more };
  };
  const told = news(
    [
      change(1, "one", "kubectl-edit"),
      change(5, "two", "helm"),
      change(5.2, "three", "helm"),
      change(7, "applied", "kasbah"),
      change(8, "web", "kube-controller-manager", { kind: "Deployment", health: "DEGRADED", healthBefore: "HEALTHY" }),
      change(9, "web-x", "kubelet", { kind: "Pod", health: "DEGRADED", healthBefore: "HEALTHY" }),
      change(90, "long ago", "kubectl-edit"),
    ],
    nothing,
    NOW,
  );
  assert.deepEqual(told.map(({ who, what }) => `${who} ${what}`), [
    "kubectl-edit changed ConfigMap one: data.a",
    "helm changed 2 objects",
    "Deployment web became degraded",
    "Pod web-x became degraded",
  ]);
});

test("what was deleted is told, whoever did it and whether that was seen", () => {
  const gone = (minutesAgo: number, name: string, what: string, more: Partial<Change> = {}): Change => {
    const { health: _, ...identity } = resource("ConfigMap", name, "NONE");
    return { ...identity, ...past(minutesAgo, "NONE"), uid: name, owned: false, what, writer: null, fields: [], fieldCount: 0, ...more };
  };
  const created = gone(2, "made", "created", { writer: { manager: "kubectl-create", subresource: "" }, seenAt: at(30) });
  const told = news(
    [
      gone(1, "seen", "deleted"),
      created,
      gone(2, "while-away", "deleted", { seenAt: at(20) }),
      gone(5, "one", "vanished", { notBefore: at(45) }),
      gone(5.1, "two", "vanished", { notBefore: at(50) }),
      gone(8, "ever", "vanished"),
      gone(9, "job", "deleted", { kind: "Job", owned: true }),
      gone(9, "pod", "deleted", { kind: "Pod" }),
      gone(10, "left-out", "unobserved"),
    ],
    nothing,
    NOW,
  );
  const then = (minutesAgo: number) => moment(NOW - minutesAgo * MINUTE, NOW);
  assert.deepEqual(told.map(({ who, what }) => `${who} ${what}`), [
    "ConfigMap seen was deleted",
    `kubectl-create created ConfigMap made at ${then(30)}`,
    `ConfigMap while-away was deleted at ${then(20)}`,
    `ConfigMap one, ConfigMap two were deleted between ${then(50)} and ${then(5)}, unseen`,
    `ConfigMap ever was deleted before ${then(8)}, unseen`,
  ]);
});

test("the worst status wins", () => {
  assert.equal(worst(["healthy", "progressing", "degraded", "unknown"]), "degraded");
  assert.equal(worst([]), "none");
  assert.ok(compare("missing", "progressing") < 0);
});

test("times are relative within a day", () => {
  assert.deepEqual([4000, 12 * MINUTE, 185 * MINUTE, 3 * 1440 * MINUTE].map(span), ["4 s", "12 min", "3 h 5 min", "3 d"]);
  assert.equal(ago(NOW - 4000, NOW), "4 s ago");
  assert.ok(!readable(`not connected since ${at(5)}`, NOW).includes("T"));
});

test("YAML means what the value is, whatever its texts look like", () => {
  const value = { name: "web", replicas: 3, on: "yes", empty: {}, list: [], args: ["--a", { b: ["1", 2] }], text: "one\ntwo\n", hostile: "a: b # <script>\u0007", none: null };
  assert.equal(
    yaml(value),
    'name: web\nreplicas: 3\n"on": "yes"\nempty: {}\nlist: []\nargs:\n- "--a"\n- b:\n  - "1"\n  - 2\ntext: |\n  one\n  two\nhostile: "a: b # <script>\\u0007"\nnone: null\n',
  );
});
