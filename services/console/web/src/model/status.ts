import type { Health, State } from "../api/types.ts";

/** How something is doing, as it is shown: a shape, a colour and a word each. */
export type Status =
  | "healthy"
  | "progressing"
  | "degraded"
  | "suspended"
  | "held"
  | "out-of-sync"
  | "missing"
  | "unknown"
  | "none";

export const WORDS: Record<Status, string> = {
  healthy: "Healthy",
  progressing: "Progressing",
  degraded: "Degraded",
  suspended: "Suspended",
  held: "Held",
  "out-of-sync": "Out of sync",
  missing: "Missing",
  unknown: "Unknown",
  none: "–",
};

/** The worst first. */
const ORDER: Status[] = [
  "degraded",
  "missing",
  "out-of-sync",
  "held",
  "unknown",
  "progressing",
  "suspended",
  "healthy",
  "none",
];

const RANK = new Map(ORDER.map((status, rank) => [status, rank]));
const OF_HEALTH: Record<Health, Status> = {
  NONE: "none",
  HEALTHY: "healthy",
  SUSPENDED: "suspended",
  PROGRESSING: "progressing",
  MISSING: "missing",
  DEGRADED: "degraded",
  UNKNOWN: "unknown",
};

export function ofHealth(health: Health): Status {
  return OF_HEALTH[health];
}

export function ofState(state: State): Status {
  switch (state) {
    case "IN_SYNC":
      return "healthy";
    case "OUT_OF_SYNC":
    case "REJECTED":
      return "out-of-sync";
    case "STALE":
      return "unknown";
    default:
      return state.toLowerCase() as Status;
  }
}

/** Negative where the first is worse. */
export function compare(one: Status, other: Status): number {
  return (RANK.get(one) ?? 0) - (RANK.get(other) ?? 0);
}

export function worst(all: Iterable<Status>): Status {
  let found: Status = "none";
  for (const one of all) if (compare(one, found) < 0) found = one;
  return found;
}

/** Whether somebody is to look at it. */
export function isBad(status: Status): boolean {
  return !["healthy", "none", "suspended"].includes(status);
}
