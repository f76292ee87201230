// How far the pods of each workload are: from the index, never from metrics.

import type { Body } from "../api/object.ts";
import type { Line } from "../api/place.ts";
import { textOf, valueAt } from "./facts.ts";
import { compare, type Status } from "./status.ts";
import { childrenOf, type Forest, type Node, statusOf } from "./tree.ts";

const WORKLOADS = ["Deployment", "StatefulSet", "DaemonSet", "Rollout", "ReplicaSet"];
/** Labels by which workloads of one application know each other. */
const APPLICATION = ["app.kubernetes.io/instance", "app.kubernetes.io/name", "app"];

/** Pods that run one version of a workload. */
export interface Track {
  name: string;
  pods: Line[];
  /** The workload that it belongs to, where a block has several. */
  workload: Line;
}

/** A workload, or the tracks of one application. */
export interface Block {
  key: string;
  workloads: Line[];
  status: Status;
  wanted: number;
  ready: number;
  updated: number;
  tracks: Track[];
  /** Somebody paused it, or a partition holds it. */
  note: string | null;
}

export type Bodies = ReadonlyMap<string, Body>;

/** Workloads of which pods are shown, and the revisions that have pods: what the board wants bodies of. */
export function workloadsOf(forest: Forest): { workload: Node; pods: Line[]; revisions: Node[] }[] {
  const children = childrenOf(forest);
  const podsBelow = (uid: string): Line[] => (children.get(uid) ?? []).flatMap(({ line }) => (line.kind === "Pod" ? [line] : line.kind === "ReplicaSet" ? podsBelow(line.uid) : []));
  const found = [];
  for (const node of forest.values()) {
    if (!WORKLOADS.includes(node.line.kind)) continue;
    const isRevision = node.line.kind === "ReplicaSet" && node.parent !== null && forest.has(node.parent);
    if (isRevision) continue;
    const revisions = (children.get(node.line.uid) ?? []).filter(({ line }) => line.kind === "ReplicaSet" && podsBelow(line.uid).length > 0);
    const pods = podsBelow(node.line.uid);
    found.push({ workload: node, pods, revisions });
  }
  return found;
}

const number = (value: unknown, otherwise: number) => (typeof value === "number" ? value : otherwise);
const labelOf = (body: Body | undefined, name: string) => textOf(valueAt(body ?? null, "metadata", "labels", name));

/** The revision that a workload moves to, by its own words. */
function newest(workload: Line, revisions: Node[], bodies: Bodies): string | null {
  if (workload.kind === "Rollout") {
    const hash = textOf(valueAt(bodies.get(workload.uid) ?? null, "status", "currentPodHash"));
    return revisions.find(({ line }) => labelOf(bodies.get(line.uid), "rollouts-pod-template-hash") === hash)?.line.uid ?? null;
  }
  const revision = (line: Line) => Number(textOf(valueAt(bodies.get(line.uid) ?? null, "metadata", "annotations", "deployment.kubernetes.io/revision")) ?? 0);
  const sorted = [...revisions].sort((one, other) => revision(other.line) - revision(one.line) || (other.line.createdAt ?? "").localeCompare(one.line.createdAt ?? ""));
  return sorted[0]?.line.uid ?? null;
}

const names = new Intl.Collator("en", { numeric: true });
const byName = (one: Line, other: Line) => names.compare(one.name, other.name);

function tracksOf(workload: Line, pods: Line[], revisions: Node[], forest: Forest, bodies: Bodies): Track[] {
  const body = bodies.get(workload.uid) ?? null;
  const track = (name: string, of: Line[]): Track => ({ name, pods: [...of].sort(byName), workload });
  const partition = number(valueAt(body, "spec", "updateStrategy", "rollingUpdate", "partition"), 0);
  if (workload.kind === "StatefulSet" && partition > 0) {
    const isNew = ({ name }: Line) => Number(/-(\d+)$/.exec(name)?.[1] ?? 0) >= partition;
    return [track("canary", pods.filter(isNew)), track("stable", pods.filter((pod) => !isNew(pod)))];
  }
  if (revisions.length < 2) return [track(labelOf(body ?? undefined, "track") ?? "", pods)];
  const current = newest(workload, revisions, bodies);
  const isNew = (pod: Line) => forest.get(pod.uid)?.parent === current;
  const [name, old] = workload.kind === "Rollout" ? ["canary", "stable"] : ["new", "old"];
  return [track(name as string, pods.filter(isNew)), track(old as string, pods.filter((pod) => !isNew(pod)))];
}

function blockOf(workload: Line, pods: Line[], tracks: Track[], bodies: Bodies): Block {
  const body = bodies.get(workload.uid) ?? null;
  const isDaemon = workload.kind === "DaemonSet";
  const status = (name: string, otherwise: number) => (body ? number(valueAt(body, "status", name), 0) : otherwise);
  const well = pods.filter((pod) => statusOf(pod) === "healthy").length;
  const partition = number(valueAt(body, "spec", "updateStrategy", "rollingUpdate", "partition"), 0);
  const isPaused = valueAt(body, "spec", "paused") === true || valueAt(body, "status", "pauseConditions") !== undefined;
  return {
    key: workload.uid,
    workloads: [workload],
    status: statusOf(workload),
    wanted: isDaemon ? status("desiredNumberScheduled", pods.length) : number(valueAt(body, "spec", "replicas"), pods.length),
    ready: status(isDaemon ? "numberReady" : "readyReplicas", well),
    updated: workload.kind === "ReplicaSet" ? pods.length : status(isDaemon ? "updatedNumberScheduled" : "updatedReplicas", tracks[0]?.pods.length ?? 0),
    tracks,
    note: isPaused ? "paused" : partition > 0 ? `partition at ${partition}` : null,
  };
}

/** What makes workloads one application: the label `track`, or Flagger's naming beside its Canary. */
function application(block: Block, canaries: ReadonlySet<string>, bodies: Bodies): { key: string; track: string } | null {
  const workload = block.workloads[0] as Line;
  const body = bodies.get(workload.uid);
  const base = workload.name.replace(/-primary$/, "");
  if (canaries.has(`${workload.namespace} ${base}`) && workload.kind !== "ReplicaSet") return { key: `flagger ${workload.namespace} ${base}`, track: base === workload.name ? "canary" : "stable" };
  const track = labelOf(body, "track") ?? textOf(valueAt(body ?? null, "spec", "template", "metadata", "labels", "track"));
  const name = APPLICATION.map((label) => labelOf(body, label)).find((value) => value !== null);
  return track && name ? { key: `label ${workload.namespace} ${name}`, track } : null;
}

function merged(blocks: { block: Block; track: string }[]): Block {
  const order = ["canary", "stable"];
  const sorted = [...blocks].sort((one, other) => order.indexOf(one.track) - order.indexOf(other.track));
  const sum = (of: (block: Block) => number) => sorted.reduce((all, { block }) => all + of(block), 0);
  const first = (sorted.find(({ track }) => track === "stable") ?? sorted[0])?.block as Block;
  return {
    key: first.key,
    workloads: sorted.flatMap(({ block }) => block.workloads),
    status: sorted.map(({ block }) => block.status).sort(compare)[0] ?? "none",
    wanted: sum(({ wanted }) => wanted),
    ready: sum(({ ready }) => ready),
    updated: sum(({ updated }) => updated),
    tracks: sorted.flatMap(({ block, track }) => block.tracks.map((one) => ({ ...one, name: track }))),
    note: sorted.map(({ block }) => block.note).find((note) => note !== null) ?? null,
  };
}

/** All workloads, the worst first. Those without pods, and that want none, come last. */
export function board(forest: Forest, bodies: Bodies): Block[] {
  const blocks = workloadsOf(forest).map(({ workload: { line }, pods, revisions }) => blockOf(line, pods, tracksOf(line, pods, revisions, forest, bodies), bodies));
  const canaries = new Set([...forest.values()].filter(({ line }) => line.kind === "Canary").map(({ line }) => `${line.namespace} ${line.name}`));
  const named = blocks.map((block) => ({ block, application: application(block, canaries, bodies) }));
  const single = named.filter(({ application }) => !application).map(({ block }) => block);
  const several = Map.groupBy(named.filter(({ application }) => application), ({ application }) => application?.key ?? "");
  const joined = [...several.values()].map((group) => merged(group.map(({ block, application }) => ({ block, track: application?.track ?? "" }))));
  const rest = (block: Block) => Number(block.wanted === 0 && block.tracks.every(({ pods }) => pods.length === 0));
  return [...single, ...joined].sort(
    (one, other) => rest(one) - rest(other) || compare(one.status, other.status) || byName(one.workloads[0] as Line, other.workloads[0] as Line),
  );
}

/** So many of a hundred, of all that is wanted. */
export function percent(part: number, whole: number): number {
  return whole === 0 ? 100 : Math.floor((Math.min(part, whole) * 100) / whole);
}
