// Clusters' own APIs, which the page asks at the gateway itself: as the person who is signed in, with a session there (docs/access.md, "From a
// browser"). It is begun when it is needed first, with a token of a quarter of an hour that is good for nothing else.

import { command } from "./commands.ts";
import { QueryError } from "./graphql.ts";
import { CLUSTERS, session } from "./session.ts";
import type { Right } from "./types.ts";

/** Seconds that a session lasts; it is begun again before. */
const LIFETIME = 900;
const EARLY = 60_000;

/** A session at the gateway. All tabs share it, as they share its cookie. */
interface Begun {
  word: string;
  until: number;
  /** Its token, which signing out revokes. */
  token: string;
  /** The console session that began it: the next sign-in begins another one. */
  of: string;
}

function begun(): Begun | null {
  try {
    const kept = JSON.parse(localStorage.getItem(CLUSTERS) ?? "null") as Begun | null;
    return kept && kept.of === session.value?.csrf_token && kept.until - EARLY > Date.now() ? kept : null;
  } catch {
    return null;
  }
}

let beginning: Promise<string> | null = null;

/** Where clusters' APIs are, if the page may ask them. */
export const clustersUrl = () => session.value?.clusters_url ?? null;

async function begin(url: string): Promise<string> {
  const asked = { name: "web page, clusters", clusters_only: true, lifetime_seconds: LIFETIME };
  const { value: token } = await command<{ secret: string; view: { id: string } }>("POST", "/tokens", asked);
  const response = await reach(`${url}/sessions`, { method: "POST", credentials: "include", headers: { Authorization: `Bearer ${token.secret}` } });
  if (!response.ok) throw await refusal(response);
  const { csrf_token: word } = (await response.json()) as { csrf_token: string };
  const kept: Begun = { word, until: Date.now() + LIFETIME * 1000, token: token.view.id, of: session.value?.csrf_token ?? "" };
  localStorage.setItem(CLUSTERS, JSON.stringify(kept));
  return word;
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    const message = `the browser cannot use ${new URL(url).origin}: it is not reached, its certificate is not trusted here, or this page is not among its --clusters-origins`;
    throw new QueryError(message, "unavailable");
  }
}

/** The refusal of a cluster's API or of the gateway. */
async function refusal(response: Response): Promise<QueryError> {
  const said = (await response.json().catch(() => ({}))) as { message?: string };
  const kind = response.status === 403 ? "denied" : response.status === 404 ? "not-found" : "unavailable";
  return new QueryError(said.message ?? `the cluster's API answered ${response.status}`, kind);
}

/** Asks the gateway as the person who is signed in. */
async function askGateway(path: string, init: RequestInit): Promise<Response> {
  const url = clustersUrl();
  if (!url) throw new QueryError("this server does not say where clusters' APIs are: --clusters-url", "unavailable");
  for (let attempt = 0; ; attempt++) {
    const known = begun()?.word;
    if (!known) beginning ??= begin(url).finally(() => (beginning = null));
    const word = known ?? (await (beginning as Promise<string>));
    const headers = { ...(init.headers as Record<string, string>), "X-CSRF-Token": word };
    const response = await reach(`${url}${path}`, { ...init, credentials: "include", headers });
    if (response.ok) return response;
    const failure = await refusal(response);
    // Another tab may have begun another session since, or this one has ended.
    const isOver = response.status === 401 || /X-CSRF-Token|two sessions/.test(failure.message);
    if (!isOver || attempt > 0) throw failure;
    // Another request may have begun another one meanwhile.
    if (begun()?.word === word) localStorage.removeItem(CLUSTERS);
  }
}

const pathOf = (agent: string, path: string) => `/agents/${encodeURIComponent(agent)}${path}`;

/** Asks a cluster's API as the person who is signed in. */
export function askCluster(agent: string, path: string, init: RequestInit = {}): Promise<Response> {
  return askGateway(pathOf(agent, path), init);
}

/** Opens a WebSocket to a cluster's API, by a ticket that is good for this one. */
export async function openSocket(agent: string, path: string, protocols: string[]): Promise<WebSocket> {
  const target = pathOf(agent, path);
  const response = await askGateway("/tickets", { method: "POST", body: JSON.stringify({ target }) });
  const { protocol } = (await response.json()) as { protocol: string };
  return new WebSocket(`${clustersUrl()?.replace(/^http/, "ws")}${target}`, [...protocols, protocol]);
}

/** Why a WebSocket was refused: browsers do not say. The same request without one is refused for the same reason, where there is one. */
export async function whyRefused(agent: string, path: string): Promise<string | null> {
  try {
    await askCluster(agent, path);
  } catch (error) {
    // The cluster would have taken it, had it been a WebSocket.
    if (error instanceof QueryError && !/upgrade|websocket/i.test(error.message)) return error.message;
  }
  return null;
}

export interface Doing {
  verb: string;
  group: string;
  resource: string;
  subresource?: string;
  namespace: string;
  name: string;
}

/** Asks Kasbah's grants, then the cluster's own rules where those may be asked. */
export async function mayDo(agent: string, { verb, group, resource, subresource = "", namespace, name }: Doing): Promise<Right> {
  const named = `${verb} ${resource}${group ? `.${group}` : ""}${subresource ? `/${subresource}` : ""} in ${namespace}`;
  const target = { resource: { group, resource, subresource, namespace, name } };
  const { value: granted } = await command<Right>("POST", `/agents/${encodeURIComponent(agent)}/access-reviews`, { attributes: { verb, target } });
  if (!granted.allowed) return { allowed: false, reason: `missing: ${named}: ${granted.reason}` };
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes: { verb, group, resource, subresource, namespace, name } } };
  try {
    const body = JSON.stringify(review);
    const response = await askCluster(agent, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const { status } = (await response.json()) as { status?: { allowed?: boolean; reason?: string } };
    if (status?.allowed === false) return { allowed: false, reason: `missing: ${named}: the cluster's RBAC does not allow it${status.reason ? `, ${status.reason}` : ""}` };
  } catch (error) {
    // Where the review itself is refused, the cluster answers the request when it is tried.
    if (error instanceof QueryError && error.kind === "unavailable") return { allowed: false, reason: error.message };
  }
  return { allowed: true, reason: granted.reason };
}
