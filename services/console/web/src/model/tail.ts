// The log as it goes on: what was recorded since some time, then what comes, until it is stopped.

import { signal } from "@preact/signals";
import { query, readLines } from "../api/commands.ts";
import { QueryError } from "../api/graphql.ts";
import type { LogEvent } from "./log.ts";

/** Events that are kept: the newest. */
export const KEPT = 5000;
/** Events that come within this time are shown together. */
const TOGETHER = 150;
const LONGEST_PAUSE = 15_000;

/** Follows `/log/events` or `/log/audit`, whose `path` may have a query already. */
export function tail(path: string, since: string | null) {
  const events = signal<LogEvent[]>([]);
  const state = signal<{ isLive: boolean; error: QueryError | null; left: number }>({ isLive: false, error: null, left: 0 });
  const stop = new AbortController();
  let position: string | null = null;
  let waiting: LogEvent[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;

  const show = () => {
    timer = undefined;
    // The order is that of the streams; people read by time.
    const all = [...events.peek(), ...waiting].sort((one, other) => one.recordedat.localeCompare(other.recordedat));
    waiting = [];
    const surplus = Math.max(0, all.length - KEPT);
    events.value = all.slice(surplus);
    state.value = { isLive: true, error: null, left: state.peek().left + surplus };
  };
  const take = (lines: LogEvent[]) => {
    for (const line of lines) {
      if (line.position) position = line.position;
      if (line.type) waiting.push(line);
    }
    timer ??= setTimeout(show, TOGETHER);
    return true;
  };
  const run = async () => {
    let pause = 500;
    while (!stop.signal.aborted) {
      try {
        // Nothing may have happened yet.
        const soon = setTimeout(() => (state.value = { ...state.peek(), isLive: true, error: null }), 1500);
        try {
          const where = position ? { from: position } : { since };
          const joined = query({ ...where, follow: "true" });
          await readLines<LogEvent>(path.includes("?") ? `${path}&${joined.slice(1)}` : path + joined, stop.signal, take);
          pause = 500;
        } finally {
          clearTimeout(soon);
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        const failure = error instanceof QueryError ? error : new QueryError("the connection to the server broke", "unavailable");
        state.value = { ...state.peek(), isLive: false, error: failure };
        if (failure.kind === "denied" || failure.kind === "not-found" || failure.kind === "invalid") return;
      }
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  };
  return {
    events,
    state,
    start: () => void run(),
    stop: () => {
      stop.abort();
      clearTimeout(timer);
    },
  };
}
