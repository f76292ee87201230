// What is asked for to show the past, beyond the index: what the log has of sources and of agents' connections. It is asked for once, and again only
// for a moment after it was asked.

import { query, readLines } from "../api/commands.ts";
import type { SourceLine } from "../api/delivery.ts";
import { askInParts } from "../api/graphql.ts";
import type { AroundAnswer } from "../api/queries.ts";
import type { Agent } from "../api/types.ts";
import { isOfTunnel } from "./connections.ts";
import { loader } from "./loaded.ts";
import type { LogEvent } from "./log.ts";
import { around } from "./store.ts";
import { agentThen, sourceThen, type SourceLog } from "./then.ts";

/** Sources that one query asks about: each costs the server three requests. */
const AT_ONCE = 12;
/** Sources whose past is shown; others are as they are now. */
export const SOURCES = 48;
/** How far back tunnels are known. */
export const WEEK = 7 * 86_400_000;
/** Events of the log that are read for the agents' connections at most. */
const EVENTS = 50_000;
const COUNTS = "counts { unchanged created changed pruned failed unhealthy waiting }";
const LOGGED = `commits(first: 20) { commit at chain objects rejectedAt heldAt heldReason confirmedAt pinnedAt desiredAt prunes
  syncs { id startedAt finishedAt outcome run ${COUNTS} } } deeds(first: 50) { at what detail }`;

type Answer = Record<string, SourceLog | null>;

/** What the log has of the sources, by id. */
const sources = loader(async (stop) => {
  const ids = (around.state.peek().value?.sources.nodes ?? []).slice(0, SOURCES).map(({ id }) => id);
  const [found, asked] = [new Map<string, SourceLog>(), Date.now()];
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE);
    const parts = some.map((id, number) => `s${number}: source(id: ${JSON.stringify(id)}) { ${LOGGED} }`);
    const { data } = await askInParts<Answer>(`query SourceLogs { ${parts.join("\n")} }`, {}, stop);
    some.forEach((id, number) => {
      const log = data[`s${number}`];
      if (log) found.set(id, log);
    });
  }
  return { found, asked };
});

/** Events of the last week about tunnels that `wants` takes, by their times; not whole where the log has more than is read. */
export async function readTunnels(wants: (event: LogEvent) => boolean, stop: AbortSignal): Promise<{ found: LogEvent[]; isWhole: boolean }> {
  const found: LogEvent[] = [];
  let read = 0;
  const since = new Date(Date.now() - WEEK).toISOString();
  await readLines<LogEvent>(`/log/events${query({ since })}`, stop, (lines) => {
    read += lines.length;
    found.push(...lines.filter((event) => isOfTunnel(event) && wants(event)));
    return read < EVENTS;
  });
  return { found: found.sort((one, other) => one.time.localeCompare(other.time)), isWhole: read < EVENTS };
}

/** Events of all agents' tunnels; nothing where the viewer may not read the log. */
const tunnels = loader(async (stop) => {
  const asked = Date.now();
  const read = await readTunnels(() => true, stop).catch((error) => {
    if (stop.aborted) throw error;
    return { found: [], isWhole: false };
  });
  return { ...read, asked };
});

/** Asks for what a moment needs and is not known yet. */
export function learnPast(moment: number | null): void {
  if (moment === null || !around.state.peek().value) return;
  for (const one of [sources, tunnels]) {
    const { value, error } = one.state.peek();
    if (!error && (!value || value.asked < moment)) void one.run();
  }
}

/** What the log has of sources; null until it is known. */
export const logOf = (id: string): SourceLog | null => sources.state.value.value?.found.get(id) ?? null;
/** Whether it was answered, or cannot be. */
export const isPastKnown = () => [sources, tunnels].every(({ state: { value: { value, error } } }) => value !== null || error !== null);

/** Events of the agents' tunnels; null where they cannot be known. */
export function tunnelEvents(): LogEvent[] | null {
  const known = tunnels.state.value.value;
  return known?.isWhole ? known.found : null;
}

/** Sources as they were, without those that the log does not mention. */
export function sourcesThen<S extends AroundAnswer["sources"]["nodes"][number] | SourceLine>(all: S[], moment: number): S[] {
  return all.flatMap((source) => {
    const log = logOf(source.id);
    return log ? [sourceThen(source, log, moment)] : [];
  });
}

/** Agents as they were, without those that were not registered yet. */
export function agentsThen(all: Agent[], moment: number): Agent[] {
  const events = tunnelEvents();
  return all.flatMap((agent) => agentThen(agent, events, moment) ?? []);
}

/** Everything around the objects as it was, as far as the log says. */
export function aroundThen(now: AroundAnswer, moment: number): AroundAnswer {
  const wasBy = (time: string) => Date.parse(time) <= moment;
  const environments = now.environments.nodes.map((environment) => {
    const known = [environment.lastDeployment, environment.lastSuccess].find((one) => one && wasBy(one.createdAt));
    return { ...environment, lastDeployment: known ?? null };
  });
  const clusters = now.coverage.agents.map((cluster) => ({ ...cluster, stale: null }));
  return { environments: { nodes: environments }, sources: { nodes: sourcesThen(now.sources.nodes, moment) }, agents: { nodes: agentsThen(now.agents.nodes, moment) }, coverage: { agents: clusters } };
}
