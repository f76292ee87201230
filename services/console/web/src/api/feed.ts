// One live feed for all tabs of a browser: an origin has six connections over HTTP/1.1. The tab that holds the lock follows the server and tells
// the others; when it goes, another one takes its place, behind the last position that it received.

import { signal } from "@preact/signals";
import { textReader } from "./commands.ts";
import { headers, PATH } from "./graphql.ts";
import { doubt, session } from "./session.ts";
import type { Change } from "./types.ts";

const SUBSCRIPTION = `subscription Live { resourceChanges { position change {
  agent agentName group kind namespace name uid recordedAt seenAt notBefore what writer { manager subresource } fields fieldCount health healthBefore owned } } }`;
/** Changes that come within this time are shown together. */
const TOGETHER = 100;
/** The server says something every ten seconds. */
const SILENCE = 25_000;
const LONGEST_PAUSE = 10_000;

interface Event {
  position: string;
  change: Change;
}
type Message = { events: Event[] } | { link: Link } | { asked: true };
export type Link = { state: "live"; heard: number } | { state: "broken"; since: number; retry: number; why: string };

/** How the feed stands. */
export const link = signal<Link>({ state: "broken", since: Date.now(), retry: Date.now(), why: "connecting" });

const listeners = new Set<(changes: Change[]) => void>();
const channel = new BroadcastChannel("kasbah-feed");
let position: string | null = null;
let waiting: Change[] = [];
let leads = false;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Hears of changes, several at once, until the returned function is called. */
export function listen(listener: (changes: Change[]) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follows, or hears from the tab that does, until `stop`. */
export function start(stop: AbortSignal): void {
  channel.onmessage = ({ data }: MessageEvent<Message>) => take(data);
  channel.postMessage({ asked: true } satisfies Message);
  const options = { signal: stop };
  navigator.locks.request("kasbah-feed", options, () => lead(stop)).catch(() => {});
}

function take(message: Message): void {
  if ("asked" in message) {
    if (leads) channel.postMessage({ link: link.value } satisfies Message);
    return;
  }
  if ("link" in message) {
    link.value = message.link;
    return;
  }
  for (const event of message.events) {
    position = event.position;
    waiting.push(event.change);
  }
  timer ??= setTimeout(() => {
    const changes = waiting;
    waiting = [];
    timer = undefined;
    for (const listener of listeners) listener(changes);
  }, TOGETHER);
}

function tell(message: Message): void {
  take(message);
  channel.postMessage(message);
}

async function lead(stop: AbortSignal): Promise<void> {
  leads = true;
  let pause = 0;
  let since = Date.now();
  while (!stop.aborted && session.value) {
    const why = await follow(stop, () => {
      pause = 0;
      since = Date.now();
    });
    if (stop.aborted) return;
    pause = Math.min(pause === 0 ? 250 : pause * 2, LONGEST_PAUSE);
    tell({ link: { state: "broken", since, retry: Date.now() + pause, why } });
    await new Promise((done) => setTimeout(done, pause));
  }
}

/** Follows until the connection ends; why it did. */
async function follow(stop: AbortSignal, heard: () => void): Promise<string> {
  const silent = new AbortController();
  let deadline = setTimeout(() => silent.abort(), SILENCE);
  const alive = () => {
    clearTimeout(deadline);
    deadline = setTimeout(() => silent.abort(), SILENCE);
    heard();
    const known = link.peek();
    // Often enough to count seconds by.
    if (known.state !== "live" || Date.now() - known.heard > 500) tell({ link: { state: "live", heard: Date.now() } });
  };
  try {
    const resume: Record<string, string> = position ? { "Last-Event-ID": position } : {};
    const response = await fetch(PATH, {
      method: "POST",
      headers: { ...headers(), ...resume, Accept: "text/event-stream" },
      body: JSON.stringify({ query: SUBSCRIPTION }),
      signal: AbortSignal.any([stop, silent.signal]),
    });
    if (response.status === 401) await doubt("the session ended");
    if (response.status === 410 || response.status === 400) position = null;
    if (!response.ok || !response.body) return `the server answered ${response.status}`;
    alive();
    let rest = "";
    for await (const piece of lines(response.body)) {
      alive();
      rest += piece;
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      const failure = told(blocks);
      if (failure) return failure;
    }
    return "the server ended the connection";
  } catch {
    return silent.signal.aborted ? "the server is silent" : "the server cannot be reached";
  } finally {
    clearTimeout(deadline);
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = textReader(body);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** Tells the events of some blocks; what went wrong, if the server says so. */
function told(blocks: string[]): string | null {
  const events: Event[] = [];
  let failure: string | null = null;
  for (const block of blocks) {
    const text = block.split("\n").find((line) => line.startsWith("data: "));
    if (!text) continue;
    const answer = JSON.parse(text.slice(6)) as {
      data?: { resourceChanges: Event } | null;
      errors?: { message: string; extensions?: { kind?: string } }[];
    };
    const error = answer.errors?.[0];
    if (answer.data && !error) events.push(answer.data.resourceChanges);
    if (error) {
      failure = error.message;
      if (error.extensions?.kind === "unauthenticated") void doubt(error.message);
      if (error.extensions?.kind === "invalid") position = null;
    }
  }
  if (events.length > 0) tell({ events });
  return failure;
}
