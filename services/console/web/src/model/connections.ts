// When an agent was connected, by the log's events about its tunnels.

import type { LogEvent } from "./log.ts";

/** A time within which at least one instance was connected. */
export interface Connected {
  from: number;
  until: number;
  version: string | null;
}

export const OPENED = "kasbah.observed.tunnel-opened";
const CLOSED = "kasbah.observed.tunnel-closed";

/** Whether an event is about a tunnel. */
export const isOfTunnel = ({ type }: LogEvent) => type === OPENED || type === CLOSED;

/** The stretches between two times. `now` says how it is now. */
export function connections(events: LogEvent[], from: number, until: number, now: { isConnected: boolean }): Connected[] {
  const found: Connected[] = [];
  const open = new Map<string, number>();
  let began: number | null = null;
  let version: string | null = null;
  const first = events.find((event) => event.type === CLOSED);
  // What closes and was not seen to open was open before.
  if (first && !events.slice(0, events.indexOf(first)).some((event) => event.type === OPENED && event.data?.instance === first.data?.instance)) {
    began = from;
    open.set(String(first.data?.instance), from);
  } else if (events.length === 0 && now.isConnected) began = from;
  for (const event of events) {
    const at = Math.max(from, Date.parse(event.time));
    const instance = String(event.data?.instance ?? "");
    if (event.type === OPENED) {
      version = String(event.data?.version ?? "") || version;
      open.set(instance, at);
      began ??= at;
    } else {
      open.delete(instance);
      if (open.size === 0 && began !== null) {
        found.push({ from: began, until: at, version });
        began = null;
      }
    }
  }
  if (began !== null && now.isConnected) found.push({ from: began, until, version });
  else if (began !== null) found.push({ from: began, until: began, version });
  // A tunnel that moved from one gateway to another closed and opened at once.
  return found.reduce<Connected[]>((all, one) => {
    const last = all.at(-1);
    if (last && one.from - last.until < 1000) last.until = one.until;
    else all.push({ ...one });
    return all;
  }, []);
}
