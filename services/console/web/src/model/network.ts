// Where the parts of a network are drawn: a column for each role, from left to right as traffic goes. Each node stands near those that it is
// connected to, and lines cross as seldom as a few passes achieve.

import type { Network, NetworkEdge, NetworkNode, Role } from "../api/network.ts";
import { ofHealth, type Status } from "./status.ts";

/** Five columns fit into a window of 1280. */
const COLUMN = 244;
export const WIDTH = 196;
/** A node has two lines; three where a mesh is known. */
const LINES = { plain: 44, meshed: 62 };
const GAP = 8;
/** The heads of the columns stand above. */
const TOP = 32;
const PASSES = 8;

export const ROLES: Record<Role, string> = {
  ENTRY: "Lets traffic in",
  ROUTE: "Routes",
  SERVICE: "Services",
  WORKLOAD: "Workloads",
  POLICY: "Policies",
};

/** Relations as a sentence has them. */
const WORDS: Record<string, string> = { "routes-to": "routes to", serves: "hands over to", selects: "sends to", protects: "is for" };
export const wordsOf = (relation: string) => WORDS[relation] ?? relation;

export interface Placed {
  node: NetworkNode;
  /** Its number among the nodes. */
  number: number;
  x: number;
  y: number;
}

export interface Drawing {
  columns: { role: Role; x: number }[];
  /** By the numbers of the nodes. */
  placed: Placed[];
  edges: NetworkEdge[];
  /** Of each node. */
  nodeHeight: number;
  width: number;
  height: number;
}

/** What is known of a node's health. */
export function statusOf({ resource, missing }: NetworkNode): Status {
  if (missing) return "missing";
  return resource ? ofHealth(resource.health.state) : "none";
}

/** The nodes that each node has an edge with. */
export function neighboursOf({ nodes, edges }: Pick<Network, "nodes" | "edges">): number[][] {
  const found: number[][] = nodes.map(() => []);
  for (const { from, to } of edges) {
    found[from]?.push(to);
    found[to]?.push(from);
  }
  return found;
}

/** Where each of a column stands, from the top, when each wants to be at a place of its own: in order, none upon another, none moved further than
 * needed. Neighbours that are in each other's way share the middle of what they want. */
function spread(wanted: number[], row: number): number[] {
  const blocks: { sum: number; count: number }[] = [];
  const start = ({ sum, count }: { sum: number; count: number }) => sum / count;
  wanted.forEach((place, number) => {
    // As if all before it took no room: what is left are places that never fall.
    let block = { sum: place - number * row, count: 1 };
    for (let before = blocks.at(-1); before && start(before) > start(block); before = blocks.at(-1)) {
      blocks.pop();
      block = { sum: before.sum + block.sum, count: before.count + block.count };
    }
    blocks.push(block);
  });
  return blocks.flatMap((block) => Array<number>(block.count).fill(start(block))).map((place, number) => place + number * row);
}

/** Places everything. */
export function layout(network: Pick<Network, "nodes" | "edges">): Drawing {
  const { nodes, edges } = network;
  const nodeHeight = nodes.some(({ mesh }) => mesh) ? LINES.meshed : LINES.plain;
  const step = nodeHeight + GAP;
  const roles = (Object.keys(ROLES) as Role[]).filter((role) => nodes.some((node) => node.role === role));
  const neighbours = neighboursOf(network);
  const columns = roles.map((role) => nodes.flatMap((node, number) => (node.role === role ? [number] : [])));
  const y: number[] = [];
  for (const column of columns) column.forEach((number, row) => (y[number] = row * step));
  const middle = (number: number): number => {
    const all = (neighbours[number] ?? []).map((other) => y[other] ?? 0).sort((one, other) => one - other);
    if (all.length === 0) return Number.MAX_SAFE_INTEGER;
    const half = all.length >> 1;
    return all.length % 2 ? (all[half] ?? 0) : ((all[half - 1] ?? 0) + (all[half] ?? 0)) / 2;
  };
  for (let pass = 0; pass < PASSES; pass++) {
    const inTurn = pass % 2 ? columns.toReversed() : columns;
    for (const column of inTurn) {
      const wanted = new Map(column.map((number) => [number, middle(number)]));
      // Of those that want the same place the order stays; what has no line stands below the others.
      column.sort((one, other) => (wanted.get(one) ?? 0) - (wanted.get(other) ?? 0) || (y[one] ?? 0) - (y[other] ?? 0));
      let last = -step;
      const places = column.map((number) => {
        const place = wanted.get(number) ?? 0;
        last = place === Number.MAX_SAFE_INTEGER ? last + step : place;
        return last;
      });
      spread(places, step).forEach((place, row) => (y[column[row] as number] = place));
    }
  }
  const highest = Math.min(0, ...y);
  const columnOf = new Map(columns.flatMap((column, place) => column.map((number) => [number, place] as const)));
  const placed = nodes.map((node, number) => ({ node, number, x: (columnOf.get(number) ?? 0) * COLUMN, y: TOP + Math.round((y[number] ?? 0) - highest) }));
  const height = Math.max(TOP, ...placed.map((one) => one.y + nodeHeight));
  return { columns: roles.map((role, place) => ({ role, x: place * COLUMN })), placed, edges, nodeHeight, width: Math.max(0, roles.length - 1) * COLUMN + WIDTH, height };
}

/** Which node is next in a direction: in the column, or along a line. */
export function next({ placed, edges }: Drawing, at: number, key: string): number {
  const here = placed[at];
  if (!here) return 0;
  const nearest = (all: Placed[]) => all.sort((one, other) => Math.abs(one.y - here.y) - Math.abs(other.y - here.y))[0]?.number ?? at;
  const column = placed.filter(({ x }) => x === here.x);
  if (key === "ArrowUp") return nearest(column.filter(({ y }) => y < here.y));
  if (key === "ArrowDown") return nearest(column.filter(({ y }) => y > here.y));
  const beside = (is: (x: number) => boolean) => {
    const linked = edges.flatMap(({ from, to }) => (from === at ? [to] : to === at ? [from] : []));
    return nearest(placed.filter(({ x, number }) => is(x) && linked.includes(number)));
  };
  if (key === "ArrowLeft") return beside((x) => x < here.x);
  if (key === "ArrowRight") return beside((x) => x > here.x);
  return at;
}

/** What of the mesh matters of a workload, in a few words. */
export function meshInWords({ mesh }: NetworkNode): string | null {
  if (!mesh) return null;
  return mesh.mesh === "none" ? "no mesh" : `mTLS ${mesh.mtls}${mesh.ports.length > 0 ? " *" : ""}`;
}

/** All of it. */
export function meshInFull({ mesh }: NetworkNode): string {
  if (!mesh) return "";
  const ports = mesh.ports.map(({ port, mtls }) => `, port ${port}: ${mtls}`).join("");
  return `${mesh.mesh === "none" ? "In no mesh" : mesh.mesh}, mTLS ${mesh.mtls}: ${mesh.reason}${ports}`;
}
