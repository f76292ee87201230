// The objects of one place, kept current by patches: what changed is asked for by itself, the whole tree only where too much changed at once
// or the feed was broken.

import { effect, signal, untracked } from "@preact/signals";
import { link, listen } from "../api/feed.ts";
import { ask, askInParts } from "../api/graphql.ts";
import {
  BELOW,
  type BelowAnswer,
  IN_NAMESPACE,
  type InNamespaceAnswer,
  type LinesAnswer,
  linesOf,
  type Place,
  ROLL_UP,
  type RollUp,
  type RollUpAnswer,
  TREE,
  type TreeAnswer,
} from "../api/place.ts";
import type { AsOf, Change } from "../api/types.ts";
import { horizon } from "./at.ts";
import { isGone } from "./gone.ts";
import { atMostEvery, loader } from "./loaded.ts";
import { patched, touched } from "./patches.ts";
import type { Forest, Node } from "./tree.ts";

/** Objects that one query brings up to date: each costs the server a request. */
const AT_ONCE = 24;
/** When more than this waits, the whole is asked for instead. */
const WAITING = 240;
/** How often the whole is asked for, where not all of it is shown and one that is not has come or changed its health. */
const CUT_AGAIN = 15_000;
/** With more objects than this the whole is asked for, which the server cuts. */
const MOST = 4000;
/** Pages of a namespace that are asked for. */
const PAGES = 6;

export interface Known {
  forest: Forest;
  leftOut: number;
  rollUp: RollUp | null;
  asOf: AsOf | null;
}

export type Followed = ReturnType<typeof followPlace>;

async function ofEnvironment(id: string, at: string | null, stop: AbortSignal): Promise<Known> {
  const { environment } = await ask<TreeAnswer>(TREE, { id, at }, stop);
  const { tree } = environment;
  if (!tree) return { forest: new Map(), leftOut: 0, rollUp: null, asOf: null };
  const forest = new Map<string, Node>();
  for (const { parent, relation, resource } of tree.nodes) {
    const above = parent === null ? null : (tree.nodes[parent]?.resource.uid ?? null);
    forest.set(resource.uid, { line: resource, parent: above, relation });
  }
  return { forest, leftOut: tree.leftOut, rollUp: tree.health, asOf: tree.asOf };
}

async function ofNamespace({ agent, namespace }: Place, at: string | null, stop: AbortSignal): Promise<Known> {
  const forest = new Map<string, Node>();
  let after: string | null = null;
  let leftOut = 0;
  let asOf: AsOf | null = null;
  for (let page = 0; page < PAGES; page++) {
    const { resources }: InNamespaceAnswer = await ask(IN_NAMESPACE, { agent, namespace: namespace || null, at, after }, stop);
    for (const line of resources.nodes) {
      if (line.namespace === namespace) forest.set(line.uid, { line, parent: null, relation: null });
    }
    asOf ??= resources.asOf;
    after = resources.pageInfo.endCursor;
    leftOut = resources.pageInfo.hasNextPage ? 1 : 0;
    if (!leftOut) break;
  }
  if (namespace) {
    const { data } = await askInParts<BelowAnswer>(BELOW, { agent, namespace, at }, stop);
    for (const tree of Object.values(data)) {
      for (const { parent, relation, resource } of tree?.nodes ?? []) {
        const above = parent === null ? null : (tree?.nodes[parent]?.resource.uid ?? null);
        const node = forest.get(resource.uid);
        // What controls an object comes before what only selects it.
        if (node && above && (node.relation !== "controls" || relation === "controls")) forest.set(resource.uid, { ...node, parent: above, relation });
      }
    }
  }
  return { forest, leftOut, rollUp: null, asOf };
}

/** Follows the objects of a place at a moment, or as they change. */
export function followPlace(place: Place, at: string | null) {
  const id = place.environment?.id ?? null;
  const known = signal<Known | null>(null);
  // New objects come up where others are.
  const places = new Set([`${place.agent}/${place.namespace}`]);
  const whole = loader(async (stop) => {
    const value = await (id ? ofEnvironment(id, at, stop) : ofNamespace(place, at, stop));
    known.value = value;
    for (const { line } of value.forest.values()) if (line.namespace) places.add(`${line.agent}/${line.namespace}`);
    horizon.value = value.asOf?.horizon ? Date.parse(value.asOf.horizon) : null;
    return true;
  });
  const isNear = (change: Change) => change.kind !== "Event" && places.has(`${change.agent}/${change.namespace}`);
  /** Where not all objects are shown, one that is not may be left out as well as new. */
  const isShown = (change: Change) => {
    const current = known.peek();
    return current?.forest.has(change.uid) || (isNear(change) && !current?.leftOut);
  };

  const waiting = new Map<string, Change>();
  const lines = loader(async (stop) => {
    const some = [...waiting.values()].slice(0, AT_ONCE);
    for (const { uid } of some) waiting.delete(uid);
    if (some.length === 0) return true;
    const { data } = await askInParts<LinesAnswer>(linesOf(some), {}, stop);
    const found = some.map((_, number) => data[`o${number}`]).filter((one) => one != null);
    const current = known.peek();
    if (current) known.value = { ...current, forest: patched(current.forest, found, id) };
    if (waiting.size > 0) void lines.run();
    return true;
  });
  const rollUp = loader(async (stop) => {
    if (!id) return true;
    const { environment } = await ask<RollUpAnswer>(ROLL_UP, { id }, stop);
    const current = known.peek();
    if (current) known.value = { ...current, rollUp: environment.health };
    return true;
  });

  const start = (): (() => void) => {
    void whole.run();
    const stop = () => {
      for (const one of [whole, lines, rollUp]) one.stop();
      horizon.value = null;
    };
    if (at !== null) return stop;
    const wholeAgain = atMostEvery(5000, whole.run);
    const cutAgain = atMostEvery(CUT_AGAIN, whole.run);
    const linesAgain = atMostEvery(300, lines.run);
    const rollUpAgain = atMostEvery(1500, rollUp.run);
    const hear = listen((changes) => {
      const here = changes.filter(isShown);
      const others = changes.filter((change) => !isShown(change) && isNear(change));
      if (here.length + others.length > 0) rollUpAgain();
      // It may be among the worst by now.
      if (others.some(({ what, healthBefore }) => healthBefore !== null || what === "created" || what === "first-seen")) cutAgain();
      if (here.length === 0) return;
      const current = known.peek();
      if (current) known.value = { ...current, forest: touched(current.forest, here) };
      for (const change of here) {
        if (isGone(change)) waiting.delete(change.uid);
        else waiting.set(change.uid, change);
      }
      if (waiting.size > WAITING || (current && current.forest.size > MOST)) {
        waiting.clear();
        wholeAgain();
      } else linesAgain();
    });
    let wasLive = true;
    const onLink = effect(() => {
      const isLive = link.value.state === "live";
      if (isLive && !wasLive) untracked(() => void whole.run());
      wasLive = isLive;
    });
    return () => {
      hear();
      onLink();
      stop();
    };
  };
  return { known, state: whole.state, retry: () => void whole.run(), start };
}
