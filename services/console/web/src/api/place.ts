// What the page of an environment asks.

import type { AsOf, Change, Deployment, Environment, Health, Resource } from "./types.ts";

/** Fields of a `Line`. */
export const LINE = `agent agentName group version kind namespace name uid health { state message terminating optional } createdAt changedAt stale
  owners { kind name through }`;
const HEALTH = "health { state objects counts { state count } stale hidden }";

/** Who put an object there. */
export interface Owner {
  kind: string;
  name: string;
  through: string | null;
}

/** An object as a tree has it. */
export interface Line extends Resource {
  version: string;
  owners: Owner[];
}

export interface TreeNode {
  parent: number | null;
  relation: string | null;
  resource: Line;
}

/** How an environment is doing. */
export interface RollUp {
  state: Health;
  objects: number;
  counts: { state: Health; count: number }[];
  stale: string | null;
  hidden: string | null;
}

/** An environment's objects, each below the one that has caused it. */
export const TREE = `query Tree($id: ID!, $at: Moment) { environment(id: $id) { tree(at: $at, first: 2000) {
  ${HEALTH} nodes { parent relation resource { ${LINE} } } leftOut asOf { position judgedAt horizon } } } }`;

export interface TreeAnswer {
  environment: { tree: { health: RollUp; nodes: TreeNode[]; leftOut: number; asOf: AsOf } | null };
}

/** How it is doing, without its objects. */
export const ROLL_UP = `query RollUp($id: ID!) { environment(id: $id) { ${HEALTH} } }`;

export interface RollUpAnswer {
  environment: { health: RollUp | null };
}

/** Objects of a namespace, in pages. */
export const IN_NAMESPACE = `query InNamespace($agent: String, $namespace: String, $at: Moment, $after: String) {
  resources(filter: { agent: $agent, namespace: $namespace }, at: $at, first: 500, after: $after) {
    nodes { ${LINE} } pageInfo { hasNextPage endCursor } asOf { position judgedAt horizon } } }`;

export interface InNamespaceAnswer {
  resources: { nodes: Line[]; pageInfo: { hasNextPage: boolean; endCursor: string | null }; asOf: AsOf };
}

/** Kinds that have others below them. */
const ROOTS = ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "Service"];

/** What is below the workloads of a namespace. */
export const BELOW = `query Below($agent: String, $namespace: String, $at: Moment) { ${ROOTS.map(
  (kind) => `${kind}: resourceTree(filter: { agent: $agent, namespace: $namespace, kind: "${kind}" }, at: $at) { nodes { parent relation resource { uid } } }`,
).join("\n")} }`;

export type BelowAnswer = Record<string, { nodes: { parent: number | null; relation: string | null; resource: { uid: string } }[] } | null>;

/** Which object, for a query that asks about several. */
export type Named = Pick<Resource, "agent" | "group" | "kind" | "namespace" | "name">;

/** The filter that means one object. */
export function filterOf({ agent, group, kind, namespace, name }: Named) {
  return { agent, kind: group ? `${kind}.${group}` : kind, namespace: namespace || null, name };
}

function literal(named: Named): string {
  const text = Object.entries(filterOf(named)).filter(([, value]) => value !== null);
  return `{ ${text.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ")} }`;
}

/** Some objects as they are, with what is above them. */
export function linesOf(objects: Named[], at: string | null = null): string {
  const when = at ? `, at: ${JSON.stringify(at)}` : "";
  const parts = objects.map(
    (named, number) => `o${number}: resource(filter: ${literal(named)}${when}) { resource { ${LINE} } environments { id } related { relation inwards uid } }`,
  );
  return `query Lines { ${parts.join("\n")} }`;
}

export type LinesAnswer = Record<
  string,
  { resource: Line; environments: { id: string }[]; related: { relation: string; inwards: boolean; uid: string | null }[] } | null
>;

/** The bodies of some objects. */
export function bodiesOf(objects: Named[], at: string | null): string {
  const when = at ? `, at: ${JSON.stringify(at)}` : "";
  return `query Bodies { ${objects.map((named, number) => `o${number}: resource(filter: ${literal(named)}${when}) { body }`).join("\n")} }`;
}

export type BodiesAnswer = Record<string, { body: Record<string, unknown> | null } | null>;

const CHANGE = "agent agentName group kind namespace name uid recordedAt seenAt notBefore what writer { manager subresource } fields fieldCount health healthBefore owned";

/** What changed in a place, and what was delivered to it. */
export const SPAN = `query Span($filter: ResourceFilter, $from: Moment!, $to: Moment, $after: String) {
  changes(filter: $filter, from: $from, to: $to, first: 500, after: $after) { nodes { ${CHANGE} } pageInfo { hasNextPage endCursor } } }`;

export interface SpanAnswer {
  changes: { nodes: Change[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } };
}

/** Deployments into an environment, the newest first. */
export const DEPLOYMENTS = `query Deployments($id: ID!) { environment(id: $id) { deployments(first: 50) {
  nodes { status reason ref sha by createdAt finishedAt agent { id kubernetesNamespace } } } } }`;

export interface DeploymentsAnswer {
  environment: { deployments: { nodes: Deployment[] } };
}

/** An environment, or a namespace of a cluster. */
export interface Place {
  environment: Environment | null;
  agent: string;
  namespace: string;
}
