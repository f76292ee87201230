const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How much of the past a bar or a chart shows. */
export const SPANS = [
  ["1 h", HOUR],
  ["6 h", 6 * HOUR],
  ["1 d", DAY],
  ["7 d", 7 * DAY],
] as const;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** How long: `4 s`, `12 min`, `3 h 5 min`, `2 d`. */
export function span(milliseconds: number): string {
  const passed = Math.max(0, milliseconds);
  if (passed < MINUTE) return `${Math.floor(passed / 1000)} s`;
  if (passed < HOUR) return `${Math.floor(passed / MINUTE)} min`;
  if (passed < DAY) {
    const minutes = Math.floor((passed % HOUR) / MINUTE);
    return `${Math.floor(passed / HOUR)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(passed / DAY)} d`;
}

/** Relative within a day, then absolute. */
export function ago(at: number, now: number): string {
  return now - at < DAY ? `${span(now - at)} ago` : day.format(at);
}

/** The time of day, or with its date where it was not within a day. */
export function moment(at: number, now: number): string {
  return Math.abs(now - at) < DAY ? clock.format(at) : day.format(at);
}

const second = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** A moment by the second, with its date where it was not today. */
export function toTheSecond(at: number): string {
  const isToday = new Date(at).toDateString() === new Date().toDateString();
  return isToday ? second.format(at) : `${day.format(at)}:${String(new Date(at).getSeconds()).padStart(2, "0")}`;
}

const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g;

/** A sentence of the server with its instants as the viewer reads them. */
export function readable(text: string, now: number): string {
  return text.replace(INSTANT, (instant) => moment(Date.parse(instant), now));
}

/** Absolute in the viewer's zone, and in UTC. */
export function absolute(at: number): string {
  return `${whole.format(at)} · ${new Date(at).toISOString().slice(0, 19)}Z`;
}

/** Whether a text is an instant, and not how long ago something was. */
export const isInstant = (text: string) => /^\d{4}-\d\d-\d\dT/.test(text);

/** An instant as a field of type `datetime-local` shows it; empty for any other text. */
export function toField(text: string): string {
  const at = new Date(text);
  if (!isInstant(text) || Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * MINUTE).toISOString().slice(0, 19);
}

/** The instant that such a field holds; null where it is empty. */
export function ofField(text: string): string | null {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}
