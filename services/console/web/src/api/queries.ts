import type { Agent, AsOf, Change, Cluster, Environment, Resource, Source } from "./types.ts";

const RESOURCE = "agent agentName group kind namespace name uid health { state message terminating optional } createdAt changedAt stale";
const DEPLOYMENT = "status reason ref sha by createdAt finishedAt agent { id kubernetesNamespace }";
const BAD = "[UNKNOWN, DEGRADED, MISSING, PROGRESSING]";

/** What is not well, in any cluster. */
export const UNWELL = `query Unwell($at: Moment) { resources(filter: { health: ${BAD} }, at: $at, first: 500) {
  nodes { ${RESOURCE} } pageInfo { hasNextPage } asOf { position judgedAt horizon } } }`;

export interface UnwellAnswer {
  resources: { nodes: Resource[]; pageInfo: { hasNextPage: boolean }; asOf: AsOf };
}

/** What things are delivered to, by whom, and how fresh the word of each cluster is. */
export const AROUND = `query Around {
  environments(first: 200) { nodes { id name projectPath tier state externalUrl running
    lastDeployment { ${DEPLOYMENT} } lastSuccess: lastDeployment(status: SUCCESS) { ${DEPLOYMENT} } } }
  sources(first: 200) { nodes { id agent name defaultNamespace newestCommit desiredCommit syncedCommit syncedAt
    status { state reason message since }
    sync { id commit startedAt finishedAt outcome counts { created changed pruned failed } } } }
  agents(first: 100) { nodes { id name projectPath registeredAt
    status { state conditions { state reason message since } instances { id since version applier } goneSince } } }
  coverage { agents { agent agentName objects kinds heardAt stale blindCount blind { resource namespace reason missingVerb } } } }`;

export interface AroundAnswer {
  environments: { nodes: Environment[] };
  sources: { nodes: Source[] };
  agents: { nodes: Agent[] };
  coverage: { agents: Cluster[] };
}

/** What changed in the last hour. */
export const CHANGED = `query Changed($from: Moment!, $to: Moment) { changes(from: $from, to: $to, first: 400) { nodes {
  agent agentName group kind namespace name uid recordedAt seenAt notBefore what writer { manager subresource } fields fieldCount health healthBefore owned } } }`;

export interface ChangedAnswer {
  changes: { nodes: Change[] };
}

/** Text as GraphQL writes it. */
const text = (value: string) => JSON.stringify(value);

export type Place = Pick<Resource, "agent" | "namespace">;
export type Link = Pick<Resource, "group" | "kind" | "namespace" | "name" | "uid"> & { health: { state: Resource["health"]["state"]; message: string } };

/** From what is not well in some places down to what is to blame. */
export function whyIn(places: Place[], at: string | null): string {
  const when = at ? `, at: ${text(at)}` : "";
  const parts = places.map(
    ({ agent, namespace }, number) =>
      `p${number}: why(filter: { agent: ${text(agent)}, namespace: ${text(namespace)}, health: ${BAD} }${when}) {
        chains { resources { group kind namespace name uid health { state message } } } }`,
  );
  return `query Why { ${parts.join("\n")} }`;
}

export type WhyAnswer = Record<string, { chains: { resources: Link[] }[] } | null>;

/** Changes of some objects, the newest first. */
export function historyOf(objects: Pick<Resource, "agent" | "group" | "kind" | "namespace" | "name">[], first: number): string {
  const parts = objects.map(({ agent, group, kind, namespace, name }, number) => {
    const of = group ? `${kind}.${group}` : kind;
    return `h${number}: resourceHistory(first: ${first}, filter: { agent: ${text(agent)}, kind: ${text(of)}, namespace: ${text(namespace)},
      name: ${text(name)} }) { nodes { uid recordedAt seenAt notBefore what writer { manager subresource } fields fieldCount health healthBefore } }`;
  });
  return `query History { ${parts.join("\n")} }`;
}

export type Past = Pick<Change, "uid" | "recordedAt" | "seenAt" | "notBefore" | "what" | "writer" | "fields" | "fieldCount" | "health" | "healthBefore">;
export type HistoryAnswer = Record<string, { nodes: Past[] } | null>;
