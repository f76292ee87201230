import { computed, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { around, groups } from "../model/store.ts";
import { ofState, type Status } from "../model/status.ts";
import { short } from "../model/news.ts";
import { agentPath, environmentPath, placePath, sourcePath } from "../model/paths.ts";
import { theme } from "../model/theme.ts";
import { Shape } from "../parts/status.tsx";
import { path, visit } from "../router.ts";

export const isPaletteOpen = signal(false);
const text = signal("");
const selected = signal(0);

export function openPalette(): void {
  text.value = "";
  selected.value = 0;
  isPaletteOpen.value = true;
}

interface Target {
  name: string;
  kind: string;
  to: string;
  status: Status | null;
  /** What it does instead of going somewhere. */
  run?: () => void;
}

/** Everything that one can go to, what is not well first. */
const targets = computed<Target[]>(() => {
  const known = around.state.value.value;
  const found: Target[] = [];
  for (const group of groups.value ?? []) {
    for (const { root, status } of group.troubles) {
      const to = `${placePath(root.agent, root.namespace)}?object=${encodeURIComponent(root.uid)}`;
      found.push({ name: root.name, kind: `${root.kind} in ${group.title}`, to, status });
    }
  }
  for (const environment of known?.environments.nodes ?? []) {
    const group = groups.value?.find((one) => one.environment?.id === environment.id);
    const status = group?.status ?? null;
    found.push({ name: environment.name, kind: `environment of ${environment.projectPath}`, to: environmentPath(environment.id), status });
  }
  for (const source of known?.sources.nodes ?? []) {
    const to = sourcePath(source.id);
    found.push({ name: `${agentName(source.agent)}/${source.name}`, kind: `source into ${source.defaultNamespace}`, to, status: ofState(source.status.state) });
    for (const commit of new Set([source.newestCommit, source.syncedCommit, source.sync?.commit])) {
      if (commit) found.push({ name: short(commit), kind: `commit of ${source.name}`, to: `${to}?commit=${short(commit)}`, status: null });
    }
  }
  for (const agent of known?.agents.nodes ?? []) {
    const status = agent.status?.instances.length ? ofState(agent.status.state) : "unknown";
    found.push({ name: agent.name, kind: `agent of ${agent.projectPath}`, to: agentPath(agent.id), status });
  }
  return found;
});

const agentName = (id: string) => around.state.value.value?.agents.nodes.find((agent) => agent.id === id)?.name ?? "agent";

/** What can be done: with the source that is shown first, then with others. */
const commands = computed<Target[]>(() => {
  const sources = around.state.value.value?.sources.nodes ?? [];
  const shown = sources.filter((source) => path.value === sourcePath(source.id));
  const found: Target[] = [];
  for (const source of [...shown, ...sources.filter((source) => !shown.includes(source))]) {
    const to = sourcePath(source.id);
    const name = `${agentName(source.agent)}/${source.name}`;
    const isSuspended = source.status.state === "SUSPENDED";
    const deeds: [string, string][] = [
      [`sync ${name}`, "?do=sync"],
      [`${isSuspended ? "resume" : "suspend"} ${name}`, isSuspended ? "?do=resume" : "?do=suspend"],
      [`diff ${name}`, "?tab=next"],
    ];
    if (source.status.state === "HELD") deeds.unshift([`confirm ${name}`, "?do=confirm"]);
    for (const [what, query] of deeds) found.push({ name: what, kind: "command", to: to + query, status: null });
  }
  found.push({ name: "revoke a session or token", kind: "command", to: "/access?tab=tokens", status: null });
  found.push({ name: "compare two moments", kind: "command", to: "/history?tab=compare", status: null });
  for (const one of ["light", "dark", "system"] as const) {
    found.push({ name: `theme ${one}`, kind: "command", to: "", status: null, run: () => (theme.value = one) });
  }
  return found;
});

function matches(target: Target, wanted: string): boolean {
  const words = `${target.name} ${target.kind}`.toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/)
    .every((word) => words.includes(word));
}

/** Goes to anything by its name. */
export function Palette({ views }: { views: readonly { path: string; name: string }[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (isPaletteOpen.value) dialog.current?.showModal();
  }, [isPaletteOpen.value]);
  if (!isPaletteOpen.value) return null;
  const pages: Target[] = views.map(({ path, name }) => ({ name, kind: "view", to: path, status: null }));
  pages.push({ name: "Settings", kind: "view", to: "/settings", status: null });
  const isCommand = text.value.startsWith(">");
  const all = isCommand ? commands.value : [...pages, ...targets.value];
  const found = all.filter((target) => matches(target, isCommand ? text.value.slice(1).trim() : text.value)).slice(0, 12);
  const at = Math.min(selected.value, Math.max(0, found.length - 1));
  const take = (target: Target | undefined) => {
    if (!target) return;
    dialog.current?.close();
    if (target.run) target.run();
    else visit(target.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) selected.value = (at + by + found.length) % Math.max(1, found.length);
    else if (event.key === "Enter") take(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      class="palette"
      ref={dialog}
      aria-label="Search"
      onClose={() => (isPaletteOpen.value = false)}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <input
        type="text"
        role="combobox"
        aria-label="Search or go to"
        aria-expanded="true"
        aria-controls="palette-found"
        aria-activedescendant={found.length > 0 ? `found-${at}` : undefined}
        placeholder="An object, a source, an agent, a commit; > for commands"
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          selected.value = 0;
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="palette-found" role="listbox" aria-label="Found">
        {found.map((target, number) => (
          <li
            id={`found-${number}`}
            key={target.to + target.name}
            role="option"
            aria-selected={number === at}
            onMouseMove={() => (selected.value = number)}
            onClick={() => take(target)}
          >
            {target.status ? <Shape status={target.status} /> : <i />}
            <span class="name">{target.name}</span>
            <span class="muted">{target.kind}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="muted palette-none">Nothing that is known here matches. `kasbah get --text {text.value}` searches all objects.</p>}
    </dialog>
  );
}
