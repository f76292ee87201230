// The rest of the API: the commands that the command line sends, and what only they answer.

import { headers, QueryError } from "./graphql.ts";
import { doubt } from "./session.ts";

interface Refusal {
  kind?: string;
  message?: string;
}

/** What was answered, and the chain of the log that it began. */
export interface Answered<T> {
  value: T;
  chain: string | null;
}

async function refused(response: Response): Promise<QueryError> {
  const refusal = (await response.json().catch(() => ({}))) as Refusal;
  const message = refusal.message ?? `the server answered ${response.status}`;
  if (response.status === 401) await doubt(message);
  return new QueryError(message, refusal.kind ?? "unavailable");
}

/** Where exported events are. */
export const EVENTS = "/api/events";

async function send(path: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path.startsWith(EVENTS) ? path : `/api/v1${path}`, { ...options, headers: { ...headers(), ...options.headers } });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new QueryError("the server cannot be reached", "unavailable");
  }
  if (!response.ok) throw await refused(response);
  return response;
}

/** Sends a command. */
export async function command<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: object, stop?: AbortSignal): Promise<Answered<T>> {
  const response = await send(path, { method, ...(body ? { body: JSON.stringify(body) } : {}), signal: stop ?? null });
  const text = await response.text();
  return { value: (text ? JSON.parse(text) : null) as T, chain: response.headers.get("kasbah-correlation-id") };
}

/** Reads what only a command answers. */
export async function read<T>(path: string, stop?: AbortSignal): Promise<T> {
  const response = await send(path, { signal: stop ?? null });
  return (await response.json()) as T;
}

/** A page of a list. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}

/** Reads a body as text, in the pieces that come. */
export function textReader(body: ReadableStream<Uint8Array>): ReadableStreamDefaultReader<string> {
  return body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
}

/** Reads lines of JSON as they come. `take` says whether it wants more. */
export async function readLines<T>(path: string, stop: AbortSignal, take: (lines: T[]) => boolean): Promise<void> {
  const response = await send(path, { signal: stop });
  if (!response.body) return;
  const reader = textReader(response.body);
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const pieces = (rest + (value ?? "")).split("\n");
    rest = done ? "" : (pieces.pop() ?? "");
    const lines = pieces.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as T);
    if (lines.length > 0 && !take(lines)) {
      await reader.cancel();
      return;
    }
    if (done) return;
  }
}

/** A query's text, without what is not given. */
export function query(values: Record<string, string | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) params.set(name, value);
  const text = params.toString();
  return text ? `?${text}` : "";
}
