// What matters of an object for its kind, in a few numbers.

import type { Body } from "../api/object.ts";

export interface Fact {
  name: string;
  value: string;
}

type Value = Record<string, unknown> | undefined;

const at = (body: Body | null, ...path: string[]): unknown =>
  path.reduce<unknown>((value, name) => (value !== null && typeof value === "object" ? (value as Body)[name] : undefined), body);

const list = (value: unknown): Body[] => (Array.isArray(value) ? value.filter((one): one is Body => one !== null && typeof one === "object") : []);
const text = (value: unknown): string | null => (typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : null);

function replicas(body: Body): Fact[] {
  const wanted = Number(at(body, "spec", "replicas") ?? 1);
  const [ready, updated] = [Number(at(body, "status", "readyReplicas") ?? 0), at(body, "status", "updatedReplicas")];
  const facts = [{ name: "Ready", value: `${ready} of ${wanted}` }];
  if (updated !== undefined) facts.push({ name: "Updated", value: `${updated} of ${wanted}` });
  return facts;
}

function images(body: Body, ...path: string[]): Fact[] {
  return list(at(body, ...path)).map((container) => ({ name: `Image of ${text(container.name) ?? "?"}`, value: text(container.image) ?? "none" }));
}

function pod(body: Body): Fact[] {
  const statuses = list(at(body, "status", "containerStatuses"));
  const restarts = statuses.reduce((sum, one) => sum + Number(one.restartCount ?? 0), 0);
  return [
    { name: "Phase", value: text(at(body, "status", "phase")) ?? "unknown" },
    { name: "Ready", value: `${statuses.filter(({ ready }) => ready === true).length} of ${list(at(body, "spec", "containers")).length} containers` },
    { name: "Restarts", value: String(restarts) },
    { name: "Node", value: text(at(body, "spec", "nodeName")) ?? "none yet" },
    ...images(body, "spec", "containers"),
  ];
}

function service(body: Body): Fact[] {
  const ports = list(at(body, "spec", "ports")).map((port) => `${text(port.port)}→${text(port.targetPort) ?? text(port.port)}`);
  return [
    { name: "Type", value: text(at(body, "spec", "type")) ?? "ClusterIP" },
    { name: "Address", value: text(at(body, "spec", "clusterIP")) ?? "none" },
    { name: "Ports", value: ports.join(", ") || "none" },
  ];
}

/** A few facts of an object. */
export function facts(kind: string, body: Body | null): Fact[] {
  if (!body) return [];
  switch (kind) {
    case "Deployment":
    case "StatefulSet":
    case "ReplicaSet":
    case "Rollout":
      return [...replicas(body), ...images(body, "spec", "template", "spec", "containers")];
    case "DaemonSet":
      return [
        { name: "Ready", value: `${at(body, "status", "numberReady") ?? 0} of ${at(body, "status", "desiredNumberScheduled") ?? 0}` },
        { name: "Updated", value: `${at(body, "status", "updatedNumberScheduled") ?? 0} of ${at(body, "status", "desiredNumberScheduled") ?? 0}` },
        ...images(body, "spec", "template", "spec", "containers"),
      ];
    case "Pod":
      return pod(body);
    case "Job":
      return [
        { name: "Succeeded", value: `${at(body, "status", "succeeded") ?? 0} of ${at(body, "spec", "completions") ?? 1}` },
        { name: "Failed", value: String(at(body, "status", "failed") ?? 0) },
        ...images(body, "spec", "template", "spec", "containers"),
      ];
    case "CronJob":
      return [
        { name: "Schedule", value: text(at(body, "spec", "schedule")) ?? "none" },
        { name: "Last run", value: text(at(body, "status", "lastScheduleTime")) ?? "never" },
      ];
    case "Service":
      return service(body);
    case "ConfigMap":
    case "Secret":
      return [{ name: "Keys", value: Object.keys((at(body, "data") as Value) ?? {}).join(", ") || "none" }];
    case "PersistentVolumeClaim":
      return [
        { name: "Phase", value: text(at(body, "status", "phase")) ?? "unknown" },
        { name: "Size", value: text(at(body, "status", "capacity", "storage")) ?? text(at(body, "spec", "resources", "requests", "storage")) ?? "unknown" },
      ];
    default:
      return [];
  }
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
}

/** The conditions that an object has. */
export function conditions(body: Body | null): Condition[] {
  return list(at(body, "status", "conditions")).map((one) => ({
    type: text(one.type) ?? "",
    status: text(one.status) ?? "",
    reason: text(one.reason) ?? "",
    message: text(one.message) ?? "",
  }));
}

export { at as valueAt, list as objectsIn, text as textOf };
