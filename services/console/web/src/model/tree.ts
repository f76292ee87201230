// A forest of objects and where its nodes are drawn: from left to right, in one pass. Rows are given from the top, so that what comes below
// an object moves nothing above it.

import type { Line } from "../api/place.ts";
import { compare, isBad, ofHealth, type Status } from "./status.ts";

export const COLUMN = 264;
export const ROW = 44;
export const WIDTH = 216;
export const HEIGHT = 36;
/** So many siblings of one kind are folded into one node, beside the worst. */
const FOLDED_FROM = 4;
/** Of folded ones so many that are not well stay open. */
const OPEN = 2;
/** An owner of an owner of an owner: deeper is not drawn, as rings have no end. */
const DEPTH = 32;

/** An object and the one that it is below. */
export interface Node {
  line: Line;
  parent: string | null;
  relation: string | null;
}

export type Forest = ReadonlyMap<string, Node>;

/** What is drawn: an object, or several of one kind. */
export interface Drawn {
  key: string;
  x: number;
  y: number;
  depth: number;
  /** Place of the parent in the list of what is drawn. */
  parent: number | null;
  status: Status;
  /** The object; null for a fold. */
  line: Line | null;
  relation: string | null;
  /** How many a fold holds, and of which kind. */
  fold: { kind: string; count: number; isOpen: boolean; isStale: boolean } | null;
  children: number;
  /** It is on the way from a root to what is to blame. */
  guilty: boolean;
}

/** Of siblings of one kind those that stay beside the fold: some that are not well, and the few that others hang below, such as the
 * ReplicaSet that has the pods. */
function outside(siblings: Node[], children: ReadonlyMap<string, Node[]>): Node[] {
  const above = siblings.filter(({ line }) => children.has(line.uid));
  const bad = siblings.filter(({ line }) => isBad(statusOf(line))).slice(0, OPEN);
  return above.length <= OPEN ? [...new Set([...bad, ...above])] : bad;
}

export interface Layout {
  drawn: Drawn[];
  width: number;
  height: number;
  /** What is below each object, in order: the next layout sorts only what has changed since. */
  sorted: ReadonlyMap<string, Node[]>;
}

export const statusOf = (line: Line): Status => ofHealth(line.health.state);

const names = new Intl.Collator("en", { numeric: true });
const byName = (one: string, other: string) => (one === other ? 0 : names.compare(one, other));
const byWorst = (one: Node, other: Node) =>
  compare(statusOf(one.line), statusOf(other.line)) || byName(one.line.kind, other.line.kind) || byName(one.line.name, other.line.name);

/** Kinds in the order of what people look for; others come behind them. */
const FIRST = ["Deployment", "Rollout", "StatefulSet", "DaemonSet", "CronJob", "Job", "Pod", "Service", "Ingress"];
const RANK = new Map(FIRST.map((kind, rank) => [kind, rank]));
const rank = (kind: string) => RANK.get(kind) ?? FIRST.length;

/** Within one kind this is the order of [`byWorst`]. */
const byKind = (one: Node, other: Node) =>
  Number(isBad(statusOf(other.line))) - Number(isBad(statusOf(one.line))) ||
  rank(one.line.kind) - rank(other.line.kind) ||
  byName(one.line.kind, other.line.kind) ||
  byWorst(one, other);

/** Siblings in order. Those that were sorted before come in their order of then: what is nearly sorted takes one comparison each. */
function inOrder(nodes: Node[], before: Node[] | undefined): Node[] {
  if (!before) return [...nodes].sort(byKind);
  const left = new Map(nodes.map((node) => [node.line.uid, node]));
  const sorted: Node[] = [];
  let isSame = before.length === nodes.length;
  for (const old of before) {
    const node = left.get(old.line.uid);
    isSame &&= node === old;
    if (!node) continue;
    sorted.push(node);
    left.delete(old.line.uid);
  }
  if (isSame) return before;
  sorted.push(...left.values());
  return sorted.sort(byKind);
}

/** The objects below each object; those below nothing that is there under the empty name. Events tell of others, and stand with them. */
export function childrenOf(forest: Forest): Map<string, Node[]> {
  const children = new Map<string, Node[]>();
  for (const node of forest.values()) {
    if (node.line.kind === "Event") continue;
    const above = node.parent !== null && forest.has(node.parent) ? node.parent : "";
    const known = children.get(above);
    if (known) known.push(node);
    else children.set(above, [node]);
  }
  return children;
}

/** An object and what is below it. */
export function family(of: Line, forest: Forest): Map<string, Line> {
  const found = new Map([[of.uid, of]]);
  const children = Map.groupBy(forest.values(), ({ parent }) => parent);
  for (const uid of found.keys()) for (const { line } of children.get(uid) ?? []) if (!found.has(line.uid)) found.set(line.uid, line);
  return found;
}

/** Where everything is drawn. `open` has the keys of folds that somebody opened, `shut` the objects whose children are hidden. With `order`, the
 * places of an earlier layout, nothing that was drawn changes its order. `before` is the layout before, which saves work. */
export function layout(
  forest: Forest,
  open: ReadonlySet<string>,
  shut: ReadonlySet<string>,
  order: ReadonlyMap<string, number> | null = null,
  before: Layout | null = null,
): Layout {
  const placeOf = (key: string) => order?.get(key) ?? Number.MAX_SAFE_INTEGER;
  const known = new Map<string, Node[]>();
  const arranged = (of: string, nodes: Node[]) => {
    const sorted = inOrder(nodes, before?.sorted.get(of));
    known.set(of, sorted);
    return order ? [...sorted].sort((one, other) => placeOf(one.line.uid) - placeOf(other.line.uid)) : sorted;
  };
  const children = childrenOf(forest);
  const drawn: Drawn[] = [];
  let row = 0;
  let deepest = 0;

  const place = (one: Omit<Drawn, "x" | "y">): number => {
    deepest = Math.max(deepest, one.depth);
    return drawn.push({ ...one, x: one.depth * COLUMN, y: row * ROW }) - 1;
  };
  const node = ({ line, relation }: Node, parent: number | null, depth: number, above: boolean) => {
    const below = children.get(line.uid) ?? [];
    const status = statusOf(line);
    const guilty = isBad(status) && status !== "progressing" && above;
    const at = place({ key: line.uid, depth, parent, status, line, relation, fold: null, children: below.length, guilty });
    const start = row;
    if (!shut.has(line.uid) && depth < DEPTH) group(below, line.uid, at, depth + 1, guilty);
    if (row === start) row += 1;
  };
  const group = (nodes: Node[], of: string, parent: number | null, depth: number, above: boolean) => {
    for (const [kind, all] of Map.groupBy(arranged(of, nodes), ({ line }) => `${line.kind}.${line.group}`)) {
      const key = `${of}/${kind}`;
      if (all.length < FOLDED_FROM) {
        for (const one of all) node(one, parent, depth, above);
        continue;
      }
      const sorted = order ? [...all].sort(byWorst) : all;
      const bad = order?.has(key)
        ? sorted.filter(({ line }) => placeOf(line.uid) < placeOf(key))
        : outside(sorted, children);
      const apart = new Set(bad);
      const rest = sorted.filter((one) => !apart.has(one));
      for (const one of bad) node(one, parent, depth, above);
      const worst = rest[0];
      if (!worst) continue;
      const isOpen = open.has(key);
      place({
        key,
        depth,
        parent,
        status: statusOf(worst.line),
        line: null,
        relation: worst.relation,
        fold: { kind: worst.line.kind, count: rest.length, isOpen, isStale: rest.some(({ line }) => line.stale !== null) },
        children: 0,
        guilty: false,
      });
      row += 1;
      if (isOpen) for (const one of rest) node(one, parent, depth, above);
    }
  };
  group(children.get("") ?? [], "", null, 0, true);
  return { drawn, width: deepest * COLUMN + WIDTH, height: Math.max(0, row * ROW - (ROW - HEIGHT)), sorted: known };
}

/** Which node is next in a direction. */
export function next({ drawn }: Layout, at: number, key: string): number {
  const here = drawn[at];
  if (!here) return 0;
  const last = drawn.length - 1;
  if (key === "ArrowUp") return Math.max(0, at - 1);
  if (key === "ArrowDown") return Math.min(last, at + 1);
  if (key === "ArrowLeft") return here.parent ?? at;
  if (key === "ArrowRight") return drawn[at + 1]?.parent === at ? at + 1 : at;
  if (key === "Home") return 0;
  return key === "End" ? last : at;
}
