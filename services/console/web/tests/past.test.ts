import assert from "node:assert/strict";
import { test } from "node:test";
import type { Commit, CommitSync, SourceLine } from "../src/api/delivery.ts";
import type { Agent } from "../src/api/types.ts";
import type { LogEvent } from "../src/model/log.ts";
import type { Group } from "../src/model/overview.ts";
import { turnedBetween } from "../src/model/turned.ts";
import { agentThen, connectedThen, sourceThen, type SourceLog } from "../src/model/then.ts";

const NOW = Date.parse("2026-01-31T12:00:00Z");
const iso = (minutes: number) => new Date(NOW + minutes * 60_000).toISOString();
const at = (minutes: number) => NOW + minutes * 60_000;
const COUNTS = { unchanged: 0, created: 1, changed: 0, pruned: 0, failed: 0, unhealthy: 0, waiting: 0 };

function sync(id: string, started: number, finished: number | null, outcome: CommitSync["outcome"]): CommitSync {
  return { id, startedAt: iso(started), finishedAt: finished === null ? null : iso(finished), outcome, run: 1, counts: COUNTS, failures: [] };
}

function commit(name: string, read: number, more: Partial<Commit> = {}): Commit {
  const nothing = { rejectedAt: null, findings: [], moreFindings: 0, heldAt: null, heldReason: null, confirmedAt: null, confirmedBy: null, pinnedAt: null, pinnedBy: null };
  return { commit: name, at: iso(read), chain: "c", objects: 3, ...nothing, desiredAt: iso(read), prunes: 0, syncs: [], ...more };
}

const SOURCE = {
  id: "s", agent: "a", name: "shop", project: "p", reference: "main", defaultNamespace: "shop", newestCommit: "dddd", desiredCommit: "dddd", syncedCommit: "dddd", syncedAt: iso(0),
  heldCommit: null, rejectedCommit: null, pinned: null, inventory: 3, status: { state: "IN_SYNC", reason: "Applied", message: "now", since: null, retryAt: null }, sync: null,
} as SourceLine;

const LOG: SourceLog = {
  commits: [
    commit("dddd", -10, { heldAt: iso(-10), heldReason: "14 of 20 objects would be pruned", confirmedAt: iso(-5), desiredAt: iso(-5), syncs: [sync("4", -4, -3, "SUCCEEDED")] }),
    commit("cccc", -20, { rejectedAt: iso(-20), desiredAt: null, objects: null }),
    commit("bbbb", -30, { syncs: [sync("2", -29, -25, "UNHEALTHY")] }),
    commit("aaaa", -40, { syncs: [sync("1", -39, -38, "SUCCEEDED")] }),
  ],
  deeds: [
    { at: iso(-12), what: "unpinned", detail: null },
    { at: iso(-15), what: "pinned", detail: "aaaa" },
    { at: iso(-33), what: "resumed", detail: null },
    { at: iso(-35), what: "suspended", detail: "a freeze" },
  ],
};

test("a source is what the log says that it was", () => {
  const then = (minutes: number) => {
    const { status, syncedCommit, newestCommit, pinned, sync } = sourceThen(SOURCE, LOG, at(minutes));
    return [status.state, syncedCommit, newestCommit, pinned, sync?.id ?? null, sync?.outcome ?? null];
  };
  assert.deepEqual(then(-41), ["UNKNOWN", null, null, null, null, null]);
  assert.deepEqual(then(-39.5), ["UNKNOWN", null, "aaaa", null, null, null]);
  assert.deepEqual(then(-38.5), ["PROGRESSING", null, "aaaa", null, "1", null]);
  assert.deepEqual(then(-37), ["IN_SYNC", "aaaa", "aaaa", null, "1", "SUCCEEDED"]);
  assert.deepEqual(then(-34), ["SUSPENDED", "aaaa", "aaaa", null, "1", "SUCCEEDED"]);
  assert.deepEqual(then(-27), ["PROGRESSING", "aaaa", "bbbb", null, "2", null]);
  assert.deepEqual(then(-24), ["DEGRADED", "bbbb", "bbbb", null, "2", "UNHEALTHY"]);
  assert.deepEqual(then(-13), ["REJECTED", "bbbb", "cccc", "aaaa", "2", "UNHEALTHY"]);
  assert.deepEqual(then(-7), ["HELD", "bbbb", "dddd", null, "2", "UNHEALTHY"]);
  assert.deepEqual(then(-1), ["IN_SYNC", "dddd", "dddd", null, "4", "SUCCEEDED"]);
  assert.equal(sourceThen(SOURCE, LOG, at(-7)).status.message, "Commit dddd waited for confirmation: 14 of 20 objects would be pruned");
  assert.equal(sourceThen(SOURCE, LOG, at(-7)).heldCommit, "dddd");
});

function tunnel(minutes: number, what: "opened" | "closed", instance: string): LogEvent {
  return { id: `${minutes}`, type: `kasbah.observed.tunnel-${what}`, subject: "", time: iso(minutes), recordedat: iso(minutes), data: { agent: "a", instance, version: "1.2" } };
}

test("an agent was connected between what opened and what closed", () => {
  const events = [tunnel(-30, "opened", "x"), tunnel(-20, "closed", "x"), tunnel(-10, "opened", "y")];
  const then = (minutes: number, some = events) => connectedThen(some, "a", at(minutes))?.map(({ id }) => id) ?? null;
  assert.deepEqual([then(-31), then(-25), then(-15), then(-5)], [[], ["x"], [], ["y"]]);
  assert.deepEqual([then(-25, events.slice(1)), connectedThen(events, "other", at(-5))], [["x"], null]);
  const agent = { id: "a", name: "production", projectPath: "shop/deploy", registeredAt: iso(-60), status: null } as Agent;
  assert.equal(agentThen(agent, events, at(-61)), null);
  assert.equal(agentThen(agent, events, at(-15))?.status?.goneSince, iso(-20));
  assert.equal(agentThen(agent, events, at(-5))?.status?.goneSince, null);
  assert.equal(agentThen(agent, null, at(-5))?.status, null);
});

function place(key: string, text: string): Group {
  const remark = { status: "degraded" as const, text, since: null };
  return { key, title: key, where: "", tier: null, environment: null, agent: "a", namespace: key, status: "degraded", word: null, stale: null, troubles: [], remarks: [remark], changedAt: 0 };
}

/** The modules that know the address need one. */
async function ofTheBrowser() {
  const noted = new URL("https://kasbah.example.com/delivery?t=2026-01-31T11:00:00Z&with=2026-01-31T10:00:00Z&text=x");
  const nothing = { addEventListener: () => {}, postMessage: () => {} };
  Object.assign(globalThis, {
    location: noted,
    history: { pushState: (_: unknown, __: string, to: string) => (noted.href = new URL(to, noted).href), replaceState: () => {} },
    document: { ...nothing, visibilityState: "hidden", title: "" },
    BroadcastChannel: class {
      postMessage() {}
    },
  });
  return { address: noted, ...(await import("../src/model/at.ts")), ...(await import("../src/router.ts")) };
}

test("a moment goes along to other views, and is played until now", async () => {
  const { address, after, at: shown, compared, path, visit } = await ofTheBrowser();
  assert.deepEqual([shown.value, compared.value], [Date.parse("2026-01-31T11:00:00Z"), Date.parse("2026-01-31T10:00:00Z")]);
  visit("/agents?tab=sees");
  assert.equal(path.value, "/agents");
  assert.equal(address.search, "?tab=sees&t=2026-01-31T11%3A00%3A00Z&with=2026-01-31T10%3A00%3A00Z");
  visit("/environments/1?t=2026-01-31T09:00:00Z");
  assert.equal(address.search, "?t=2026-01-31T09%3A00%3A00Z");
  // The other moment is none that is earlier.
  visit("/?t=2026-01-31T09:00:00Z&with=2026-01-31T09:30:00Z");
  assert.equal(compared.value, null);
  assert.deepEqual([after(NOW, 1, 1000, NOW + 60_000), after(NOW, 10, 1000, NOW + 60_000), after(NOW, 100, 1000, NOW + 60_000)], [NOW + 1000, NOW + 10_000, null]);
  assert.equal(after(NOW, 1, 200, NOW + 60_000), NOW + 1000);
});

test("two moments differ by what was wrong", () => {
  const turned = turnedBetween([place("a", "x"), place("b", "x"), place("c", "x")], [place("b", "y"), place("c", "x"), place("d", "x")]);
  const keys = (groups: Group[]) => groups.map(({ key }) => key);
  assert.deepEqual([keys(turned.came), keys(turned.went), turned.turned.map(([, is]) => is.key), keys(turned.stayed)], [["d"], ["a"], ["b"], ["c"]]);
});
