// The moment that is shown: `t=` in the address, and `with=` the one that it is compared with. Views of the past read it here.

import { computed, signal } from "@preact/signals";
import { chosen, choose } from "../router.ts";

/** The moment that the address names, in milliseconds; null is now. */
export const at = computed<number | null>(() => read(chosen.value.get("t")));
/** The same as the API takes it. */
export const instant = computed<string | null>(() => (at.value === null ? null : new Date(at.value).toISOString()));
/** The earlier moment that it is compared with; null where nothing is compared. */
export const compared = computed<number | null>(() => {
  const earlier = read(chosen.value.get("with"));
  return earlier !== null && earlier < (at.value ?? Infinity) ? earlier : null;
});
/** Before this nothing is known, by the answer of the view that is shown; null while nothing has left the log. */
export const horizon = signal<number | null>(null);

const loading = signal(0);
/** Whether the moment that the address names is not shown yet. */
export const isLoading = computed(() => loading.value > 0);

/** Says that a moment is being loaded, until the returned function is called. */
export function load(): () => void {
  loading.value += 1;
  let isOver = false;
  return () => {
    if (!isOver) loading.value -= 1;
    isOver = true;
  };
}

/** A moment as the address has it: in whole seconds. */
export const inAddress = (moment: number) => new Date(Math.floor(moment / 1000) * 1000).toISOString().replace(".000Z", "Z");

/** Shows another moment; null is now. */
export function goTo(moment: number | null, replace = false): void {
  const isNow = moment === null || moment >= Date.now();
  choose("t", isNow ? null : inAddress(moment), replace);
}

/** Compares with another moment; null with none. */
export function compareWith(moment: number | null, replace = false): void {
  choose("with", moment === null ? null : inAddress(moment), replace);
}

/** An instant of the past, or null for any other text. */
export function read(text: string | null): number | null {
  if (!text || !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) || moment >= Date.now() ? null : moment;
}

/** How fast an incident is played. */
export const SPEEDS = [1, 10, 100] as const;
export type Speed = (typeof SPEEDS)[number];

/** The moment to show after so much time at a speed; null is now, where playing ends. Moments are whole seconds. */
export function after(moment: number, speed: Speed, passed: number, now: number): number | null {
  const next = moment + Math.max(1000, Math.floor((passed * speed) / 1000) * 1000);
  return next >= now ? null : next;
}
