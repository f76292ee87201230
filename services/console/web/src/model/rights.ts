import { ask } from "../api/graphql.ts";
import type { Right } from "../api/types.ts";
import { loader } from "./loaded.ts";

/** What may be done in the organization as a whole. */
export type OrganizationAction = "READ_LOG" | "READ_USERS" | "MANAGE_USER_TOKENS" | "SET_TOKEN_LIFETIMES" | "ASSIGN_ROLE" | "MANAGE_SUBSCRIPTIONS";

const RIGHTS = "query Rights { rights { action allowed reason } }";
const rights = loader(async (stop) => (await ask<{ rights: (Right & { action: OrganizationAction })[] }>(RIGHTS, {}, stop)).rights);

/** Asks what the viewer may do: anew with each view that needs it. */
export function learnRights(): () => void {
  void rights.run();
  return rights.stop;
}

/** Null until it is known. */
export function rightTo(action: OrganizationAction): Right | null {
  return rights.state.value.value?.find((right) => right.action === action) ?? null;
}
