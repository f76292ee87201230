import { signal } from "@preact/signals";

/** Who is signed in, and the word that each request by the session has beside its cookie. */
export interface Session {
  csrf_token: string;
  user: string | null;
  organization: string | null;
  expires_at: string | null;
  /** Where this page asks clusters' APIs, with a session of its own there; null where it cannot. */
  clusters_url: string | null;
}

const PATH = "/api/session";
/** Where the session at clusters' APIs is kept, if one was begun (`clusters.ts`). */
export const CLUSTERS = "kasbah-clusters";

/** `undefined` until it is known, `null` where nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);
/** Why a sign-in at an identity provider failed; `organization` where it needs the name of one. */
export const refused = signal<Refused | null>(null);
/** Why nobody is signed in any more, if somebody was. */
export const ended = signal<string | null>(null);

interface Refused {
  message: string;
  organization: boolean;
}

interface Refusal {
  message?: string;
}

interface Answer {
  session: Session | null;
  refused?: Refused;
}

async function answer<T = Answer>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  const refusal = (await response.json().catch(() => ({}))) as Refusal;
  throw new Error(refusal.message ?? `the server answered ${response.status}`);
}

/** Asks who is signed in. */
export async function recall(): Promise<void> {
  const shown = await answer(await fetch(PATH));
  // The server reports a refusal once: later answers are without it.
  if (shown.refused) refused.value = shown.refused;
  session.value = shown.session;
}

/** An identity provider at which people sign in on this page. */
export interface Provider {
  name: string;
  kind: string;
  on_page?: boolean;
}

/** The identity providers that the operator allows here. */
export async function providers(): Promise<Provider[]> {
  const all = await answer<Provider[]>(await fetch("/api/v1/sign-in"));
  return all.filter((one) => one.kind === "people" && one.on_page);
}

/** Goes to an identity provider to sign in there; it leads back to `to`. */
export async function signInWith(provider: string, to: string, organization: string): Promise<void> {
  const body = JSON.stringify({ provider, to, organization: organization || null });
  const response = await fetch(`${PATH}/provider`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const { url } = await answer<{ url: string }>(response);
  location.assign(url);
}

/** Signs in with a token; with one of a link, which is good for this once. */
export async function signIn(token: string, once: boolean): Promise<void> {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const response = await fetch(PATH, { method: "POST", headers, body: JSON.stringify({ once }) });
  session.value = (await answer(response)).session;
  ended.value = null;
  refused.value = null;
}

/** Revokes the token that this session has at clusters' APIs. It ends by itself soon where that is not possible. */
async function endClusters(word: string): Promise<void> {
  const kept = JSON.parse(localStorage.getItem(CLUSTERS) ?? "null") as { token: string; of: string } | null;
  localStorage.removeItem(CLUSTERS);
  if (kept?.of !== word) return;
  const path = `/api/v1/tokens/${encodeURIComponent(kept.token)}`;
  await fetch(path, { method: "DELETE", headers: { "X-CSRF-Token": word } }).catch(() => {});
}

/** Ends the session: its token is revoked. */
export async function signOut(): Promise<void> {
  const word = session.value?.csrf_token ?? "";
  await endClusters(word);
  const response = await fetch(PATH, { method: "DELETE", headers: { "X-CSRF-Token": word } });
  if (!response.ok) await answer(response);
  session.value = null;
}

/** Looks again whether the session lives, after the server said that it does not. */
export async function doubt(reason: string): Promise<void> {
  const before = session.value;
  await recall();
  if (before && !session.value) ended.value = reason;
}
