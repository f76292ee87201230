// What changed in an hour, merged by cause: a sync instead of each object that it wrote, an edit by hand as a sentence, and what became of it.

import type { AroundAnswer } from "../api/queries.ts";
import type { Change } from "../api/types.ts";
import { isSomebody, keyOf } from "./overview.ts";
import { isBad, ofHealth, type Status } from "./status.ts";

/** One thing that happened. */
export interface News {
  key: string;
  at: number;
  status: Status | null;
  /** Who or what did it; shown in bold. */
  who: string;
  what: string;
  where: string;
}

const HOUR = 3_600_000;
/** What one writer does within this time is one thing. */
const TOGETHER = 60_000;
/** These follow from others, and are told with them. */
const FOLLOWING = new Set(["Pod", "ReplicaSet", "ControllerRevision", "EndpointSlice", "Endpoints", "Event", "Lease"]);

export const short = (commit: string | null | undefined) => (commit ?? "").slice(0, 8);
export const count = (number: number, one: string, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** The newest first. */
export function news(changes: Change[], around: AroundAnswer, now: number): News[] {
  const recent = changes.filter((change) => Date.parse(change.recordedAt) > now - HOUR);
  const all = [...edits(recent), ...turns(recent), ...syncs(around, now), ...comings(around, now)];
  return all.sort((one, other) => other.at - one.at || one.key.localeCompare(other.key));
}

const named = (change: Change) => `${change.kind} ${change.name}`;
const place = (change: { namespace: string; agentName: string }) => change.namespace || change.agentName.split(":").at(-1) || "";

/** What people and their programs wrote. What Kasbah writes is shown as a sync. */
function edits(changes: Change[]): News[] {
  const told: News[] = [];
  let open: { first: Change; at: number; all: Change[] } | null = null;
  const close = () => {
    if (!open) return;
    const { first, at, all } = open;
    const objects = new Set(all.map((change) => change.uid));
    const what = objects.size === 1 ? sentence(all) : `changed ${count(objects.size, "object")}`;
    told.push({ key: `edit ${first.uid} ${first.recordedAt}`, at, status: null, who: first.writer?.manager ?? "", what, where: place(first) });
    open = null;
  };
  for (const change of changes) {
    const isTold = isSomebody(change.writer) && change.writer?.manager !== "kasbah" && !FOLLOWING.has(change.kind);
    if (!isTold || !["created", "changed", "deleted"].includes(change.what)) continue;
    const at = Date.parse(change.recordedAt);
    const isSame = open && open.first.writer?.manager === change.writer?.manager && keyOf(open.first) === keyOf(change);
    if (open && isSame && open.at - at < TOGETHER) {
      open.all.push(change);
      continue;
    }
    close();
    open = { first: change, at, all: [change] };
  }
  close();
  return told;
}

function sentence(all: Change[]): string {
  const first = all[0];
  if (!first) return "";
  if (all.some((change) => change.what === "deleted")) return `deleted ${named(first)}`;
  if (all.some((change) => change.what === "created")) return `created ${named(first)}`;
  const fields = [...new Set(all.flatMap((change) => change.fields))].filter((field) => !field.startsWith("metadata.generation"));
  const shown = fields.slice(0, 2).join(", ");
  const more = fields.length > 2 ? ` and ${fields.length - 2} more` : "";
  return shown ? `changed ${named(first)}: ${shown}${more}` : `changed ${named(first)}`;
}

/** What became well or stopped being so. */
function turns(changes: Change[]): News[] {
  const told = podsThatFailed(changes);
  for (const change of changes) {
    if (!change.healthBefore || FOLLOWING.has(change.kind)) continue;
    const [before, after] = [ofHealth(change.healthBefore), ofHealth(change.health)];
    // On its way and back is what each rollout does.
    const matters = after === "degraded" || before === "degraded" || (after === "missing" && isBad(after));
    if (!matters || before === after) continue;
    const what = after === "degraded" ? "became degraded" : after === "healthy" ? "is healthy again" : `is ${after} now`;
    told.push({ key: `turn ${change.uid} ${change.recordedAt}`, at: Date.parse(change.recordedAt), status: after, who: named(change), what, where: place(change) });
  }
  return told;
}

/** Pods that became degraded, by what controls them: the workload itself may be as it is without a change of its own. */
function podsThatFailed(changes: Change[]): News[] {
  const failed = changes.filter((one) => one.kind === "Pod" && one.healthBefore && one.health === "DEGRADED");
  const owner = (change: Change) => `${keyOf(change)}/${change.name.replace(/-[^-]+$/, "")}`;
  return [...Map.groupBy(failed, owner)].flatMap(([of, some]) => {
    const last = some[0];
    if (!last) return [];
    const name = of.split("/").at(-1) ?? "";
    const pods = new Set(some.map((change) => change.uid)).size;
    const who = pods === 1 ? named(last) : `${pods} pods of ${name}`;
    return [{ key: `pods ${of}`, at: Date.parse(last.recordedAt), status: "degraded" as const, who, what: "became degraded", where: place(last) }];
  });
}

function syncs(around: AroundAnswer, now: number): News[] {
  const told: News[] = [];
  for (const source of around.sources.nodes) {
    const sync = source.sync;
    const at = Date.parse(sync?.finishedAt ?? sync?.startedAt ?? "");
    if (!sync || !(at > now - HOUR)) continue;
    const { created, changed, pruned, failed } = sync.counts;
    const parts = [
      created && `${created} created`,
      changed && `${changed} changed`,
      pruned && `${pruned} pruned`,
      failed && `${failed} failed`,
    ].filter(Boolean);
    const done = sync.outcome === null ? "is syncing" : sync.outcome === "FAILED" ? "failed to sync" : "synced";
    const status = sync.outcome === "FAILED" ? "degraded" : sync.outcome === null ? "progressing" : null;
    const detail = parts.length > 0 ? `: ${parts.join(", ")}` : "";
    told.push({ key: `sync ${sync.id}`, at, status, who: source.name, what: `${done} ${short(sync.commit)}${detail}`, where: source.defaultNamespace });
  }
  return told;
}

function comings(around: AroundAnswer, now: number): News[] {
  const told: News[] = [];
  for (const agent of around.agents.nodes) {
    const gone = Date.parse(agent.status?.goneSince ?? "");
    const since = Math.min(...(agent.status?.instances ?? []).map((instance) => Date.parse(instance.since)));
    const base = { who: `Agent ${agent.name}`, where: "" };
    if (gone > now - HOUR) told.push({ ...base, key: `gone ${agent.id}`, at: gone, status: "unknown", what: "lost its connection" });
    else if (since > now - HOUR && Number.isFinite(since)) {
      told.push({ ...base, key: `came ${agent.id}`, at: since, status: null, what: "connected" });
    }
  }
  return told;
}
