import { computed } from "@preact/signals";
import { type Page, read } from "../api/commands.ts";
import { session } from "../api/session.ts";
import { loader } from "./loaded.ts";
import type { Names } from "./log.ts";
import { around } from "./store.ts";

/** A user, as `/api/v1/users` has them. */
export interface User {
  id: string;
  name: string | null;
  roles: [role: string, scope: Record<string, string>][];
  accounts?: string[];
  disabled?: boolean;
}

/** All users, for those who may see them. */
export const users = loader((stop) => read<Page<User>>("/users?limit=500", stop));

interface Project {
  id: string;
  path: string;
}
export const projects = loader((stop) => read<Page<Project>>("/projects?limit=500", stop));

/** Asks for what is not known yet. A viewer who may not see users sees their ids. */
export function learnNames(): () => void {
  for (const one of [users, projects]) if (!one.state.peek().value) void one.run();
  return () => {
    users.stop();
    projects.stop();
  };
}

/** What ids are called. */
export const names = computed<Names>(() => {
  const found = new Map<string, string>();
  const rest = around.state.value.value;
  for (const agent of rest?.agents.nodes ?? []) found.set(agent.id, agent.name);
  for (const source of rest?.sources.nodes ?? []) found.set(source.id, `${found.get(source.agent) ?? "agent"}/${source.name}`);
  for (const environment of rest?.environments.nodes ?? []) found.set(environment.id, `${environment.projectPath} ${environment.name}`);
  for (const user of users.state.value.value?.items ?? []) if (user.name) found.set(user.id, user.name);
  for (const project of projects.state.value.value?.items ?? []) found.set(project.id, project.path);
  const actor = session.value as { actor?: { user?: string } } | null | undefined;
  if (actor?.actor?.user && session.value?.user) found.set(actor.actor.user, session.value.user);
  return found;
});
