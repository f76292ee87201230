// What the page asks of /api/graphql, as docs/reference/schema.graphql describes it.

export type Health = "NONE" | "HEALTHY" | "SUSPENDED" | "PROGRESSING" | "MISSING" | "DEGRADED" | "UNKNOWN";
export type State =
  | "IN_SYNC"
  | "PROGRESSING"
  | "DEGRADED"
  | "OUT_OF_SYNC"
  | "HELD"
  | "SUSPENDED"
  | "REJECTED"
  | "STALE"
  | "UNKNOWN";
export type Tier = "PRODUCTION" | "STAGING" | "TESTING" | "DEVELOPMENT" | "OTHER";
/** An instant, such as `2026-01-31T12:00:00Z`. */
export type Time = string;

export interface Identity {
  agent: string;
  agentName: string;
  group: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string;
}

export interface Resource extends Identity {
  health: { state: Health; message: string; terminating: boolean; optional: boolean };
  createdAt: Time | null;
  changedAt: Time;
  stale: string | null;
}

export interface Change extends Identity {
  recordedAt: Time;
  /** When its agent saw it, as that claims. */
  seenAt: Time;
  /** Of what vanished: when it was there last, as far as is known. */
  notBefore: Time | null;
  what: string;
  writer: { manager: string; subresource: string } | null;
  fields: string[];
  fieldCount: number;
  health: Health;
  healthBefore: Health | null;
  /** It has an owner in its cluster, with which it goes. */
  owned: boolean;
}

export interface AsOf {
  position: string;
  judgedAt: Time | null;
  horizon: Time | null;
}

export interface Deployment {
  status: "RUNNING" | "SUCCESS" | "FAILED" | "UNKNOWN";
  reason: string;
  ref: string | null;
  sha: string | null;
  by: string;
  createdAt: Time;
  finishedAt: Time | null;
  agent: { id: string; kubernetesNamespace: string } | null;
}

export interface Environment {
  id: string;
  name: string;
  projectPath: string;
  tier: Tier;
  state: "AVAILABLE" | "STOPPED";
  externalUrl: string | null;
  running: number;
  lastDeployment: Deployment | null;
  lastSuccess: Deployment | null;
}

export interface Source {
  id: string;
  agent: string;
  name: string;
  defaultNamespace: string;
  newestCommit: string | null;
  desiredCommit: string | null;
  syncedCommit: string | null;
  syncedAt: Time | null;
  status: { state: State; reason: string; message: string; since: Time | null };
  sync: {
    id: string;
    commit: string;
    startedAt: Time | null;
    finishedAt: Time | null;
    outcome: "SUCCEEDED" | "UNHEALTHY" | "FAILED" | "SUPERSEDED" | "INTERRUPTED" | null;
    counts: { created: number; changed: number; pruned: number; failed: number };
  } | null;
}

export interface Agent {
  id: string;
  name: string;
  projectPath: string;
  registeredAt: Time;
  status: {
    state: State;
    conditions: { state: State; reason: string; message: string; since: Time | null }[];
    instances: { id: string; since: Time; version: string; applier: boolean }[];
    goneSince: Time | null;
  } | null;
}

export interface Cluster {
  agent: string;
  agentName: string;
  objects: number;
  kinds: number;
  heardAt: Time;
  stale: string | null;
  blindCount: number;
  blind: { resource: string; namespace: string; reason: string; missingVerb: string | null }[];
}

/** Whether somebody may do something, and by what, or what is missing. */
export interface Right {
  allowed: boolean;
  reason: string;
}
