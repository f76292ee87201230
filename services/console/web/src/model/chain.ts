// What followed from one cause, as a tree: from a push down to the pods that run it.

import type { Change } from "../api/types.ts";
import { type LogEvent, shortType, summary, toneOf } from "./log.ts";

/** One thing in the tree. */
export interface Node {
  key: string;
  /** What kind of thing it is. */
  what: string;
  /** Which one, in words. */
  text: string;
  at: number;
  /** When its cause happened. */
  from: number;
  tone: ReturnType<typeof toneOf>;
  event: LogEvent | null;
  below: Node[];
  /** How many like it are folded into it; 1 where it stands for itself. */
  times: number;
}

const BEGINS = new Set(["kasbah.bundle.desired", "kasbah.sync.requested", "kasbah.source.removed"]);
const STARTED = "kasbah.observed.sync-started";
/** So many of one kind under one cause are folded. */
const FOLDS_FROM = 4;

const syncOf = (event: LogEvent) => (typeof event.data?.sync === "string" ? event.data.sync : null);

/** The tree. What agents say names its sync instead of its cause. `begun` is when the chain began. */
export function tree(events: LogEvent[], begun: number | null): Node[] {
  const byId = new Map(events.map((event, index) => [event.id, index]));
  const begins = new Map<string, number>();
  events.forEach((event, index) => {
    const sync = syncOf(event);
    if (sync && BEGINS.has(event.type) && !begins.has(sync)) begins.set(sync, index);
  });
  const atWork = new Map<string, number>();
  const below = new Map<number | null, number[]>();
  events.forEach((event, index) => {
    const sync = syncOf(event);
    const isBegin = event.type === STARTED;
    const caused = event.causationid === undefined ? undefined : byId.get(event.causationid);
    const wanted = sync ? ((isBegin ? undefined : atWork.get(sync)) ?? begins.get(sync)) : undefined;
    const cause = caused ?? wanted;
    if (sync && isBegin && !atWork.has(sync)) atWork.set(sync, index);
    const of = cause === undefined || cause === index ? null : cause;
    below.set(of, [...(below.get(of) ?? []), index]);
  });
  const at = (index: number) => Date.parse(events[index]?.time ?? "");
  const seen = new Set<number>();
  const grow = (cause: number | null): Node[] => {
    const effects = [...(below.get(cause) ?? [])].sort((one, other) => at(one) - at(other));
    return effects.flatMap((index) => {
      const event = events[index];
      if (!event || seen.has(index)) return [];
      seen.add(index);
      const from = cause === null ? (begun ?? at(index)) : at(cause);
      return [{ key: event.id, what: shortType(event.type), text: summary(event), at: at(index), from, tone: toneOf(event), event, below: grow(index), times: 1 }];
    });
  };
  return grow(null);
}

/** How far the clocks of a cluster and of the server may be apart. */
const SKEW = 5000;
const WORKLOADS = new Set(["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet"]);

/** A workload that a chain applied, of which pods are looked for. */
export interface Workload {
  agent: string;
  namespace: string;
  name: string;
}

function appliedWorkload(event: LogEvent | null): Workload | null {
  if (event?.type !== "kasbah.observed.object-applied") return null;
  const object = event.data?.object as { identity?: { kind: string; namespace: string; name: string } } | undefined;
  const identity = object?.identity;
  const isWritten = event.data?.write !== "unchanged";
  if (!identity || !isWritten || !WORKLOADS.has(identity.kind)) return null;
  return { agent: event.subject.replace(/^agent[-/]/, ""), namespace: identity.namespace, name: identity.name };
}

/** The workloads of a tree, each once. */
export function workloads(nodes: Node[]): Workload[] {
  const found = new Map<string, Workload>();
  const walk = (some: Node[]) => {
    for (const node of some) {
      const of = appliedWorkload(node.event);
      if (of) found.set(`${of.agent} ${of.namespace}/${of.name}`, of);
      walk(node.below);
    }
  };
  walk(nodes);
  return [...found.values()];
}

/** The tree with the pods that came of its workloads. `changes` are of pods, the newest first. */
export function withPods(nodes: Node[], changes: Change[], until = Math.max(0, ...flat(nodes).map((node) => node.at))): Node[] {
  return nodes.map((node) => {
    const of = appliedWorkload(node.event);
    const below = withPods(node.below, changes, until);
    return { ...node, below: of ? [...below, ...podsOf(of, node.at, until, changes)] : below };
  });
}

/** All nodes of a tree. */
export const flat = (nodes: Node[]): Node[] => nodes.flatMap((node) => [node, ...flat(node.below)]);

function podsOf(of: Workload, applied: number, last: number, changes: Change[]): Node[] {
  const own = changes.filter((one) => one.agent === of.agent && one.namespace === of.namespace && one.name.startsWith(`${of.name}-`));
  return [...Map.groupBy(own, (one) => one.uid)].flatMap(([uid, newestFirst]) => {
    const history = [...newestFirst].reverse();
    const created = history.find((one) => one.what === "created");
    const at = Date.parse(created?.recordedAt ?? "");
    // What was there before is not of this cause, and what came long after all of it was said neither.
    if (!created || at < applied - SKEW || at > last + SKEW) return [];
    const turn = history.find((one) => one.healthBefore && one.health !== one.healthBefore && ["HEALTHY", "DEGRADED"].includes(one.health));
    const became = turn ? `, ${turn.health.toLowerCase()} ${after(Date.parse(turn.recordedAt) - at)}` : "";
    const tone = turn ? (turn.health === "HEALTHY" ? ("good" as const) : ("bad" as const)) : ("plain" as const);
    const until = turn ? Date.parse(turn.recordedAt) : at;
    return [{ key: uid, what: "pod", text: `${created.name} created ${after(at - applied)}${became}`, at: until, from: applied, tone, event: null, below: [], times: 1 }];
  });
}

/** What makes two nodes alike: their kind, and of what is wrong also what it says at first. */
function likeness(node: Node): string {
  if (node.below.length > 0) return node.key;
  return node.tone === "bad" ? `${node.what} ${node.text.slice(0, 60)}` : node.what;
}

/** The tree with what is alike under one cause as one; of what is wrong only what says the same. */
export function folded(nodes: Node[], opened: ReadonlySet<string>): Node[] {
  const alike = Map.groupBy(nodes, likeness);
  const drawn = new Set<string>();
  return nodes.flatMap((node) => {
    const kind = likeness(node);
    const same = alike.get(kind) ?? [];
    const key = `${same[0]?.key} and others`;
    if (same.length < (node.tone === "bad" ? 2 : FOLDS_FROM) || opened.has(key)) return [{ ...node, below: folded(node.below, opened) }];
    if (drawn.has(kind)) return [];
    drawn.add(kind);
    const last = same.reduce((one, other) => (other.at > one.at ? other : one));
    return [{ ...last, key, text: node.tone === "bad" ? last.text : "", times: same.length }];
  });
}

const WORDS: Record<string, string> = {
  "source.advanced": "commit read",
  "bundle.rejected": "commit rejected",
  "bundle.desired": "delivery decided",
  "bundle.held": "held",
  "bundle.confirmed": "confirmed",
  "sync.started": "sync recorded",
  "sync.finished": "sync ended",
  "sync.requested": "sync asked for",
  "source.pinned": "pinned",
  "observed.sync-started": "agent began",
  "observed.sync-waiting": "waited",
  "observed.sync-finished": "agent ended",
  "observed.object-applied": "applied",
  "observed.object-pruned": "pruned",
  "observed.object-failed": "failed",
  "observed.health-changed": "health",
};

/** What a step is called. */
export const stepOf = (what: string) => WORDS[what] ?? what.replace(/^observed\./, "").replace(/[.-]/g, " ");

/** A row of the picture. */
export interface Row {
  node: Node;
  depth: number;
  /** The row of its cause. */
  parent: number | null;
}

/** The tree as rows, causes before effects. */
export function rows(nodes: Node[], depth = 0, parent: number | null = null, into: Row[] = []): Row[] {
  for (const node of nodes) {
    const place = into.length;
    into.push({ node, depth, parent });
    rows(node.below, depth + 1, place, into);
  }
  return into;
}

/** A duration after a cause; clocks of clusters may be behind the server's. */
export function after(milliseconds: number): string {
  const sign = milliseconds < 0 ? "-" : "+";
  const passed = Math.abs(milliseconds);
  if (passed < 1000) return `${sign}${Math.round(passed)} ms`;
  if (passed < 60_000) return `${sign}${(passed / 1000).toFixed(1)} s`;
  return `${sign}${Math.floor(passed / 60_000)} min ${Math.floor((passed % 60_000) / 1000)} s`;
}
