// What the page says of sources, commits and syncs, as pure functions over answers.

import type { Commit, CommitSync, Counts, Finding, ObjectDiff, SourceDiff, SourceLine, WholeSource } from "../api/delivery.ts";
import { count, short } from "./news.ts";
import type { Status } from "./status.ts";

/** The state's word, where the shape's is another. */
export function wordOf(state: SourceLine["status"]["state"]): string {
  const words: Partial<Record<typeof state, string>> = { IN_SYNC: "In sync", REJECTED: "Rejected", STALE: "Stale", OUT_OF_SYNC: "Out of sync" };
  return words[state] ?? state.charAt(0) + state.slice(1).toLowerCase();
}

/** The worst first, then what changed last. */
export function inOrder(sources: SourceLine[]): SourceLine[] {
  const order: SourceLine["status"]["state"][] = ["REJECTED", "HELD", "DEGRADED", "OUT_OF_SYNC", "UNKNOWN", "STALE", "PROGRESSING", "SUSPENDED", "IN_SYNC"];
  const rank = (source: SourceLine) => order.indexOf(source.status.state);
  return [...sources].sort(
    (one, other) =>
      rank(one) - rank(other) || (other.status.since ?? "").localeCompare(one.status.since ?? "") || one.name.localeCompare(other.name),
  );
}

/** What a sync did, in numbers; what was not done is left out. */
export function countsInWords(counts: Counts): string {
  const parts: [number, string][] = [
    [counts.created, "created"],
    [counts.changed, "changed"],
    [counts.pruned, "pruned"],
    [counts.failed, "failed"],
    [counts.unhealthy, "not healthy"],
    [counts.waiting, "waiting"],
    [counts.unchanged, "unchanged"],
  ];
  const said = parts.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`);
  return said.join(", ") || "no objects";
}

/** How a sync ended. One that has no end and is not the source's newest will have none. */
export function outcomeOf(sync: Pick<CommitSync, "id" | "outcome" | "startedAt">, source: Pick<WholeSource, "sync">): { status: Status; word: string } {
  const isOver = sync.outcome === null && source.sync?.id !== sync.id;
  switch (isOver ? "SUPERSEDED" : sync.outcome) {
    case "SUCCEEDED":
      return { status: "healthy", word: "Succeeded" };
    case "UNHEALTHY":
      return { status: "degraded", word: "Not healthy" };
    case "FAILED":
      return { status: "degraded", word: "Failed" };
    case "SUPERSEDED":
      return { status: "none", word: "Superseded" };
    case "INTERRUPTED":
      return { status: "unknown", word: "Interrupted" };
    default:
      return { status: "progressing", word: sync.startedAt ? "Runs" : "Not begun" };
  }
}

/** How far a running sync is: how many of the source's objects are as they should be. */
export function progressOf({ status: { objects } }: Pick<WholeSource, "status">): { well: number; all: number } {
  const all = Math.max(objects.owned, objects.failed);
  return { well: Math.max(0, all - objects.failed - objects.drifted - objects.degraded - objects.progressing), all };
}

/** What a commit is to its source now. */
export function marksOf(commit: Commit, source: WholeSource): string[] {
  const is = (other: string | null) => other === commit.commit;
  const marks: string[] = [];
  if (is(source.syncedCommit)) marks.push("current");
  if (is(source.desiredCommit) && !is(source.syncedCommit)) marks.push("on its way");
  if (is(source.pinned)) marks.push("pinned");
  if (is(source.heldCommit)) marks.push("held");
  if (is(source.rejectedCommit) || commit.rejectedAt) marks.push("rejected");
  if (is(source.newestCommit)) marks.push("newest");
  return marks;
}

export function statusOf(commit: Commit, source: WholeSource): Status {
  if (commit.rejectedAt) return "degraded";
  if (source.heldCommit === commit.commit) return "held";
  const last = commit.syncs[0];
  if (source.syncedCommit === commit.commit && source.desiredCommit === commit.commit) {
    return last?.outcome === "UNHEALTHY" || source.status.state === "DEGRADED" ? "degraded" : "healthy";
  }
  if (last) return outcomeOf(last, source).status;
  return "none";
}

/** What became of a commit, in one sentence. */
export function fateOf(commit: Commit, source: WholeSource): string {
  if (commit.rejectedAt) return `It was rejected: ${count(commit.findings.length + commit.moreFindings, "finding")}. The last good commit stays.`;
  if (source.heldCommit === commit.commit) return `It waits for confirmation: ${commit.heldReason ?? source.heldReason ?? "held"}.`;
  const last = commit.syncs[0];
  if (!last && source.pinned && source.pinned !== commit.commit) return `It was not delivered: the source is pinned to ${short(source.pinned)}.`;
  if (!last && source.suspended !== null) return "It was not delivered: the source is suspended.";
  if (!last) return commit.desiredAt ? "The agent was notified of it." : "It was not delivered.";
  switch (last.outcome) {
    case "SUCCEEDED":
      return `It was applied: ${countsInWords(last.counts)}.`;
    case "UNHEALTHY":
      return `It was applied, and not all of it became healthy: ${countsInWords(last.counts)}.`;
    case "FAILED":
      return `It could not be applied as a whole: ${countsInWords(last.counts)}. Nothing was pruned.`;
    case "SUPERSEDED":
      return "A newer commit took its place before it was applied.";
    case "INTERRUPTED":
      return "Its sync was interrupted, and begins again.";
    default:
      if (source.sync?.id !== last.id) return "A newer commit took its place before all of it was applied and healthy.";
      return last.startedAt ? "It is being applied." : "The agent has not begun with it.";
  }
}

/** Whether the source can be pinned to it: it was good once. What is held is confirmed instead. */
export function canPin(commit: Commit, source: WholeSource): boolean {
  return commit.objects !== null && !commit.rejectedAt && source.pinned !== commit.commit && source.heldCommit !== commit.commit;
}

/** Whether another commit is to be in the cluster by now, so that pinning to this one puts it back. */
export const isPast = (commit: Commit, source: WholeSource) => source.desiredCommit !== commit.commit;

/** Whether two sentences end in the same reason: then one of them is enough. */
export function saysTheSame(one: string, other: string): boolean {
  const end = one.slice(-40);
  return end.length === 40 && other.endsWith(end);
}

export function placeOf({ file, line, column }: Pick<Finding, "file" | "line" | "column">): string {
  return [file, line || null, line ? column || null : null].filter((part) => part !== null).join(":");
}

/** Differences by what would happen, the gravest first. */
export interface Consequence {
  change: ObjectDiff["change"];
  title: string;
  objects: ObjectDiff[];
  isGrave: boolean;
}

const TITLES: Record<ObjectDiff["change"], (objects: string) => string> = {
  prune: (objects) => `${objects} would be deleted`,
  refused: (objects) => `${objects} would be refused`,
  wait: (objects) => `${objects} would wait`,
  create: (objects) => `${objects} would be created`,
  change: (objects) => `${objects} would change`,
  keep: (objects) => `${objects} left Git and would stay`,
};
const ORDER: ObjectDiff["change"][] = ["prune", "refused", "wait", "change", "create", "keep"];
const TAKES_OTHERS = new Set(["Namespace", "CustomResourceDefinition"]);

/** What would happen, prunes first; of those first what takes others with it. */
export function consequences(diff: SourceDiff): Consequence[] {
  const found: Consequence[] = [];
  for (const change of ORDER) {
    const objects = diff.objects.filter((one) => one.change === change);
    if (objects.length === 0) continue;
    if (change !== "prune") {
      found.push({ change, title: TITLES[change](count(objects.length, "object")), objects, isGrave: change === "refused" });
      continue;
    }
    const grave = objects.filter((one) => TAKES_OTHERS.has(one.identity.kind));
    for (const one of grave) {
      const inside = objects.filter((other) => other.identity.namespace === one.identity.name && one.identity.kind === "Namespace");
      const what = one.identity.kind === "Namespace" ? "namespace" : "kind";
      const known = inside.length > 0 ? `, ${count(inside.length, "object")} of this source among it` : "";
      const title = `The ${what} ${one.identity.name} and everything in it would be deleted${known}`;
      found.push({ change, title, objects: [one, ...inside], isGrave: true });
    }
    const listed = new Set(found.flatMap((one) => one.objects));
    const rest = objects.filter((one) => !listed.has(one));
    if (rest.length > 0) found.push({ change, title: TITLES.prune(count(rest.length, "object")), objects: rest, isGrave: true });
  }
  return found;
}

/** What would happen, in numbers. */
export function diffInWords(diff: SourceDiff): string {
  const number = (change: ObjectDiff["change"]) => diff.objects.filter((one) => one.change === change).length;
  const parts: [number, string][] = [
    [number("prune"), "to delete"],
    [number("create"), "to create"],
    [number("change"), "to change"],
    [number("wait"), "waiting"],
    [number("refused"), "refused"],
  ];
  const said = parts.filter(([some]) => some > 0).map(([some, word]) => `${some} ${word}`);
  return said.length > 0 ? said.join(", ") : "nothing would change";
}
