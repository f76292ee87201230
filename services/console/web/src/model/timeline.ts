// How the objects of a place were over a time, by what the log has of their changes.

import type { Line } from "../api/place.ts";
import type { Change } from "../api/types.ts";
import { fate, isGone } from "./gone.ts";
import { isSomebody, type Stretch, stretches } from "./overview.ts";
import { compare, isBad, ofHealth, type Status, worst } from "./status.ts";
import { type Forest, statusOf } from "./tree.ts";

export interface Mark {
  at: number;
  kind: "made" | "degraded" | "gone";
  text: string;
}

/** One object at the top, with what became of it and of what is below it. */
export interface Lane {
  key: string;
  kind: string;
  name: string;
  /** The object; null where it is gone. */
  line: Line | null;
  status: Status;
  stretches: Stretch[];
  marks: Mark[];
}

/** The object at the top above each object. */
function tops(forest: Forest): Map<string, string> {
  const found = new Map<string, string>();
  const top = (uid: string): string => {
    let at = uid;
    for (const passed = new Set([uid]); ; ) {
      const above = forest.get(at)?.parent;
      if (!above || !forest.has(above) || passed.has(above)) return at;
      passed.add(above);
      at = above;
    }
  };
  for (const uid of forest.keys()) found.set(uid, top(uid));
  return found;
}

function described(change: Change): string {
  const who = change.writer?.manager ?? "somebody";
  const fields = change.fields.slice(0, 3).join(", ");
  return `${change.kind} ${change.name}: ${who} ${change.what}${fields ? ` ${fields}` : ""}`;
}

/** Before the first change of a time an object was as that change found it, from when it was made or the log begins. */
function whole(changes: Change[], line: Line | null, from: number, until: number, known: number): Stretch[] {
  const found = stretches(changes, from, until);
  const created = line?.createdAt ? Date.parse(line.createdAt) : from;
  const start = Math.max(from, known, created);
  const first = changes.at(-1);
  if (!first) return line && start < until ? [{ from: start, until, status: statusOf(line) }] : [];
  const begins = Math.max(from, Date.parse(first.recordedAt));
  const isNew = ["created", "first-seen"].includes(first.what);
  if (!isNew && begins > start) found.unshift({ from: start, until: begins, status: ofHealth(first.healthBefore ?? first.health) });
  return found;
}

/** A lane for each object at the top; those that changed come first, of these the worst. `changes` has the newest first. */
export function lanes(forest: Forest, changes: Change[], from: number, until: number, known: number): Lane[] {
  const above = tops(forest);
  // A gap says that states between two that are known were left out: the latter holds from then on.
  const shown = changes.filter(({ kind, what }) => kind !== "Event" && what !== "gap");
  const own = Map.groupBy(shown, ({ uid }) => uid);
  const below = Map.groupBy(shown, ({ uid }) => above.get(uid) ?? uid);
  const members = Map.groupBy([...forest.values()].map(({ line }) => line).filter(({ uid, kind }) => above.get(uid) !== uid && kind !== "Event"), ({ uid }) => above.get(uid) ?? uid);
  const found: Lane[] = [];
  const lane = (key: string, line: Line | null, of: Pick<Change, "kind" | "name">) => {
    const marks: Mark[] = (below.get(key) ?? []).flatMap((change): Mark[] => {
      const at = Date.parse(change.recordedAt);
      if (isGone(change) && change.uid === key) return [{ at, kind: "gone", text: `${change.kind} ${change.name} ${fate([change], until)}` }];
      if (change.healthBefore && ofHealth(change.health) === "degraded") return [{ at, kind: "degraded", text: `${change.kind} ${change.name} became degraded` }];
      const isMade = isSomebody(change.writer) && change.what !== "first-seen" && change.fields.some((field) => !field.startsWith("status"));
      return isMade ? [{ at, kind: "made", text: described(change) }] : [];
    });
    // What an object has brought about and is degraded makes it so, whatever itself says of it.
    const wrong = (members.get(key) ?? []).flatMap((member) => whole(own.get(member.uid) ?? [], member, from, until, known)).filter(({ status }) => status === "degraded");
    const parts = [...whole(own.get(key) ?? [], line, from, until, known), ...wrong];
    const status = line ? statusOf(line) : "none";
    found.push({ key, kind: of.kind, name: of.name, line, status, stretches: parts, marks });
  };
  for (const { line } of forest.values()) if (above.get(line.uid) === line.uid && line.kind !== "Event") lane(line.uid, line, line);
  for (const [uid, of] of own) {
    const [last] = of;
    // What was below something else went with it; what stood for itself is shown as gone.
    if (!forest.has(uid) && last && isGone(last) && !/^(Pod|ReplicaSet|EndpointSlice|ControllerRevision)$/.test(last.kind)) lane(uid, null, last);
  }
  const wrong = (one: Lane) => worst([one.status, ...one.stretches.map(({ status }) => status)]);
  const moved = (one: Lane) => Number(one.marks.length === 0 && !one.stretches.some(({ status }) => isBad(status)));
  return found
    .filter((one) => one.marks.length > 0 || one.stretches.some(({ status }) => status !== "none"))
    .sort((one, other) => moved(one) - moved(other) || compare(wrong(one), wrong(other)) || one.kind.localeCompare(other.kind) || one.name.localeCompare(other.name));
}
