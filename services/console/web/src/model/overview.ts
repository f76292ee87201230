// What is wrong, worst first: objects that are not well by the place that they are in, with what is to blame; and what else keeps a place from
// being as it should be.

import type { AroundAnswer, Link, Past } from "../api/queries.ts";
import type { Agent, Cluster, Environment, Resource, Source, Tier } from "../api/types.ts";
import { isGone } from "./gone.ts";
import { compare, isBad, ofHealth, ofState, type Status, worst } from "./status.ts";

/** An object that is not well, and what is to blame for it. */
export interface Trouble {
  root: Resource;
  guilty: Link;
  status: Status;
}

/** A sentence about what is wrong that no object says. */
export interface Remark {
  status: Status;
  text: string;
  since: number | null;
}

/** A namespace of a cluster, an environment where one is there, or a whole cluster. */
export interface Group {
  key: string;
  title: string;
  where: string;
  tier: Tier | null;
  environment: Environment | null;
  agent: string;
  namespace: string;
  status: Status;
  /** What the status is called, where it has a word of its own. */
  word: string | null;
  stale: string | null;
  troubles: Trouble[];
  remarks: Remark[];
  /** When anything of it changed last. */
  changedAt: number;
}

export const keyOf = (place: { agent: string; namespace: string }) => `${place.agent}/${place.namespace}`;

/** The chains of a place without those that are part of another. */
export function troublesOf(resources: Resource[], chains: { resources: Link[] }[] | null): Trouble[] {
  const known = new Map(resources.map((resource) => [resource.uid, resource]));
  const below = new Set<string>();
  for (const { resources: chain } of chains ?? []) for (const link of chain.slice(1)) below.add(link.uid);
  const found: Trouble[] = [];
  const explained = new Set<string>();
  for (const { resources: chain } of chains ?? []) {
    const root = chain[0] && known.get(chain[0].uid);
    const guilty = chain.at(-1);
    if (!root || !guilty || below.has(root.uid) || root.health.optional) continue;
    explained.add(root.uid);
    found.push({ root, guilty, status: worst([ofHealth(root.health.state), ofHealth(guilty.health.state)]) });
  }
  if (!chains) {
    // Too many to be explained: each stands for itself.
    for (const root of resources) {
      if (!root.health.optional) found.push({ root, guilty: root, status: ofHealth(root.health.state) });
    }
  }
  return found.filter(({ status }) => isBad(status)).sort(bySeverity);
}

function bySeverity(one: Trouble, other: Trouble): number {
  return compare(one.status, other.status) || other.root.changedAt.localeCompare(one.root.changedAt);
}

/** Where an environment's objects are, as far as that is known. */
export function agentOf(environment: Environment) {
  return environment.lastSuccess?.agent ?? environment.lastDeployment?.agent ?? null;
}

/** Environments that are there, and of which it is known where their objects are. */
export function placed(environments: Environment[]): Environment[] {
  return environments.filter((one) => one.state === "AVAILABLE" && agentOf(one));
}

/** The environment of each place. */
export function environmentsByPlace(environments: Environment[]): Map<string, Environment> {
  const found = new Map<string, Environment>();
  for (const environment of environments) {
    const agent = agentOf(environment);
    if (agent) found.set(keyOf({ agent: agent.id, namespace: agent.kubernetesNamespace }), environment);
  }
  return found;
}

/** All groups that are not well, the worst first. `why` has the chains of each place, null where there are too many. */
export function wrong(
  resources: Resource[],
  why: ReadonlyMap<string, { resources: Link[] }[] | null>,
  around: AroundAnswer,
): Group[] {
  const environments = environmentsByPlace(around.environments.nodes);
  const agents = new Map(around.agents.nodes.map((agent) => [agent.id, agent]));
  const groups = new Map<string, Group>();
  const group = (agent: string, namespace: string, agentName: string): Group => {
    const key = keyOf({ agent, namespace });
    const known = groups.get(key);
    if (known) return known;
    const environment = environments.get(key) ?? null;
    const made: Group = {
      key,
      title: environment?.name ?? (namespace || "cluster-wide objects"),
      where: environment ? environment.projectPath : agentName,
      tier: environment?.tier ?? null,
      environment,
      agent,
      namespace,
      status: "none",
      word: null,
      stale: null,
      troubles: [],
      remarks: [],
      changedAt: 0,
    };
    groups.set(key, made);
    return made;
  };
  const nameOf = (agent: string) => agents.get(agent)?.name ?? agent;
  for (const [key, inPlace] of Map.groupBy(resources, keyOf)) {
    const first = inPlace[0];
    const chains = why.get(key);
    if (!first || chains === undefined) continue;
    const made = group(first.agent, first.namespace, nameOf(first.agent));
    made.troubles = troublesOf(inPlace, chains);
    made.stale = inPlace.find((resource) => resource.stale)?.stale ?? null;
    made.changedAt = Math.max(...inPlace.map((resource) => Date.parse(resource.changedAt)));
  }
  for (const source of around.sources.nodes) {
    const remark = remarkOf(source);
    if (!remark) continue;
    const made = group(source.agent, source.defaultNamespace, nameOf(source.agent));
    made.remarks.push(remark);
    made.changedAt = Math.max(made.changedAt, remark.since ?? 0);
  }
  for (const environment of around.environments.nodes) {
    const last = environment.lastDeployment;
    if (last?.status !== "FAILED" || !last.agent || !last.reason) continue;
    const made = group(last.agent.id, last.agent.kubernetesNamespace, nameOf(last.agent.id));
    if (made.troubles.length > 0 || made.remarks.length > 0) continue;
    const since = Date.parse(last.finishedAt ?? last.createdAt);
    made.remarks.push({ status: "degraded", text: `The last deployment failed: ${last.reason}`, since });
    made.changedAt = Math.max(made.changedAt, since);
  }
  for (const agent of around.agents.nodes) {
    const remark = absence(agent, around.coverage.agents.find((cluster) => cluster.agent === agent.id));
    if (!remark) continue;
    const key = `agent:${agent.id}`;
    const changedAt = remark.since ?? 0;
    const base = { key, title: agent.name, where: "cluster", tier: null, environment: null, agent: agent.id, namespace: "" };
    groups.set(key, { ...base, status: "unknown", word: "Not connected", stale: "its agent is not connected", troubles: [], remarks: [remark], changedAt });
  }
  return [...groups.values()]
    .map((made) => ({ ...made, status: worst([...made.troubles, ...made.remarks].map(({ status }) => status)) }))
    .filter((made) => isBad(made.status))
    .sort((one, other) => compare(one.status, other.status) || other.changedAt - one.changedAt || one.key.localeCompare(other.key));
}

/** What keeps a source from being in sync, where its objects do not say so themselves. */
function remarkOf(source: Source): Remark | null {
  const { state, message, since } = source.status;
  if (!["OUT_OF_SYNC", "REJECTED", "HELD"].includes(state)) return null;
  return { status: ofState(state), text: `Source ${source.name}: ${message}`, since: since ? Date.parse(since) : null };
}

function absence(agent: Agent, cluster: Cluster | undefined): Remark | null {
  const status = agent.status;
  if (!status || status.instances.length > 0 || !status.goneSince) return null;
  const objects = cluster?.objects ?? 0;
  const shown = objects > 0 ? `; ${objects.toLocaleString("en")} objects are shown as they were then` : "";
  return { status: "unknown", text: `Its agent lost its connection${shown}`, since: Date.parse(status.goneSince) };
}

/** A stretch of time with one status. */
export interface Stretch {
  from: number;
  until: number;
  status: Status;
}

/** The status of an object over a time, by its changes, the newest first. Before the first that is known there is nothing. */
export function stretches(past: Past[], from: number, until: number): Stretch[] {
  const found: Stretch[] = [];
  let end = until;
  for (const change of past) {
    const at = Math.max(from, Date.parse(change.recordedAt));
    const status = isGone(change) || change.what === "gap" ? "none" : ofHealth(change.health);
    if (at < end) {
      const last = found.at(-1);
      if (last?.status === status && last.from === end) last.from = at;
      else found.push({ from: at, until: end, status });
      end = at;
    }
    if (at <= from) break;
  }
  return found.reverse();
}

/** Since when an object has not been well: when it last was, or the first that is known of it. */
export function notWellSince(past: Past[]): number | null {
  let since: number | null = null;
  for (const change of past) {
    if (!isBad(ofHealth(change.health))) break;
    since = Date.parse(change.recordedAt);
    if (change.healthBefore && !isBad(ofHealth(change.healthBefore))) break;
  }
  return since;
}

/** The last change that somebody made, not the cluster itself. */
export function lastMade(past: Past[]): Past | null {
  return past.find((change) => change.fields.some((field) => !field.startsWith("status")) && isSomebody(change.writer)) ?? null;
}

/** Controllers of Kubernetes write all the time; what they do follows from what somebody did. */
export function isSomebody(writer: { manager: string; subresource: string } | null): boolean {
  if (!writer || writer.subresource) return false;
  return !/^(kube-|kubelet$|k3s$|cloud-controller|kwok|coredns|node-problem|cluster-autoscaler)|-controller(-manager)?$/.test(writer.manager);
}
