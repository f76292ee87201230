// What the page knows, kept current by the live feed: each signal is asked for once, then again for what changed.

import { computed, effect, signal } from "@preact/signals";
import { link, listen, start as follow } from "../api/feed.ts";
import { ask, askInParts } from "../api/graphql.ts";
import {
  AROUND,
  type AroundAnswer,
  CHANGED,
  type ChangedAnswer,
  type HistoryAnswer,
  historyOf,
  type Link,
  type Past,
  UNWELL,
  type UnwellAnswer,
  type WhyAnswer,
  whyIn,
} from "../api/queries.ts";
import { session } from "../api/session.ts";
import type { AsOf, Change, Resource } from "../api/types.ts";
import { path } from "../router.ts";
import { atMostEvery, loader } from "./loaded.ts";
import { type Group, keyOf, wrong } from "./overview.ts";
import { withNewer } from "./patches.ts";
import { compare, ofHealth, worst } from "./status.ts";

/** Places whose troubles are explained; others are counted. */
const PLACES = 12;
/** Places that one query explains: each costs what it may answer. */
const PLACES_AT_ONCE = 6;
/** Objects whose day is shown. */
const DAYS = 30;
const CHANGES = 1000;
const HOUR = 3_600_000;

export interface Unwell {
  resources: Resource[];
  why: Map<string, { resources: Link[] }[] | null>;
  /** Places that are not explained. */
  further: number;
  /** There are more objects than were asked for. */
  isCut: boolean;
  asOf: AsOf;
}

/** Objects that are not well at a moment, with what is to blame in the worst places. */
export async function unwellAt(at: string | null, stop: AbortSignal): Promise<Unwell> {
  const { resources } = await ask<UnwellAnswer>(UNWELL, { at }, stop);
  const places = [...Map.groupBy(resources.nodes, keyOf).values()]
    .map((inPlace) => ({ place: inPlace[0] as Resource, status: worst(inPlace.map((one) => ofHealth(one.health.state))) }))
    .sort((one, other) => compare(one.status, other.status))
    .map(({ place }) => place);
  const why = new Map<string, { resources: Link[] }[] | null>();
  for (let from = 0; from < Math.min(places.length, PLACES); from += PLACES_AT_ONCE) {
    const some = places.slice(from, Math.min(from + PLACES_AT_ONCE, PLACES));
    const { data } = await askInParts<WhyAnswer>(whyIn(some, at), {}, stop);
    some.forEach((place, number) => why.set(keyOf(place), data[`p${number}`]?.chains ?? null));
  }
  const further = Math.max(0, places.length - PLACES);
  return { resources: resources.nodes, why, further, isCut: resources.pageInfo.hasNextPage, asOf: resources.asOf };
}
export const unwell = loader((stop) => unwellAt(null, stop));

/** Environments, sources, agents and clusters. */
export const around = loader((stop) => ask<AroundAnswer>(AROUND, {}, stop));

/** Changes of the last hour, the newest first: those that were asked for, and those that came since. */
export const changes = signal<Change[]>([]);
export const changed = loader(async (stop) => {
  const answer = await ask<ChangedAnswer>(CHANGED, { from: "-1h" }, stop);
  merge([...answer.changes.nodes].reverse());
  return true;
});

/** What is wrong, the worst first; null until it is known. */
export const groups = computed<Group[] | null>(() => {
  const [objects, rest] = [unwell.state.value.value, around.state.value.value];
  return objects && rest && wrong(objects.resources, objects.why, rest);
});

/** The last day of the objects that are shown as wrong and of what is to blame, by UID. */
export const days = signal<ReadonlyMap<string, Past[]>>(new Map());
const history = loader(async (stop) => {
  days.value = new Map([...days.peek(), ...(await daysOf(groups.peek() ?? [], stop))]);
  return true;
});

/** What became of the objects that are shown as wrong, and of what is to blame, by UID: the newest first. */
export async function daysOf(all: Group[], stop: AbortSignal): Promise<Map<string, Past[]>> {
  const shown = all.flatMap((group) => group.troubles.slice(0, 3));
  // What is to blame belongs to it: an object may be as it is without a change of its own.
  const both = shown.flatMap(({ root, guilty }) => [root, { ...guilty, agent: root.agent }]);
  const objects = [...new Map(both.map((one) => [one.uid, one])).values()].slice(0, DAYS);
  const found = new Map<string, Past[]>();
  if (objects.length === 0) return found;
  const { data } = await askInParts<HistoryAnswer>(historyOf(objects, 60), {}, stop);
  objects.forEach(({ uid }, number) => {
    const past = data[`h${number}`]?.nodes;
    // Another object of the name may have been there before.
    if (past) found.set(uid, past.filter((change) => change.uid === uid));
  });
  return found;
}

function merge(some: Change[]): void {
  changes.value = withNewer(changes.peek(), some, Date.now() - HOUR, CHANGES);
}

const isOverview = () => path.value === "/";

/** Keeps everything current while somebody is signed in; what ends that. */
export function keepCurrent(): () => void {
  const stop = new AbortController();
  // Other views than the overview need it for their heads and the name of the tab only.
  const again = atMostEvery(700, unwell.run);
  const laterAgain = atMostEvery(3000, unwell.run);
  const aroundAgain = atMostEvery(2000, around.run);
  const historyAgain = atMostEvery(1500, history.run);
  const all = () => void Promise.all([unwell.run(), around.run(), changed.run()]);
  const hear = listen((some) => {
    merge(some);
    aroundAgain();
    const shown = new Set(unwell.state.peek().value?.resources.map((resource) => resource.uid));
    if (some.some((change) => change.healthBefore || shown.has(change.uid))) (isOverview() ? again : laterAgain)();
  });
  const often = setInterval(() => document.visibilityState === "visible" && around.run(), 5000);
  const seldom = setInterval(() => document.visibilityState === "visible" && unwell.run(), 30_000);
  const onGroups = effect(() => {
    if (groups.value && isOverview()) historyAgain();
  });
  // What changed before the feed began, or while it was broken, is asked for once it is live.
  let wasLive = true;
  const onLink = effect(() => {
    const isLive = link.value.state === "live";
    if (isLive && !wasLive) all();
    wasLive = isLive;
  });
  follow(stop.signal);
  all();
  return () => {
    stop.abort();
    hear();
    clearInterval(often);
    clearInterval(seldom);
    onGroups();
    onLink();
    for (const one of [unwell, around, changed, history]) one.stop();
    changes.value = [];
    days.value = new Map();
    for (const one of [unwell, around]) one.state.value = { value: null, error: null, retryAt: null };
  };
}

/** Whether somebody is signed in, for what depends on nothing else of the session. */
export const isSignedIn = computed(() => Boolean(session.value));
