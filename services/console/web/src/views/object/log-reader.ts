// Reads several logs at once, and goes on where one breaks off.

import { signal } from "@preact/signals";
import { askCluster } from "../../api/clusters.ts";
import { textReader } from "../../api/commands.ts";
import { QueryError } from "../../api/graphql.ts";
import { appended, parsed, type Said } from "../../model/log-lines.ts";
import type { Container } from "../../model/pods.ts";

/** Lines that are kept. */
export const LINES = 10_000;
/** Lines of the past of each container. */
const TAIL = 500;
/** Lines that come within this time are shown together, in the order of their times. */
const TOGETHER = 150;
/** A line without an end is shown in pieces of this size. */
const UNENDED = 64 * 1024;
const PAUSES = [500, 1000, 2000, 5000, 10_000];

interface Wanted {
  follow: boolean;
  previous: boolean;
}

interface Failure {
  stream: Container;
  message: string;
}

interface Reading {
  lines: Said[];
  failures: Failure[];
  /** Earlier lines were left out. */
  dropped: boolean;
}

/** Reads the logs of some containers from `start` until what it returns is called. */
export function readLogs(streams: Container[], wanted: Wanted) {
  const state = signal<Reading>({ lines: [], failures: [], dropped: false });
  let waiting: Said[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    timer = undefined;
    const { lines, failures, dropped } = state.value;
    const all = lines.length + waiting.length;
    state.value = { lines: appended(lines, waiting, LINES), failures, dropped: dropped || all > LINES };
    waiting = [];
  };
  const add = (said: Said) => {
    waiting.push(said);
    // What comes faster than it can be read is not collected without end.
    if (waiting.length > 2 * LINES) waiting = waiting.slice(-LINES);
    timer ??= setTimeout(flush, TOGETHER);
  };
  const fail = (stream: Container, message: string | null) => {
    const others = state.value.failures.filter((failure) => failure.stream !== stream);
    state.value = { ...state.value, failures: message === null ? others : [...others, { stream, message }] };
  };
  const start = () => {
    const stop = new AbortController();
    streams.forEach((stream, from) => void read(stream, from, wanted, add, fail, stop.signal));
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  };
  return { state, streams, start };
}

async function read(stream: Container, from: number, wanted: Wanted, add: (said: Said) => void, fail: (stream: Container, message: string | null) => void, stop: AbortSignal): Promise<void> {
  let last = "";
  for (let attempt = 0; !stop.aborted; attempt++) {
    try {
      for await (const line of linesOf(stream, wanted, last, stop)) {
        const said = parsed(from, line);
        // Where it goes on, the lines of the last second come again.
        if (last && said.at && said.at <= last) continue;
        last = said.at || last;
        if (attempt > 0) fail(stream, null);
        attempt = 0;
        add(said);
      }
      fail(stream, null);
      if (!wanted.follow) return;
    } catch (error) {
      if (stop.aborted) return;
      const message = error instanceof QueryError ? error.message : "the connection broke";
      fail(stream, message);
      if (!wanted.follow || (error instanceof QueryError && error.kind === "denied")) return;
    }
    await new Promise((done) => setTimeout(done, PAUSES[Math.min(attempt, PAUSES.length - 1)]));
  }
}

async function* linesOf({ pod, container }: Container, { follow, previous }: Wanted, since: string, stop: AbortSignal): AsyncGenerator<string> {
  const params = new URLSearchParams({ container, timestamps: "true" });
  if (follow) params.set("follow", "true");
  if (previous) params.set("previous", "true");
  if (since) params.set("sinceTime", since);
  else params.set("tailLines", String(TAIL));
  const path = `/api/v1/namespaces/${encodeURIComponent(pod.namespace)}/pods/${encodeURIComponent(pod.name)}/log?${params}`;
  const response = await askCluster(pod.agent, path, { signal: stop });
  if (!response.body) return;
  const reader = textReader(response.body);
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
    if (rest.length > UNENDED) {
      yield rest;
      rest = "";
    }
  }
  if (rest) yield rest;
}
