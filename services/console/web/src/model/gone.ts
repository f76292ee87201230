// What is gone, and when that was: nobody sees who deletes an object, and of what vanished while nobody watched only between which times.

import type { Change } from "../api/types.ts";
import { moment } from "./time.ts";

/** A change that is recorded longer after it was seen is reported with its own time. */
const LATE = 60_000;

type Gone = Pick<Change, "what" | "recordedAt" | "seenAt" | "notBefore">;

/** Whether an object is gone with a change, or nobody tells of it any more. */
export const isGone = ({ what }: Pick<Change, "what">) => what === "deleted" || what === "vanished" || what === "unobserved";

/** When a change was seen, where it was recorded much later, as after the server was away. */
export function late({ recordedAt, seenAt }: Pick<Change, "recordedAt" | "seenAt">, now: number): string {
  const seen = Date.parse(seenAt);
  return Date.parse(recordedAt) - seen > LATE ? ` at ${moment(seen, now)}` : "";
}

/** What became of objects that went alike, the newest first. */
export function fate(all: Gone[], now: number): string {
  const [last, be] = [all[0], all.length === 1 ? "was" : "were"];
  if (!last) return "";
  if (last.what === "unobserved") return `${all.length === 1 ? "is" : "are"} not observed any more`;
  if (last.what === "deleted") return `${be} deleted${late(last, now)}`;
  const until = moment(Date.parse(last.recordedAt), now);
  const known = all.map(({ notBefore }) => Date.parse(notBefore ?? ""));
  const from = Math.min(...known);
  // Where it is not known of one, it is not known of all.
  if (Number.isNaN(from)) return `${be} deleted before ${until}, unseen`;
  return moment(from, now) === until ? `${be} deleted at ${until}, unseen` : `${be} deleted between ${moment(from, now)} and ${until}, unseen`;
}
