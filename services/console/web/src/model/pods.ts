// Pods of objects, and their containers.

import type { Body } from "../api/object.ts";
import type { Line } from "../api/place.ts";
import { objectsIn, textOf, valueAt } from "./facts.ts";
import { family, type Forest, statusOf } from "./tree.ts";

/** A container of a pod. */
export interface Container {
  pod: Line;
  container: string;
}

/** The pod, or those below an object; what is not well first. */
export function podsOf(of: Line, forest: Forest): Line[] {
  if (of.kind === "Pod") return [of];
  const pods = [...family(of, forest).values()].filter(({ kind }) => kind === "Pod");
  return pods.sort((one, other) => Number(statusOf(one) === "healthy") - Number(statusOf(other) === "healthy") || one.name.localeCompare(other.name));
}

/** The names of a pod's containers, in its order; those that begin it come behind the others. */
export function containersIn(body: Body | null): string[] {
  const all = ["containers", "initContainers"].flatMap((name) => objectsIn(valueAt(body, "spec", name)));
  return all.map(({ name }) => textOf(name) ?? "").filter(Boolean);
}

/** Those of them that run; the others have no shell. */
export function runningIn(body: Body | null): string[] {
  const states = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
  const all = states.flatMap((name) => objectsIn(valueAt(body, "status", name)));
  return all.filter(({ state }) => valueAt(state as Body, "running") !== undefined).map(({ name }) => textOf(name) ?? "");
}
