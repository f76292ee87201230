// What the drawer of an object asks.

import { LINE, type Line } from "./place.ts";
import type { Link, Past } from "./queries.ts";

/** Everything that is known of one object, and what became of it. */
export const OBJECT = `query Object($filter: ResourceFilter!, $at: Moment) {
  resource(filter: $filter, at: $at) { resource { ${LINE} } body writer { manager operation at }
    environments { id name projectPath } related { relation inwards group kind namespace name uid missing }
    actions { name text resource subresource mediaType patch declared } }
  resourceHistory(filter: $filter, first: 100) { nodes { uid recordedAt seenAt notBefore what writer { manager subresource } fields fieldCount health healthBefore } }
  why(filter: $filter, at: $at) { chains { resources { group kind namespace name uid health { state message } } } } }`;

export interface Related {
  relation: string;
  inwards: boolean;
  group: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string | null;
  missing: boolean;
}

/** Something that can be done with an object: a patch of it. */
export interface Offered {
  name: string;
  text: string;
  resource: string;
  subresource: string | null;
  mediaType: string;
  patch: unknown;
  declared: boolean;
}

export type Body = Record<string, unknown>;

export interface ObjectAnswer {
  resource: {
    resource: Line;
    body: Body | null;
    writer: { manager: string; operation: string; at: string | null } | null;
    environments: { id: string; name: string; projectPath: string }[];
    related: Related[];
    actions: Offered[];
  } | null;
  resourceHistory: { nodes: Past[] } | null;
  why: { chains: { resources: Link[] }[] } | null;
}

/** What differs of an object between two moments. */
export const DIFF = `query Differs($filter: ResourceFilter!, $from: Moment!, $to: Moment, $status: Boolean!) {
  diff(filter: $filter, from: $from, to: $to, status: $status) { differs from { resource { uid } } to { resource { uid } } fields { path before after } } }`;

export interface DiffAnswer {
  diff: {
    differs: boolean;
    from: { resource: { uid: string } } | null;
    to: { resource: { uid: string } } | null;
    fields: Difference[];
  };
}

/** A field that differs; what was not there is null. */
export interface Difference {
  path: string;
  before: unknown;
  after: unknown;
}

/** Kubernetes Events that name an object. */
export const EVENTS = `query Events($filter: ResourceFilter!, $at: Moment) {
  resources(filter: $filter, at: $at, first: 200) { nodes { ${LINE} } pageInfo { hasNextPage } } }`;

export interface EventsAnswer {
  resources: { nodes: Line[]; pageInfo: { hasNextPage: boolean } };
}
