// What the overview shows: how everything is, or how it was at a moment.

import { CHANGED, type AroundAnswer, type ChangedAnswer, type Past } from "../api/queries.ts";
import { ask, type QueryError } from "../api/graphql.ts";
import type { Change } from "../api/types.ts";
import type { Loaded } from "./loaded.ts";
import { lately } from "./now.ts";
import { type Group, wrong } from "./overview.ts";
import { aroundThen } from "./past.ts";
import { around, changed, changes, days, daysOf, groups, type Unwell, unwell, unwellAt } from "./store.ts";

const HOUR = 3_600_000;

export interface Seen {
  /** Null is now. */
  at: number | null;
  /** What is wrong, the worst first; null until it is known. */
  groups: Group[] | null;
  around: AroundAnswer | null;
  unwell: Unwell | null;
  /** Of the hour before; null until they are known. */
  changes: Change[] | null;
  days: ReadonlyMap<string, Past[]>;
  /** The moment itself; now by the half minute. */
  until: number;
  failing: { error: QueryError; retryAt: number | null; retry: () => void } | null;
}

type Failing = Pick<Loaded<unknown>, "error" | "retryAt">;
const failingOf = ({ error, retryAt }: Failing, retry: () => void): Seen["failing"] => error && { error, retryAt, retry };

/** How everything is. */
export function seenNow(): Seen {
  const [objects, rest, hour] = [unwell.state.value, around.state.value, changed.state.value];
  const retry = () => void (unwell.run(), around.run(), changed.run());
  return {
    at: null,
    groups: groups.value,
    around: rest.value,
    unwell: objects.value,
    changes: hour.value ? changes.value : null,
    days: days.value,
    until: lately.value,
    failing: failingOf(objects, retry) ?? failingOf(rest, retry) ?? failingOf(hour, retry),
  };
}

/** What the index has of a moment. */
export interface Indexed {
  at: number;
  unwell: Unwell;
  changes: Change[];
  days: ReadonlyMap<string, Past[]>;
}

/** Asks the index: a few queries, one after the other. `rest` says where environments are. */
export async function indexedAt(at: number, rest: AroundAnswer, stop: AbortSignal): Promise<Indexed> {
  const instant = (moment: number) => new Date(moment).toISOString();
  const objects = await unwellAt(instant(at), stop);
  const hour = await ask<ChangedAnswer>(CHANGED, { from: instant(at - HOUR), to: instant(at) }, stop);
  const histories = await daysOf(wrong(objects.resources, objects.why, rest), stop);
  const before = (past: Past[]) => past.filter((change) => Date.parse(change.recordedAt) <= at);
  return { at, unwell: objects, changes: hour.changes.nodes, days: new Map([...histories].map(([uid, past]) => [uid, before(past)])) };
}

/** How everything was, by what the index and the log have. */
export function seenThen({ value, ...rest }: Loaded<Indexed>, retry: () => void): Seen {
  const now = around.state.value.value;
  const known = value && now ? aroundThen(now, value.at) : null;
  return {
    at: value?.at ?? null,
    groups: value && known && wrong(value.unwell.resources, value.unwell.why, known),
    around: known,
    unwell: value?.unwell ?? null,
    changes: value?.changes ?? null,
    days: value?.days ?? new Map(),
    until: value?.at ?? lately.value,
    failing: failingOf(rest, retry),
  };
}
