// What changed in an hour, merged by cause: a sync instead of each object that it wrote, an edit by hand as a sentence, and what became of it.

import type { AroundAnswer } from "../api/queries.ts";
import type { Change } from "../api/types.ts";
import { fate, isGone, late } from "./gone.ts";
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
/** Objects that are named of several that were deleted together. */
const NAMED = 3;
/** These follow from others, and are told with them. */
const FOLLOWING = new Set(["Pod", "ReplicaSet", "ControllerRevision", "EndpointSlice", "Endpoints", "Event", "Lease"]);

export const short = (commit: string | null | undefined) => (commit ?? "").slice(0, 8);
export const count = (number: number, one: string, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** The newest first. */
export function news(changes: Change[], around: AroundAnswer, now: number): News[] {
  const recent = changes.filter((change) => Date.parse(change.recordedAt) > now - HOUR);
  const all = [...edits(recent, now), ...removals(recent, now), ...turns(recent), ...syncs(around, now), ...comings(around, now)];
  return all.sort((one, other) => other.at - one.at || one.key.localeCompare(other.key));
}

const named = (change: Change) => `${change.kind} ${change.name}`;
const place = (change: { namespace: string; agentName: string }) => change.namespace || change.agentName.split(":").at(-1) || "";

/** What people and their programs wrote. What Kasbah writes is shown as a sync. */
function edits(changes: Change[], now: number): News[] {
  const told: News[] = [];
  let open: { first: Change; at: number; all: Change[] } | null = null;
  const close = () => {
    if (!open) return;
    const { first, at, all } = open;
    const objects = new Set(all.map((change) => change.uid));
    const what = objects.size === 1 ? sentence(all) : `changed ${count(objects.size, "object")}`;
    const where = place(first);
    told.push({ key: `edit ${first.uid} ${first.recordedAt}`, at, status: null, who: first.writer?.manager ?? "", what: what + late(first, now), where });
    open = null;
  };
  for (const change of changes) {
    const isTold = isSomebody(change.writer) && change.writer?.manager !== "kasbah" && !FOLLOWING.has(change.kind);
    if (!isTold || !["created", "changed"].includes(change.what)) continue;
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
  if (all.some((change) => change.what === "created")) return `created ${named(first)}`;
  const fields = [...new Set(all.flatMap((change) => change.fields))].filter((field) => !field.startsWith("metadata.generation"));
  const shown = fields.slice(0, 2).join(", ");
  const more = fields.length > 2 ? ` and ${fields.length - 2} more` : "";
  return shown ? `changed ${named(first)}: ${shown}${more}` : `changed ${named(first)}`;
}

/** Of many objects the first ones are named. */
function names(all: Change[]): string {
  const shown = all.length > NAMED ? all.slice(0, NAMED - 1) : all;
  const more = all.length - shown.length;
  return shown.map(named).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** What was deleted. Nobody sees who did it, so that it is not known whether one or several did. */
function removals(changes: Change[], now: number): News[] {
  const told: News[] = [];
  // What has an owner goes with it, or by it.
  const gone = changes.filter((change) => isGone(change) && change.what !== "unobserved" && !change.owned && !FOLLOWING.has(change.kind));
  for (let rest = gone; rest[0]; ) {
    const first: Change = rest[0];
    const at = Date.parse(first.recordedAt);
    const isSame = (change: Change) => keyOf(change) === keyOf(first) && change.what === first.what && at - Date.parse(change.recordedAt) < TOGETHER;
    const all = rest.filter(isSame);
    rest = rest.filter((change) => !isSame(change));
    told.push({ key: `gone ${first.uid} ${first.recordedAt}`, at, status: null, who: names(all), what: fate(all, now), where: place(first) });
  }
  return told;
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
