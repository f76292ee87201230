// What can be done with an object: each is one request to the cluster's API, and a command that does the same.

import type { Doing } from "../api/clusters.ts";
import type { Body, Offered } from "../api/object.ts";
import type { Line } from "../api/place.ts";
import { valueAt } from "./facts.ts";
import { quoted } from "./quoted.ts";

/** Kinds that things are done with, as the API has them. */
const RESOURCES: Record<string, string> = {
  "Deployment.apps": "deployments",
  "StatefulSet.apps": "statefulsets",
  "DaemonSet.apps": "daemonsets",
  "ReplicaSet.apps": "replicasets",
  "Rollout.argoproj.io": "rollouts",
  "Pod.": "pods",
};

export interface Action {
  name: string;
  /** What it will do, in numbers. */
  says: string;
  doing: Doing;
  method: "PATCH" | "DELETE";
  path: string;
  body: unknown;
  media: string;
  kubectl: string;
  /** The number that a person gives. */
  number: { name: string; value: number } | null;
  changesNothing: boolean;
  /** The agent's configuration declares it. */
  declared: boolean;
}

const MERGE = "application/merge-patch+json";

/** Where an object is in its cluster's API. */
function pathOf({ group, version, namespace, name }: Line, resource: string): string {
  const root = group ? `/apis/${group}/${version}` : `/api/${version}`;
  const place = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${place}/${resource}/${encodeURIComponent(name)}`;
}

/** Actions that are patches alone, as the server offers them for this object. */
export function offeredActions(line: Line, offered: Offered[]): Action[] {
  const { group, namespace, name } = line;
  return offered.map((one) => {
    const { resource, subresource, patch, declared } = one;
    const type = one.mediaType === MERGE ? "merge" : "json";
    const place = namespace ? ` -n ${namespace}` : "";
    const of = subresource ? ` --subresource ${subresource}` : "";
    return {
      name: one.name.charAt(0).toUpperCase() + one.name.slice(1).replaceAll("-", " "),
      says: `${one.text} This patches ${line.kind} ${name}${namespace ? ` in ${namespace}` : ""}, and nothing else.`,
      doing: { verb: "patch", group, resource, subresource: subresource ?? "", namespace, name },
      method: "PATCH",
      path: `${pathOf(line, resource)}${subresource ? `/${subresource}` : ""}`,
      body: patch,
      media: one.mediaType,
      kubectl: `kubectl${place} patch ${resource}${group ? `.${group}` : ""} ${name}${of} --type ${type} -p ${quoted(JSON.stringify(patch))}`,
      number: null,
      changesNothing: false,
      declared,
    };
  });
}

/** What else can be done with an object. `pods` is how many are below it, `number` what a person gave where one is asked for. */
export function actionsOf(line: Line, body: Body | null, pods: number, number: number | null): Action[] {
  const resource = RESOURCES[`${line.kind}.${line.group}`];
  if (!resource || !line.namespace) return [];
  const { group, namespace, name } = line;
  const path = pathOf(line, resource);
  const doing = (verb: string, subresource = ""): Doing => ({ verb, group, resource, subresource, namespace, name });
  const kubectl = (rest: string) => `kubectl -n ${namespace} ${rest}`;
  const named = `${line.kind.toLowerCase()}/${name}`;
  const patch = (name: string, says: string, body: unknown, command: string, subresource = ""): Action => ({
    name,
    says,
    doing: doing("patch", subresource),
    method: "PATCH",
    path: subresource ? `${path}/${subresource}` : path,
    body,
    media: MERGE,
    kubectl: kubectl(command),
    number: null,
    changesNothing: false,
    declared: false,
  });
  const podsWord = `${pods} ${pods === 1 ? "pod" : "pods"}`;
  const found: Action[] = [];
  if (line.kind === "Pod") {
    const says = `Deletes pod ${name} in ${namespace}. What controls it makes another one; a pod of nobody is gone.`;
    found.push({ ...patch("Delete pod", says, null, `delete pod ${name}`), doing: doing("delete"), method: "DELETE" });
    return found;
  }
  if (line.kind !== "ReplicaSet" && line.kind !== "Rollout") {
    const annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
    found.push(patch("Restart", `Replaces ${podsWord} of ${name} in ${namespace}, a few at a time.`, { spec: { template: { metadata: { annotations } } } }, `rollout restart ${named}`));
  }
  if (line.kind !== "DaemonSet") {
    const now = Number(valueAt(body, "spec", "replicas") ?? pods);
    const wanted = number ?? now;
    const action = patch("Scale", `Changes ${name} in ${namespace} from ${now} to ${wanted} replicas.`, { spec: { replicas: wanted } }, `scale ${named} --replicas ${wanted}`, "scale");
    found.push({ ...action, number: { name: "Replicas", value: wanted }, changesNothing: wanted === now });
  }
  if (line.kind === "Deployment") {
    const isPaused = valueAt(body, "spec", "paused") === true;
    const says = isPaused ? `Lets the rollout of ${name} in ${namespace} go on.` : `Stops the rollout of ${name} in ${namespace} where it is; ${podsWord} stay as they are.`;
    found.push(patch(isPaused ? "Resume" : "Pause", says, { spec: { paused: !isPaused } }, `rollout ${isPaused ? "resume" : "pause"} ${named}`));
  }
  return found;
}
