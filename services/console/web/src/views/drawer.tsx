import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { listen } from "../api/feed.ts";
import { askInParts, QueryError } from "../api/graphql.ts";
import { OBJECT, type ObjectAnswer } from "../api/object.ts";
import { filterOf, type Line, type Place } from "../api/place.ts";
import { instant } from "../model/at.ts";
import { atMostEvery, loader } from "../model/loaded.ts";
import { ofHealth } from "../model/status.ts";
import type { Forest } from "../model/tree.ts";
import { Later } from "../parts/later.tsx";
import { Skeleton, Trouble } from "../parts/states.tsx";
import { Status } from "../parts/status.tsx";
import { Tabs, tabOf } from "../parts/tabs.tsx";
import { choose, chosen, withChosen } from "../router.ts";
import "../style/object.css";
import { Summary } from "./object/summary.tsx";

const [NARROWEST, WIDEST] = [320, 960];
/** How wide somebody made it. */
export const drawerWidth = signal<number | null>(null);

/** What a tab is given. */
export interface Shown {
  of: Line;
  answer: ObjectAnswer;
  forest: Forest;
  place: Place;
}

type Tab = "summary" | "yaml" | "diff" | "events" | "logs" | "shell" | "relations" | "history";
const NAMES: Record<Tab, string> = {
  summary: "Summary",
  yaml: "YAML",
  diff: "Diff",
  events: "Events",
  logs: "Logs",
  shell: "Shell",
  relations: "Relations",
  history: "History",
};

/** What is loaded when it is opened. */
const LATER: Partial<Record<Tab, () => Promise<{ default: ComponentType<Shown> }>>> = {
  yaml: () => import("./object/yaml.tsx"),
  diff: () => import("./object/diff.tsx"),
  events: () => import("./object/events.tsx"),
  logs: () => import("./object/logs.tsx"),
  shell: () => import("./object/shell.tsx"),
  relations: () => import("./object/relations.tsx"),
  history: () => import("./object/history.tsx"),
};

const loadActions = () => import("./object/actions.tsx");
/** Kinds that have containers, or something below them that has: logs, and shells. */
const LOGGED = ["Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "Job", "CronJob"];

/** Kinds that something can be done with beyond what the server offers by itself. */
const ACTED = ["Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout"];

const tabsOf = (kind: string): Tab[] => (Object.keys(NAMES) as Tab[]).filter((tab) => (tab !== "logs" && tab !== "shell") || LOGGED.includes(kind));

/** One object, beside the view in which it was chosen. */
export function Drawer({ of, forest, place }: { of: Line; forest: Forest; place: Place }) {
  const { kind, name, uid } = of;
  const object = useMemo(
    () =>
      loader(async (stop) => {
        const { data, failure } = await askInParts<ObjectAnswer>(OBJECT, { filter: filterOf(of), at: instant.peek() }, stop);
        if (failure && !data.resource) throw failure;
        if (!data.resource) throw new QueryError("there is no such object", "not-found");
        return data as ObjectAnswer;
      }),
    [uid],
  );
  const tabs = tabsOf(kind);
  useEffect(() => {
    const again = atMostEvery(1000, object.run);
    void object.run();
    const hear = listen((changes) => instant.peek() === null && changes.some((change) => change.uid === uid) && again());
    const onKey = (event: KeyboardEvent) => {
      if ((event.target as Element).closest("input, select, textarea") || document.querySelector("dialog[open]")) return;
      if (event.key === "Escape") {
        // Further listeners see that nothing is left to close with this press.
        event.preventDefault();
        choose("object", null);
      }
      const by = { "[": -1, "]": 1 }[event.key];
      const direct = ({ y: "yaml", d: "diff", l: "logs" } as Record<string, Tab>)[event.key];
      if (by) select(tabs[(tabs.indexOf((chosen.peek().get("tab") ?? "summary") as Tab) + by + tabs.length) % tabs.length]);
      else if (direct && tabs.includes(direct) && !event.ctrlKey && !event.metaKey && !event.altKey) select(direct);
    };
    document.addEventListener("keydown", onKey);
    return () => {
      hear();
      object.stop();
      document.removeEventListener("keydown", onKey);
    };
  }, [object]);
  const { value, error, retryAt } = object.state.value;
  const named = tabs.map((one) => [one, NAMES[one]] as const);
  const tab = tabOf(named) as Tab;
  const now = value?.resource?.resource ?? of;
  const shown = value && { of: now, answer: value, forest, place };
  return (
    <aside class="drawer" aria-label={`${kind} ${name}`}>
      <Edge />
      <header>
        <div>
          <Crumbs of={of} forest={forest} />
          <h2>{name}</h2>
          <Status status={ofHealth(now.health.state)} stale={now.stale !== null} />
        </div>
        <button type="button" class="quiet" onClick={() => choose("object", null)} aria-label="Close the object">
          Close
        </button>
      </header>
      <Tabs of={named} label="What is shown of it" class="" />
      <div class="tab" id="tab" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {error && <Trouble error={error} retryAt={retryAt} retry={() => void object.run()} />}
        {!value && !error && <Skeleton rows={5} label="Loading the object" />}
        {shown && tab === "summary" && <Summary {...shown} />}
        {shown && LATER[tab] && <Later load={LATER[tab]} shown={shown} waiting={<Skeleton rows={5} label="Loading what is shown of it" />} />}
      </div>
      {shown && (ACTED.includes(kind) || (shown.answer.resource?.actions.length ?? 0) > 0) && <Later load={loadActions} shown={shown} waiting={null} />}
    </aside>
  );
}

/** Its left edge, by which it is made wider: with the pointer, or with the arrows. */
function Edge() {
  const edge = useRef<HTMLDivElement>(null);
  const resize = (width: number) => (drawerWidth.value = Math.round(Math.min(WIDEST, innerWidth * 0.7, Math.max(NARROWEST, width))));
  const now = () => edge.current?.parentElement?.clientWidth ?? NARROWEST;
  return (
    <div
      class="drawer-edge"
      ref={edge}
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the object"
      aria-valuemin={NARROWEST}
      aria-valuemax={WIDEST}
      aria-valuenow={drawerWidth.value ?? 480}
      tabIndex={0}
      onPointerDown={(event) => edge.current?.setPointerCapture(event.pointerId)}
      onPointerMove={(event) => edge.current?.hasPointerCapture(event.pointerId) && resize(innerWidth - event.clientX)}
      onKeyDown={(event) => {
        const by = { ArrowLeft: 40, ArrowRight: -40 }[event.key];
        if (!by) return;
        event.preventDefault();
        event.stopPropagation();
        resize(now() + by);
      }}
    />
  );
}

function select(tab: Tab | undefined): void {
  choose("tab", !tab || tab === "summary" ? null : tab, true);
}

const CRUMBS = 6;

/** What is above an object, the uppermost first. */
function Crumbs({ of, forest }: { of: Line; forest: Forest }) {
  const above: Line[] = [];
  let at = forest.get(of.uid)?.parent;
  while (at && above.length < CRUMBS) {
    const node = forest.get(at);
    if (!node) break;
    above.unshift(node.line);
    at = node.parent;
  }
  return (
    <p class="muted crumbs">
      {above.map((line) => (
        <span key={line.uid}>
          <a href={withChosen("object", line.uid)} title={line.name}>
            {line.kind}
          </a>
          {" / "}
        </span>
      ))}
      {of.kind}
      {of.namespace && ` in ${of.namespace}`}
    </p>
  );
}
