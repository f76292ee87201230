import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Place } from "../api/place.ts";
import type { Environment } from "../api/types.ts";
import { at, compared, instant } from "../model/at.ts";
import { agentOf } from "../model/overview.ts";
import { followPlace, type Known } from "../model/place.ts";
import { around } from "../model/store.ts";
import { Later } from "../parts/later.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../parts/states.tsx";
import { Tabs, tabOf } from "../parts/tabs.tsx";
import { useLoading } from "../parts/use-seen.ts";
import { choose, chosen } from "../router.ts";
import "../style/place.css";
import { Drawer, drawerWidth } from "./drawer.tsx";
import { Head } from "./place/head.tsx";
import { Table } from "./place/table.tsx";
import { Tree } from "./place/tree.tsx";

const TABS = ["tree", "board", "table", "timeline", "network"] as const;
type Tab = (typeof TABS)[number];
const NAMED = TABS.map((one) => [one, one.charAt(0).toUpperCase() + one.slice(1)] as const);
type View = ComponentType<{ place: Place; known: Known }>;

/** Views that are loaded when they are opened. */
const LATER: Partial<Record<Tab, () => Promise<{ default: View }>>> = {
  board: () => import("./place/board.tsx"),
  timeline: () => import("./place/timeline.tsx"),
  network: () => import("./place/network.tsx"),
};

/** An environment, or a namespace of a cluster: its objects, and one of them in a drawer. */
export default function EnvironmentView({ matched }: { matched: string[] }) {
  const { value: rest, error, retryAt } = around.state.value;
  const [first = "", namespace] = matched;
  if (!rest && error) return <Trouble error={error} retryAt={retryAt} retry={() => void around.run()} />;
  if (!rest) return <Skeleton rows={10} label="Loading the environment" />;
  const all = rest.environments.nodes;
  if (namespace !== undefined) {
    const environment = all.find((one) => {
      const agent = agentOf(one);
      return agent?.id === first && agent?.kubernetesNamespace === namespace;
    });
    return <Objects agent={first} namespace={namespace} id={environment?.id ?? null} key={matched.join("/")} />;
  }
  const environment = all.find((one) => one.id === first);
  if (!environment) return <Empty title="There is no such environment, or you may not see it: a viewer of its project may." />;
  const agent = agentOf(environment);
  return <Objects agent={agent?.id ?? ""} namespace={agent?.kubernetesNamespace ?? ""} id={environment.id} key={environment.id} />;
}

function Objects({ agent, namespace, id }: { agent: string; namespace: string; id: string | null }) {
  const environment = around.state.value.value?.environments.nodes.find((one) => one.id === id) ?? null;
  const place: Place = { environment, agent, namespace };
  const when = instant.value;
  // A cluster that goes or comes back changes what is known of all its objects.
  const stale = around.state.value.value?.coverage.agents.find((one) => one.agent === agent)?.stale ?? null;
  const followed = useMemo(() => followPlace(place, when), [agent, namespace, id, when]);
  useEffect(followed.start, [followed]);
  useEffect(() => {
    if (followed.known.peek() && when === null) followed.retry();
  }, [stale === null]);
  // While another moment is loaded the one before it stays, paler.
  const before = useRef<Known | null>(null);
  before.current = followed.known.value ?? before.current;
  const known = before.current;
  const isLoading = followed.known.value === null;
  const { error, retryAt } = followed.state.value;
  useLoading(isLoading && !error);
  const uid = chosen.value.get("object");
  const tab = tabOf(NAMED, "view") as Tab;
  const open = uid ? known?.forest.get(uid) : undefined;
  return (
    <div class={uid ? "with-drawer" : "place-page"} style={uid && drawerWidth.value ? { "--drawer": `${drawerWidth.value}px` } : {}}>
      <section class={`listing place is-${tab}${isLoading && known ? " is-loading" : ""}`} aria-labelledby="place" aria-busy={isLoading}>
        <Head place={place} known={known} />
        {compared.value !== null && <Differs environment={environment} />}
        <Tabs of={NAMED} label="How its objects are shown" name="view" panel="place-view" class="place-tabs" />
        {error && <Trouble error={error} retryAt={retryAt} retry={followed.retry} />}
        {known && known.leftOut > 0 && <LeftOut known={known} place={place} />}
        <div class="place-view" id="place-view" role="tabpanel" aria-labelledby={`view-${tab}`}>
          {!known && !error && <Skeleton rows={12} label="Loading objects" />}
          {known?.forest.size === 0 && <NothingHere place={place} isEmpty={known.rollUp?.hidden == null} />}
          {known && known.forest.size > 0 && tab === "tree" && <Tree forest={known.forest} />}
          {known && known.forest.size > 0 && tab === "table" && <Table forest={known.forest} />}
          {known && (known.forest.size > 0 || tab === "timeline") && LATER[tab] && <Later load={LATER[tab]} shown={{ place, known }} waiting={<Skeleton rows={8} label="Loading the view" />} />}
        </div>
      </section>
      {uid && known && (open ? <Drawer of={open.line} forest={known.forest} place={place} key={`${uid} ${when}`} /> : <Gone />)}
    </div>
  );
}

const loadCompared = () => import("./history/compare.tsx").then(({ Compared }) => ({ default: Compared }));

/** What differs between the two moments of the time bar. */
function Differs({ environment }: { environment: Environment | null }) {
  const earlier = compared.value;
  if (earlier === null) return null;
  if (!environment) return <Notice>Only environments are compared; this is how the namespace {at.value === null ? "is" : "was"} at the later moment.</Notice>;
  const shown = { id: environment.id, from: new Date(earlier).toISOString(), to: instant.value };
  return (
    <section class="compared" aria-label="What differs between the two moments">
      <Later load={loadCompared} shown={shown} waiting={<Skeleton rows={4} label="Comparing" />} />
    </section>
  );
}

/** Why no object is shown, and what brings some. */
function NothingHere({ place: { environment }, isEmpty }: { place: Place; isEmpty: boolean }) {
  if (at.value !== null) return <Empty title="Nothing was here at that moment, or nothing that you may see." />;
  if (!environment?.lastDeployment) {
    const command = environment ? `kasbah deployment start --env ${environment.name} --project ${environment.projectPath} --agent AGENT --namespace NAMESPACE` : "kasbah coverage";
    return (
      <Empty title={environment ? "Nothing was deployed into it yet. A source that names it deploys by itself; a CI job records its own:" : "There are no objects here that you may see. What agents see:"}>
        <Command text={command} />
      </Empty>
    );
  }
  return (
    <Empty title={isEmpty ? "No object belongs to it. Its rule says which do:" : "Its objects are where you may see none."}>
      <Command text={`kasbah env show ${environment.name} --project ${environment.projectPath}`} />
    </Empty>
  );
}

function LeftOut({ known, place }: { known: Known; place: Place }) {
  const command = place.environment ? `kasbah env tree ${place.environment.name} --project ${place.environment.projectPath}` : `kasbah get all -n ${place.namespace}`;
  return (
    <Notice>
      {place.environment ? `${known.leftOut.toLocaleString("en")} further objects are not shown here` : "There are more objects than are shown here"}: <code>{command}</code>
    </Notice>
  );
}

function Gone() {
  return (
    <aside class="drawer" aria-label="Object">
      <Empty title={at.value === null ? "This object is not there any more." : "This object was not there at that moment."}>
        <button type="button" onClick={() => choose("object", null)}>
          Close
        </button>
      </Empty>
    </aside>
  );
}
