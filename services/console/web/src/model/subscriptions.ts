// Subscriptions to exported events, as `/api/v1/subscriptions` has them, and the commands that do the same.

import { quoted } from "./quoted.ts";
import { compare, type Status } from "./status.ts";

export type Format = "cloud-events" | "slack" | "message";
/** How events get to somebody: sent to a webhook in a format, or fetched from a consumer on NATS. */
export type Way = Format | "nats";

/** Where programs fetch events on NATS. */
export interface Consumer {
  stream: string;
  name: string;
  pending: number;
  unacknowledged: number;
}

export interface Subscription {
  id: string;
  name: string;
  filter: { types?: string[]; project?: string; environment?: string };
  /** Without path and query; absent where events are fetched from NATS. */
  url?: string;
  format?: Format;
  consumer?: Consumer;
  created_at: string;
  state: "active" | "retrying" | "parked" | "paused";
  reason: string;
  since?: string;
  retry_at?: string;
  position?: string;
  /** Exported events that it has not dealt with; absent until it has met one. */
  behind?: number;
  /** Since when the oldest event waits that it wants; absent where nothing waits. */
  oldest?: string;
  delivered_at?: string;
  dead_letters: number;
}

/** Somebody who follows exported events over HTTP, without a subscription. */
export interface Reader {
  actor: Record<string, string>;
  since: string;
  filter: { types?: string[] };
  behind?: number;
  oldest?: string;
}

export interface Subscribers {
  items: Subscription[];
  readers?: Reader[];
}

type Names = ReadonlyMap<string, string>;

/** Why a subscription stands as it does; who paused it, by name. */
export const reasonOf = ({ reason }: Subscription, names: Names) => reason.replace(/^paused by user:(.+)$/, (_, id) => `paused by ${names.get(id) ?? `user:${id}`}`);

/** Who reads. */
export function readerOf({ actor }: Reader, names: Names): string {
  const [kind, id] = Object.entries(actor)[0] ?? ["", ""];
  return names.get(id) ?? `${kind}:${id}`;
}

export interface DeadLetter {
  sequence: number;
  position: string;
  event: string;
  event_type: string;
  at: string;
  reason: string;
}

/** More than this is more than what is on its way. */
const ON_ITS_WAY = 20;

/** How a subscription stands, and the word for it. */
export function standing({ state, behind = 0 }: Subscription): { status: Status; word: string } {
  if (state === "paused") return { status: "suspended", word: "Paused" };
  if (state === "parked") return { status: "held", word: "Parked" };
  if (state === "retrying") return { status: "degraded", word: "Retrying" };
  return behind > ON_ITS_WAY ? { status: "progressing", word: "Behind" } : { status: "healthy", word: "Active" };
}

/** The worst first. */
export function inOrder(all: Subscription[]): Subscription[] {
  return [...all].sort((one, other) => compare(standing(one).status, standing(other).status) || one.name.localeCompare(other.name));
}

export const FORMATS: [Format, string][] = [
  ["cloud-events", "events, as they are"],
  ["slack", "messages for Slack"],
  ["message", "messages in JSON"],
];

export const WAYS: [Way, string][] = [...FORMATS, ["nats", "nothing: programs fetch events from NATS"]];

/** How a subscription's events get to somebody, in words. */
export const wayOf = ({ format }: Subscription) => FORMATS.find(([one]) => one === format)?.[1] ?? "fetched from NATS";

/** Where a subscription's events go. */
export const whereOf = ({ url, consumer }: Subscription) => url ?? (consumer ? `${consumer.stream} / ${consumer.name}` : "NATS");

/** What somebody wants to subscribe to. */
export interface Wanted {
  name: string;
  url: string;
  types: string;
  /** `project:<path>`, `environment:<id>`, or nothing. */
  about: string;
  way: Way;
  from: From;
}

/** From where on events are sent. */
export interface From {
  how: "here" | "start" | "time" | "position";
  text: string;
}

export const typesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** The same as the API takes it; nothing from where it is, or from now on. */
export function fromOf({ how, text }: From): string | undefined {
  return how === "here" ? undefined : how === "start" ? "start" : text.trim() || undefined;
}

/** The command that creates it. `environments` has the names of environments and of their projects. */
export function createCommand(wanted: Wanted, environments: { id: string; name: string; projectPath: string }[]): string {
  const types = typesOf(wanted.types);
  const environment = environments.find(({ id }) => wanted.about === `environment:${id}`);
  const project = environment?.projectPath ?? (wanted.about.startsWith("project:") ? wanted.about.slice(8) : null);
  const from = fromOf(wanted.from);
  const isFetched = wanted.way === "nats";
  return [
    `kasbah subscription create ${quoted(wanted.name || "NAME")} ${isFetched ? "--nats" : `--webhook ${quoted(wanted.url || "URL")}`}`,
    types.length > 0 && `--types ${quoted(types.join(","))}`,
    !isFetched && project && `--project ${quoted(project)}`,
    !isFetched && environment && `--environment ${quoted(environment.name)}`,
    !isFetched && wanted.way !== "cloud-events" && `--format ${wanted.way}`,
    from && `--from ${quoted(from)}`,
  ]
    .filter(Boolean)
    .join(" ");
}

/** The body of the request that does the same. */
export function createBody(wanted: Wanted): object {
  const both = { name: wanted.name, types: typesOf(wanted.types), from: fromOf(wanted.from) };
  if (wanted.way === "nats") return { ...both, nats: true };
  const [kind, ...rest] = wanted.about.split(":");
  const about = kind ? { [kind]: rest.join(":") } : {};
  return { ...both, url: wanted.url, format: wanted.way, ...about };
}

/** The position before an event, from which it is the first; null where the text is none. */
export function before(position: string): string | null {
  const [log, sequence, at] = position.split(".");
  const number = Number(sequence);
  return log && at && Number.isSafeInteger(number) && number > 0 ? `${log}.${number - 1}.${at}` : null;
}
