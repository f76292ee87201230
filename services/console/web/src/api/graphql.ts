import { doubt, session } from "./session.ts";

/** Why a query has no answer: `kind` is that of every refusal of the API. */
export class QueryError extends Error {
  constructor(
    message: string,
    readonly kind: string,
  ) {
    super(message);
  }
}

interface Answer<T> {
  data?: T | null;
  errors?: { message: string; extensions?: { kind?: string } }[];
  kind?: string;
  message?: string;
}

export const PATH = "/api/graphql";

export function headers(): Record<string, string> {
  return { "Content-Type": "application/json", "X-CSRF-Token": session.value?.csrf_token ?? "" };
}

/** Asks a query, all of which has an answer. */
export async function ask<T>(query: string, variables: Record<string, unknown> = {}, stop?: AbortSignal): Promise<T> {
  const { data, failure } = await askInParts<T>(query, variables, stop);
  if (failure) throw failure;
  return data as T;
}

/** Asks a query of which fields may be refused by themselves: those are null, and the first refusal is returned. */
export async function askInParts<T>(
  query: string,
  variables: Record<string, unknown> = {},
  stop?: AbortSignal,
): Promise<{ data: Partial<T>; failure: QueryError | null }> {
  let response: Response;
  try {
    const body = JSON.stringify({ query, variables });
    response = await fetch(PATH, { method: "POST", headers: headers(), body, signal: stop ?? null });
  } catch (error) {
    if (stop?.aborted) throw error;
    throw new QueryError("the server cannot be reached", "unavailable");
  }
  const answer = (await response.json().catch(() => ({}))) as Answer<T>;
  const first = answer.errors?.[0];
  if (answer.data && !first) return { data: answer.data, failure: null };
  const kind = first?.extensions?.kind ?? answer.kind ?? "unavailable";
  const message = first?.message ?? answer.message ?? `the server answered ${response.status}`;
  const failure = new QueryError(message, kind);
  if (answer.data) return { data: answer.data, failure };
  if (kind === "unauthenticated") await doubt(message);
  throw failure;
}
