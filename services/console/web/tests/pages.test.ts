import assert from "node:assert/strict";
import { test } from "node:test";
import type { Commit, CommitSync, ObjectDiff, SourceDiff, WholeSource } from "../src/api/delivery.ts";
import type { Change } from "../src/api/types.ts";
import { after, folded, rows, tree, withPods, workloads } from "../src/model/chain.ts";
import { connections } from "../src/model/connections.ts";
import { canPin, consequences, diffInWords, fateOf, marksOf, placeOf, statusOf } from "../src/model/delivery.ts";
import { actorOf, type LogEvent, matches, named, summary, toneOf } from "../src/model/log.ts";

const NOW = Date.parse("2026-01-31T12:00:00Z");
const iso = (milliseconds: number) => new Date(NOW + milliseconds).toISOString();
const ID = "0190b6a2-7c1e-7d3a-9f10-6b2f4c8d1e55";

const COUNTS = { unchanged: 0, created: 0, changed: 0, pruned: 0, failed: 0, unhealthy: 0, waiting: 0 };

function sync(outcome: CommitSync["outcome"], counts: Partial<typeof COUNTS> = {}): CommitSync {
  return { id: "s", startedAt: iso(0), finishedAt: outcome && iso(2000), outcome, run: 1, counts: { ...COUNTS, ...counts }, failures: [] };
}

function commit(name: string, more: Partial<Commit> = {}): Commit {
  const nothing = { rejectedAt: null, findings: [], moreFindings: 0, heldAt: null, heldReason: null, confirmedAt: null, confirmedBy: null, pinnedAt: null, pinnedBy: null };
  return { commit: name, at: iso(0), chain: ID, objects: 3, ...nothing, desiredAt: null, prunes: 0, syncs: [], ...more };
}

function source(more: Partial<WholeSource> = {}): WholeSource {
  const none = { newestCommit: null, newestGoodCommit: null, rejectedCommit: null, desiredCommit: null, syncedCommit: null, heldCommit: null, heldReason: null, pinned: null, suspended: null };
  return { ...none, sync: null, status: { state: "IN_SYNC" }, ...more } as WholeSource;
}

test("a commit says what it is to its source, and what became of it", () => {
  const good = commit("aaaa", { syncs: [sync("SUCCEEDED", { created: 2, unchanged: 1 })] });
  const bad = commit("bbbb", { objects: null, rejectedAt: iso(5), findings: [{ file: "web.yaml", line: 3, column: 0, field: "", message: "no kind" }] });
  const stays = source({ syncedCommit: "aaaa", desiredCommit: "aaaa", newestCommit: "bbbb", rejectedCommit: "bbbb" });
  assert.deepEqual([marksOf(good, stays), marksOf(bad, stays)], [["current"], ["rejected", "newest"]]);
  assert.deepEqual([statusOf(good, stays), statusOf(bad, stays)], ["healthy", "degraded"]);
  assert.equal(fateOf(good, stays), "It was applied: 2 created, 1 unchanged.");
  assert.equal(fateOf(bad, stays), "It was rejected: 1 finding. The last good commit stays.");
  assert.deepEqual([canPin(good, stays), canPin(bad, stays)], [true, false]);
  const held = commit("cccc", { heldReason: "14 of 20 objects would be pruned" });
  assert.equal(fateOf(held, source({ heldCommit: "cccc" })), "It waits for confirmation: 14 of 20 objects would be pruned.");
  // A sync without an end that is not the source's newest will have none.
  const overtaken = commit("eeee", { syncs: [sync(null)] });
  assert.deepEqual([statusOf(overtaken, source()), statusOf(overtaken, source({ sync: { ...sync(null), commit: "eeee", waiting: null, retryAt: null } }))], ["none", "progressing"]);
  assert.match(fateOf(overtaken, source()), /^A newer commit took its place/);
  assert.match(fateOf(commit("dddd"), source({ pinned: "aaaa" })), /pinned to aaaa/);
  assert.match(fateOf(commit("dddd"), source({ suspended: "" })), /suspended/);
  assert.equal(placeOf({ file: "a.yaml", line: 3, column: 0 }), "a.yaml:3");
  assert.equal(placeOf({ file: "a.yaml", line: 0, column: 7 }), "a.yaml");
});

test("what would be deleted comes first, a namespace with all that is in it", () => {
  const one = (kind: string, namespace: string, name: string, change: ObjectDiff["change"]): ObjectDiff => ({
    identity: { group: "", version: "v1", kind, namespace, name },
    change,
    fields: [],
  });
  const diff: SourceDiff = {
    commit: "aaaa",
    unchanged: 1,
    objects: [one("Deployment", "shop", "web", "change"), one("ConfigMap", "old", "x", "prune"), one("Namespace", "", "old", "prune"), one("ConfigMap", "shop", "y", "prune")],
  };
  const found = consequences(diff);
  assert.deepEqual(
    found.map(({ title, isGrave }) => [title, isGrave]),
    [
      ["The namespace old and everything in it would be deleted, 1 object of this source among it", true],
      ["1 object would be deleted", true],
      ["1 object would change", false],
    ],
  );
  assert.equal(found.flatMap(({ objects }) => objects).length, diff.objects.length, "each once");
  assert.equal(diffInWords(diff), "3 to delete, 1 to change");
  assert.equal(diffInWords({ commit: "a", unchanged: 2, objects: [] }), "nothing would change");
});

function event(type: string, id: string, cause: string | null, at: number, data: Record<string, unknown> = {}, subject = "source/s"): LogEvent {
  return { id, type: `kasbah.${type}`, subject, time: iso(at), recordedat: iso(at), ...(cause ? { causationid: cause } : {}), data };
}

const APPLIED = { sync: "x", write: "created", object: { identity: { kind: "Deployment", namespace: "shop", name: "web" } } };

const PUSH: LogEvent[] = [
  event("source.advanced", "1", null, 40, { commit: "4f1a5b10c0ffee", objects: 2 }),
  event("bundle.desired", "2", "1", 90, { sync: "x" }),
  event("sync.started", "3", "2", 1200, { sync: "x" }),
  event("sync.finished", "4", "2", 5000, { sync: "x", outcome: "succeeded" }),
  event("observed.sync-started", "o1", null, 1100, { sync: "x" }, "agent/a"),
  event("observed.object-applied", "o2", null, 1150, APPLIED, "agent-a"),
  event("observed.health-changed", "o3", null, 4000, { sync: "x", status: "healthy" }, "agent/a"),
];

function pod(what: string, at: number, health: Change["health"], healthBefore: Change["health"] | null = null, name = "web-1-x"): Change {
  const identity = { agent: "a", agentName: "edge", group: "", kind: "Pod", namespace: "shop", name, uid: name };
  return { ...identity, recordedAt: iso(at), seenAt: iso(at), notBefore: null, owned: false, what, writer: null, fields: [], fieldCount: 0, health, healthBefore };
}

test("effects stand below their causes, down to the pods", () => {
  const grown = tree(PUSH, NOW);
  assert.deepEqual(workloads(grown), [{ agent: "a", namespace: "shop", name: "web" }]);
  const changes = [pod("changed", 3900, "HEALTHY", "PROGRESSING"), pod("created", 1300, "PROGRESSING"), pod("created", 1300, "PROGRESSING", null, "other-1-x"), pod("created", -60_000, "HEALTHY", null, "web-0-x")];
  const drawn = rows(withPods(grown, changes));
  assert.deepEqual(
    drawn.map(({ node, depth }) => [depth, node.what, after(node.at - node.from)]),
    [
      [0, "source.advanced", "+40 ms"],
      [1, "bundle.desired", "+50 ms"],
      [2, "observed.sync-started", "+1.0 s"],
      [3, "observed.object-applied", "+50 ms"],
      [4, "pod", "+2.8 s"],
      [3, "observed.health-changed", "+2.9 s"],
      [2, "sync.started", "+1.1 s"],
      [2, "sync.finished", "+4.9 s"],
    ],
  );
  assert.equal(drawn[4]?.node.text, "web-1-x created +150 ms, healthy +2.6 s");
  assert.deepEqual(drawn.map(({ parent }) => parent), [null, 0, 1, 2, 3, 2, 1, 1]);
  // A cause that names itself or goes in a circle draws nothing twice.
  const circle = [event("a", "1", "2", 0), event("b", "2", "1", 1), event("c", "3", "3", 2)];
  assert.deepEqual(rows(tree(circle, null)).map(({ node }) => node.what), ["c"]);
  assert.deepEqual([after(-5), after(75_000)], ["-5 ms", "+1 min 15 s"]);
});

test("what is alike is folded, and what went wrong is not", () => {
  const many = Array.from({ length: 6 }, (_, number) => event("observed.object-applied", `m${number}`, "1", 100 + number, { write: "changed" }));
  const failed = event("observed.object-failed", "f", "1", 90, { failure: { message: "denied" } });
  const again = event("observed.object-failed", "g", "1", 95, { failure: { message: "denied" } });
  const twice = rows(folded(tree([event("source.advanced", "1", null, 0), failed, again], NOW), new Set())).at(-1)?.node;
  assert.deepEqual([twice?.times, twice?.text], [2, "denied"]);
  const grown = tree([event("source.advanced", "1", null, 0), ...many, failed], NOW);
  const names = (opened: Set<string>) => rows(folded(grown, opened)).map(({ node }) => `${node.what} ${node.times}`);
  assert.deepEqual(names(new Set()), ["source.advanced 1", "observed.object-failed 1", "observed.object-applied 6"]);
  const key = rows(folded(grown, new Set())).find(({ node }) => node.times > 1)?.node.key ?? "";
  assert.equal(names(new Set([key])).length, 8);
});

test("an event is described in words, with names where they are known", () => {
  const refused: LogEvent = { ...event("command.refused", "r", null, 0, { refusal: { message: "the role is missing" } }), actor: { user: ID } };
  const names = new Map([[ID, "ann"]]);
  assert.deepEqual([actorOf(refused), named(actorOf(refused), names), summary(refused), toneOf(refused)], [`user:${ID}`, "user:ann", "refused: the role is missing", "bad"]);
  assert.equal(named(`agent/${ID}`, new Map()), "agent/0190b6a2…");
  const none = { text: "", type: "", actor: "", subject: "" };
  for (const [filter, is] of [
    [none, true],
    [{ ...none, type: "refused", actor: "ann" }, true],
    [{ ...none, text: "role missing" }, true],
    [{ ...none, text: "role there" }, false],
    [{ ...none, actor: "bob" }, false],
    [{ ...none, subject: "source/s" }, true],
    [{ ...none, subject: "elsewhere" }, false],
  ] as const) {
    assert.equal(matches(refused, filter, names), is, JSON.stringify(filter));
  }
  assert.equal(summary(event("x", "x", null, 0, { name: "<img src=x>" })), "<img src=x>", "it is text, and stays so");
});

test("connections are stretches, and a move between gateways is none", () => {
  const tunnel = (what: string, at: number, instance = "i") => event(`observed.tunnel-${what}`, `${what} ${at}`, null, at, { agent: "a", instance, version: "1.2.3" }, "gateway/g");
  const HOUR = 3_600_000;
  const spans = (events: LogEvent[], isConnected: boolean) =>
    connections(events, NOW - 10 * HOUR, NOW, { isConnected }).map(({ from, until }) => [(from - NOW) / HOUR, (until - NOW) / HOUR]);
  assert.deepEqual(spans([], true), [[-10, 0]]);
  assert.deepEqual(spans([], false), []);
  assert.deepEqual(spans([tunnel("closed", -5 * HOUR), tunnel("opened", -4 * HOUR)], true), [[-10, -5], [-4, 0]]);
  assert.deepEqual(spans([tunnel("opened", -6 * HOUR), tunnel("opened", -5 * HOUR, "j"), tunnel("closed", -4 * HOUR), tunnel("closed", -2 * HOUR, "j")], false), [[-6, -2]]);
  assert.deepEqual(spans([tunnel("opened", -6 * HOUR), tunnel("closed", -3 * HOUR), tunnel("opened", -3 * HOUR + 500)], true), [[-6, 0]]);
});
