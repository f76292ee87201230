import { command } from "./commands.ts";
import type { Source, State, Time } from "./types.ts";

const CONDITION = "state reason message since retryAt";
const COUNTS = "unchanged created changed pruned failed unhealthy waiting";
const FAILURE = "kind namespace name file line message";
const FINDING = "file line column field message";
const OBJECT = "group kind namespace name state message since retryAt file line drift written writtenAt owned adopted kept";

/** All sources, each in a line. */
export const SOURCES = `query Sources { sources(first: 200) { nodes { id agent name project reference defaultNamespace newestCommit desiredCommit syncedCommit
  syncedAt heldCommit rejectedCommit pinned inventory status { ${CONDITION} } sync { id commit startedAt finishedAt outcome counts { ${COUNTS} } } } pageInfo { hasNextPage } } }`;

export interface Counts {
  unchanged: number;
  created: number;
  changed: number;
  pruned: number;
  failed: number;
  unhealthy: number;
  waiting: number;
}

export interface Failure {
  kind: string;
  namespace: string;
  name: string;
  file: string;
  line: number;
  message: string;
}

export interface Finding {
  file: string;
  line: number;
  column: number;
  field: string;
  message: string;
}

export interface Condition {
  state: State;
  reason: string;
  message: string;
  since: Time | null;
  retryAt: Time | null;
}

export interface SourceLine extends Omit<Source, "status" | "sync"> {
  project: string;
  reference: string;
  heldCommit: string | null;
  rejectedCommit: string | null;
  pinned: string | null;
  inventory: number;
  status: Condition;
  sync: (Omit<NonNullable<Source["sync"]>, "counts"> & { counts: Counts }) | null;
}

export interface SourcesAnswer {
  sources: { nodes: SourceLine[]; pageInfo: { hasNextPage: boolean } };
}

/** Everything about one source but its objects. */
export const SOURCE = `query Source($id: ID!) { source(id: $id) { id agent name project reference include exclude defaultNamespace
  newestCommit newestGoodCommit rejectedCommit findings { ${FINDING} } moreFindings warnings { ${FINDING} }
  desiredCommit syncedCommit syncedAt heldCommit heldReason fetchFailure blocked kept suspended pinned inventory
  status { ${CONDITION} conditions { ${CONDITION} } objects { owned failed drifted degraded progressing suspended } }
  notWell { ${OBJECT} }
  sync { id commit startedAt finishedAt outcome waiting retryAt counts { ${COUNTS} } failures { ${FAILURE} } }
  rights { action allowed reason }
  commits(first: 40) { commit at chain objects rejectedAt findings { ${FINDING} } moreFindings heldAt heldReason confirmedAt confirmedBy
    pinnedAt pinnedBy desiredAt prunes syncs { id startedAt finishedAt outcome run counts { ${COUNTS} } failures { ${FAILURE} } } } } }`;

export type ActionName = "SYNC" | "SUSPEND" | "PIN" | "CONFIRM" | "DIFF";
export type Outcome = "SUCCEEDED" | "UNHEALTHY" | "FAILED" | "SUPERSEDED" | "INTERRUPTED";

export interface CommitSync {
  id: string;
  startedAt: Time | null;
  finishedAt: Time | null;
  outcome: Outcome | null;
  run: number;
  counts: Counts;
  failures: Failure[];
}

export interface Commit {
  commit: string;
  at: Time;
  chain: string;
  objects: number | null;
  rejectedAt: Time | null;
  findings: Finding[];
  moreFindings: number;
  heldAt: Time | null;
  heldReason: string | null;
  confirmedAt: Time | null;
  confirmedBy: string | null;
  pinnedAt: Time | null;
  pinnedBy: string | null;
  desiredAt: Time | null;
  prunes: number;
  syncs: CommitSync[];
}

export interface SourceObject {
  group: string;
  kind: string;
  namespace: string;
  name: string;
  state: State;
  message: string | null;
  since: Time | null;
  retryAt: Time | null;
  file: string | null;
  line: number | null;
  drift: string[];
  written: string | null;
  writtenAt: Time | null;
  owned: boolean;
  adopted: boolean;
  kept: string | null;
}

export interface WholeSource extends Omit<SourceLine, "status" | "sync"> {
  include: string[];
  exclude: string[];
  newestGoodCommit: string | null;
  findings: Finding[];
  moreFindings: number;
  warnings: Finding[];
  heldReason: string | null;
  fetchFailure: string | null;
  blocked: string | null;
  kept: number;
  suspended: string | null;
  status: Condition & {
    conditions: Condition[];
    objects: { owned: number; failed: number; drifted: number; degraded: number; progressing: number; suspended: number };
  };
  notWell: SourceObject[];
  sync: (CommitSync & { commit: string; waiting: string | null; retryAt: Time | null }) | null;
  rights: { action: ActionName; allowed: boolean; reason: string }[];
  commits: Commit[];
}

/** Its objects, in pages. */
export const OBJECTS = `query SourceObjects($id: ID!, $after: String) { source(id: $id) { objects(first: 500, after: $after) {
  nodes { ${OBJECT} } pageInfo { hasNextPage endCursor } } } }`;

export interface ObjectsAnswer {
  source: { objects: { nodes: SourceObject[]; pageInfo: { hasNextPage: boolean; endCursor: string | null } } };
}

/** What people did with it. */
export const DEEDS = `query SourceDeeds($id: ID!) { source(id: $id) { deeds(first: 50) { at what by detail chain } } }`;

export interface Deed {
  at: Time;
  what: string;
  by: string;
  detail: string | null;
  chain: string;
}

/** What the next sync would do, as `kasbah source diff` has it. */
export interface SourceDiff {
  commit: string;
  objects: ObjectDiff[];
  /** Fields that others added and Git does not state. */
  extra?: { identity: Identity; fields: [path: string, manager: string][] }[];
  left_out?: number;
  more_kept?: number;
  unchanged: number;
  stopped?: { extent: "nothing" | "foundation" | "all-but-prunes"; message: string };
  pending?: string;
  rejected?: { commit: string; findings: Finding[]; more: number };
  fetch_failure?: string;
}

export interface Identity {
  group?: string;
  version: string;
  kind: string;
  namespace?: string;
  name: string;
}

export interface ObjectDiff {
  identity: Identity;
  file?: string;
  line?: number;
  change: "create" | "change" | "prune" | "keep" | "wait" | "refused";
  reason?: string;
  message?: string;
  fields: [path: string, before: string | null, after: string | null][];
}

/** Asks what the next sync would do, by a dry run in the cluster. */
export async function askDiff(source: string, stop: AbortSignal): Promise<SourceDiff> {
  return (await command<SourceDiff>("POST", `/sources/${encodeURIComponent(source)}/diff`, {}, stop)).value;
}
