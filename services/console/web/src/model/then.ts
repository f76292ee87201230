// How sources and agents were at a moment, by what the log has of them, as pure functions.

import type { Commit, CommitSync, Condition, Deed, SourceLine, WholeSource } from "../api/delivery.ts";
import type { Agent, Source } from "../api/types.ts";
import { OPENED } from "./connections.ts";
import { countsInWords } from "./delivery.ts";
import type { LogEvent } from "./log.ts";
import { short } from "./news.ts";

/** What the log has of a source: its newest commits, and what people did with it, the newest first. */
export interface SourceLog {
  commits: Commit[];
  deeds: Pick<Deed, "at" | "what" | "detail">[];
}

const until = (at: number) => (time: string | null) => time !== null && Date.parse(time) <= at;

function syncThen(sync: CommitSync, at: number): CommitSync {
  const isOver = until(at)(sync.finishedAt);
  return isOver ? sync : { ...sync, finishedAt: null, outcome: null, failures: [] };
}

/** The commits that were read by then, as they stood. */
export function commitsThen(commits: Commit[], at: number): Commit[] {
  const was = until(at);
  return commits
    .filter((commit) => was(commit.at))
    .map((commit) => ({
      ...commit,
      ...(was(commit.rejectedAt) ? {} : { rejectedAt: null, findings: [], moreFindings: 0 }),
      ...(was(commit.heldAt) ? {} : { heldAt: null, heldReason: null }),
      ...(was(commit.confirmedAt) ? {} : { confirmedAt: null, confirmedBy: null }),
      ...(was(commit.pinnedAt) ? {} : { pinnedAt: null, pinnedBy: null }),
      ...(was(commit.desiredAt) ? {} : { desiredAt: null }),
      syncs: commit.syncs.filter((sync) => was(sync.startedAt)).map((sync) => syncThen(sync, at)),
    }));
}

interface Begun extends CommitSync {
  commit: string;
  startedAt: string;
}

/** The state of a source and why, as `kasbah source show` would have had it, but for what only the cluster said. */
function conditionThen(commits: Commit[], last: Begun | null, synced: string | null, desired: string | null, suspended: Deedlike): Condition {
  const newest = commits[0];
  const is = (state: Condition["state"], reason: string, message: string, since: string | null): Condition => ({ state, reason, message, since, retryAt: null });
  if (!newest) return is("UNKNOWN", "NotKnown", "Nothing is known of it so long ago: it was not there, or its newer commits are all that is read here", null);
  if (newest.rejectedAt) return is("REJECTED", "Rejected", `Commit ${short(newest.commit)} was rejected`, newest.rejectedAt);
  if (newest.heldAt && !newest.confirmedAt && desired !== newest.commit) return is("HELD", "Held", `Commit ${short(newest.commit)} waited for confirmation: ${newest.heldReason ?? "held"}`, newest.heldAt);
  if (suspended?.what === "suspended") return is("SUSPENDED", "Suspended", suspended.detail ? `It was suspended: ${suspended.detail}` : "It was suspended", suspended.at);
  if (!last) return is("UNKNOWN", "NotDelivered", "Nothing was delivered yet", null);
  const what = `Commit ${short(last.commit)}`;
  if (last.finishedAt === null) return is("PROGRESSING", "Syncing", `${what} was being applied`, last.startedAt);
  if (last.outcome === "FAILED") return is("OUT_OF_SYNC", "SyncFailed", `${what} could not be applied as a whole: ${countsInWords(last.counts)}`, last.finishedAt);
  if (last.outcome === "UNHEALTHY") return is("DEGRADED", "Unhealthy", `${what} was applied, and not all of it became healthy: ${countsInWords(last.counts)}`, last.finishedAt);
  if (synced !== null && synced === desired) return is("IN_SYNC", "Applied", `${what} was applied: ${countsInWords(last.counts)}`, last.finishedAt);
  return is("OUT_OF_SYNC", "Behind", `${what} was not the one that it was to have`, last.finishedAt);
}

type Deedlike = SourceLog["deeds"][number] | undefined;

/** A source at a moment. What the log does not have of it is as it is now. */
export function sourceThen<S extends Source | SourceLine | WholeSource>(source: S, log: SourceLog, at: number): S {
  const was = until(at);
  const commits = commitsThen(log.commits, at);
  const newestFirst = (one: string | null, other: string | null) => (other ?? "").localeCompare(one ?? "");
  const begun = commits
    .flatMap(({ commit, syncs }) => syncs.map((sync) => ({ ...sync, commit })))
    .filter((sync): sync is Begun => sync.startedAt !== null)
    .sort((one, other) => newestFirst(one.startedAt, other.startedAt));
  const applied = begun.filter(({ outcome }) => outcome === "SUCCEEDED" || outcome === "UNHEALTHY").sort((one, other) => newestFirst(one.finishedAt, other.finishedAt))[0];
  const desired = commits.filter(({ desiredAt }) => desiredAt !== null).sort((one, other) => newestFirst(one.desiredAt, other.desiredAt))[0];
  const deed = (...what: string[]) => log.deeds.find((one) => was(one.at) && what.includes(one.what));
  const pin = deed("pinned", "unpinned");
  const last = begun[0] ?? null;
  const synced = applied?.commit ?? null;
  const condition = conditionThen(commits, last, synced, desired?.commit ?? null, deed("suspended", "resumed"));
  const newest = commits[0];
  return {
    ...source,
    newestCommit: newest?.commit ?? null,
    desiredCommit: desired?.commit ?? null,
    syncedCommit: synced,
    syncedAt: applied?.finishedAt ?? null,
    heldCommit: condition.state === "HELD" ? (newest?.commit ?? null) : null,
    rejectedCommit: newest?.rejectedAt ? newest.commit : null,
    pinned: pin?.what === "pinned" ? pin.detail : null,
    status: { ...source.status, ...condition, conditions: [] },
    sync: last && { ...last, waiting: null, retryAt: null },
    ...("commits" in source ? { commits, notWell: [], suspended: condition.state === "SUSPENDED" ? "" : null, fetchFailure: null, findings: [], moreFindings: 0 } : {}),
  };
}

/** The instances of an agent that were connected, by the events of its tunnels; null where these do not say. */
export function connectedThen(events: LogEvent[], agent: string, at: number): { id: string; since: string; version: string }[] | null {
  const own = events.filter(({ data }) => data?.agent === agent);
  const open = new Map<string, { id: string; since: string; version: string }>();
  let isKnown = false;
  for (const event of own) {
    const id = String(event.data?.instance ?? "");
    const isOpened = event.type === OPENED;
    if (Date.parse(event.time) > at) {
      // What closes later and was not seen to open was open; what opens later for the first time was not there.
      if (!isKnown) return isOpened ? [] : [{ id, since: new Date(at).toISOString(), version: "" }];
      break;
    }
    isKnown = true;
    if (isOpened) open.set(id, { id, since: event.time, version: String(event.data?.version ?? "") });
    else open.delete(id);
  }
  return isKnown ? [...open.values()] : null;
}

/** An agent at a moment, where its connections are known; null where it was not registered yet. */
export function agentThen(agent: Agent, events: LogEvent[] | null, at: number): Agent | null {
  if (Date.parse(agent.registeredAt) > at) return null;
  const instances = events && connectedThen(events, agent.id, at);
  if (!instances) return { ...agent, status: null };
  const lastly = [...(events ?? [])].reverse().find((event) => event.data?.agent === agent.id && Date.parse(event.time) <= at);
  return {
    ...agent,
    status: {
      ...agent.status,
      state: "IN_SYNC",
      conditions: [],
      instances: instances.map((instance) => ({ ...instance, applier: false })),
      goneSince: instances.length === 0 ? (lastly?.time ?? null) : null,
    },
  };
}
