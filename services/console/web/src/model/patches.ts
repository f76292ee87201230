// What changes make of a forest: nothing is loaded again for them as a whole.

import type { Line } from "../api/place.ts";
import type { Change } from "../api/types.ts";
import { isGone } from "./gone.ts";
import type { Forest } from "./tree.ts";

/** Relations by which one object has caused another, as the server has them. */
const CAUSES = ["controls", "owns", "has-endpoints"];

/** What changes say by themselves: health, and what is gone. */
export function touched(forest: Forest, changes: Change[]): Forest {
  const next = new Map(forest);
  for (const change of changes) {
    const node = next.get(change.uid);
    if (!node) continue;
    if (isGone(change)) {
      next.delete(change.uid);
      continue;
    }
    const health = { ...node.line.health, state: change.health };
    next.set(change.uid, { ...node, line: { ...node.line, health, changedAt: change.recordedAt } });
  }
  return next;
}

type Found = { resource: Line; environments: { id: string }[]; related: { relation: string; inwards: boolean; uid: string | null }[] };

/** Objects as they are by now, and new ones below what has caused them. */
export function patched(forest: Forest, found: Found[], environment: string | null): Forest {
  const next = new Map(forest);
  for (const { resource, environments, related } of found) {
    const causes = related.filter(({ relation, inwards, uid }) => inwards && uid !== null && CAUSES.includes(relation) && next.has(uid));
    const cause = causes.sort((one, other) => CAUSES.indexOf(one.relation) - CAUSES.indexOf(other.relation))[0];
    const known = next.get(resource.uid);
    const belongs = known || cause || environment === null || environments.some(({ id }) => id === environment);
    if (!belongs) continue;
    const above = cause ? { parent: cause.uid, relation: cause.relation } : { parent: known?.parent ?? null, relation: known?.relation ?? null };
    next.set(resource.uid, { line: resource, ...above });
  }
  return next;
}

const idOf = (change: Change) => `${change.agent} ${change.uid} ${change.recordedAt} ${change.what}`;
const newestFirst = (one: Change, other: Change) => (one.recordedAt < other.recordedAt ? 1 : one.recordedAt > other.recordedAt ? -1 : 0);

/** The newest changes since a time, the newest first. `some` are further ones, the latest last, as they come. */
export function withNewer(known: Change[], some: Change[], since: number, limit: number): Change[] {
  const seen = new Set<string>();
  const all: Change[] = [];
  // Those that came last stand first: what is nearly in order is sorted at once.
  for (const change of [...some].reverse().concat(known)) {
    const id = idOf(change);
    if (seen.has(id)) continue;
    seen.add(id);
    all.push(change);
  }
  const newest = all.sort(newestFirst).slice(0, limit);
  while (newest.length > 0 && Date.parse(newest.at(-1)?.recordedAt ?? "") <= since) newest.pop();
  return newest;
}
