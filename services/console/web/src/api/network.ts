// Who sends traffic to whom in a place.

import { LINE, type Line, type Place } from "./place.ts";
import type { AsOf } from "./types.ts";

export const NETWORK = `query Network($filter: ResourceFilter!, $at: Moment) { network(filter: $filter, at: $at) {
  nodes { agent group kind namespace name role resource { ${LINE} } missing beside pods mesh { mesh mtls reason ports { port mtls } } }
  edges { from to relation } leftOut edgesLeftOut asOf { position judgedAt horizon } } }`;

export type Role = "ENTRY" | "ROUTE" | "SERVICE" | "WORKLOAD" | "POLICY";

export interface Mesh {
  mesh: string;
  mtls: "strict" | "permissive" | "off" | "unknown";
  reason: string;
  ports: { port: number; mtls: string }[];
}

export interface NetworkNode {
  agent: string;
  group: string;
  kind: string;
  namespace: string;
  name: string;
  role: Role;
  /** Null where it is not there, or not seen. */
  resource: Line | null;
  missing: boolean;
  /** It belongs to the place only by what it is related to. */
  beside: boolean;
  pods: number | null;
  mesh: Mesh | null;
}

export interface NetworkEdge {
  from: number;
  to: number;
  relation: string;
}

export interface Network {
  nodes: NetworkNode[];
  edges: NetworkEdge[];
  leftOut: number;
  edgesLeftOut: number;
  asOf: AsOf;
}

export interface NetworkAnswer {
  network: Network;
}

/** The filter that means a place: an environment, or a namespace of a cluster. */
export const filterOfPlace = ({ environment, agent, namespace }: Place) => (environment ? { env: environment.id } : { agent, namespace });
