import { useState } from "preact/hooks";
import { read } from "../../api/commands.ts";
import { askInParts } from "../../api/graphql.ts";
import type { Change } from "../../api/types.ts";
import { after, flat, folded, type Node, type Row, rows, stepOf, tree, type Workload, withPods, workloads } from "../../model/chain.ts";
import { actorOf, type LogEvent, named, TONES } from "../../model/log.ts";
import { names } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { absolute } from "../../model/time.ts";
import { yaml } from "../../model/yaml.ts";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { Waterfall } from "./waterfall.tsx";

const EVERY = 3000;
/** After this nothing new is expected of a chain that long ago began. */
const RECENT = 600_000;
/** Rows that are drawn. */
const ROWS = 400;
/** Namespaces whose pods are looked for. */
const PLACES = 4;

interface Trace {
  correlationid: string;
  begun?: string;
  more: boolean;
  events: LogEvent[];
}

interface Chain {
  trace: Trace;
  nodes: Node[];
  begun: number;
}

/** From the pods of the places in which workloads were applied. */
async function podsOf(all: Workload[], begun: number, stop: AbortSignal): Promise<Change[]> {
  const places = [...new Map(all.map((one) => [`${one.agent} ${one.namespace}`, one])).values()].slice(0, PLACES);
  if (places.length === 0) return [];
  const text = JSON.stringify;
  const from = new Date(begun - 5000).toISOString();
  const to = new Date(begun + RECENT).toISOString();
  const parts = places.map(
    ({ agent, namespace }, place) => `p${place}: changes(from: ${text(from)}, to: ${text(to)}, first: 300, filter: { agent: ${text(agent)}, kind: "Pod",
      namespace: ${text(namespace)} }) { nodes { agent agentName group kind namespace name uid recordedAt seenAt notBefore what fields fieldCount health healthBefore owned writer { manager subresource } } }`,
  );
  const { data } = await askInParts<Record<string, { nodes: Change[] } | null>>(`query Pods { ${parts.join("\n")} }`, {}, stop);
  return Object.values(data).flatMap((part) => part?.nodes ?? []);
}

async function chainOf(id: string, stop: AbortSignal): Promise<Chain> {
  const trace = await read<Trace>(`/log/traces/${encodeURIComponent(id)}`, stop);
  const first = Math.min(...trace.events.map((event) => Date.parse(event.time)));
  const begun = trace.begun ? Date.parse(trace.begun) : first;
  const grown = tree(trace.events, begun);
  // A reader of the log may have no access to the cluster: then the tree ends where Kasbah's own events do.
  const pods = await podsOf(workloads(grown), begun, stop).catch(() => []);
  return { trace, nodes: withPods(grown, pods), begun };
}

/** Everything that followed from one cause, from the push to the pods, with how long each step took. */
export function ChainView({ id }: { id: string }) {
  const chain = usePolled((stop) => chainOf(id, stop), [id], { every: EVERY, wants: (known) => Date.now() - (known?.begun ?? Date.now()) < RECENT });
  const { value, error, retryAt } = chain.state.value;
  return (
    <section class="listing" aria-labelledby="chain">
      <header class="place-head">
        <div class="section-head">
          <h1 id="chain">What followed</h1>
          <a href="/history">The whole log</a>
        </div>
        {value && <Summary of={value} />}
      </header>
      {error &&
        (error.kind === "denied" || error.kind === "not-found" ? (
          <Empty title={`This cannot be shown: ${error.message}. It needs a role that may read the log; an owner of the organization gives one.`} />
        ) : (
          <Trouble error={error} retryAt={retryAt} retry={() => void chain.run()} />
        ))}
      {!value && !error && <Skeleton rows={10} label="Loading what followed" />}
      {value && <Shown of={value} />}
      <Command text={`kasbah log trace ${id}`} />
    </section>
  );
}

function Summary({ of }: { of: Chain }) {
  const { trace, begun } = of;
  const last = Math.max(...flat(of.nodes).map((node) => node.at));
  const commit = trace.events.map((event) => event.data?.commit).find((one) => typeof one === "string");
  const who = trace.events.find((event) => event.actor && !actorOf(event).startsWith("service"));
  const bad = flat(of.nodes).filter((node) => node.tone === "bad").length;
  return (
    <p class="muted facts">
      {commit && (
        <span>
          commit <code>{commit.slice(0, 8)}</code>
        </span>
      )}
      {who && <span>by {named(actorOf(who), names.value).replace(/^user:/, "")}</span>}
      <span title={absolute(begun)}>begun {absolute(begun).split(" · ")[0]}</span>
      <span>{count(trace.events.length, "event")}</span>
      <span>{after(last - begun).slice(1)} from first to last</span>
      {bad > 0 && <span class="word is-degraded">{bad} went wrong</span>}
    </p>
  );
}

function Shown({ of }: { of: Chain }) {
  const [opened, open] = useState<ReadonlySet<string>>(new Set());
  const [chosenKey, choose] = useState<string | null>(null);
  const all = rows(folded(of.nodes, opened));
  const shown = all.slice(0, ROWS);
  const select = (node: Node) => {
    if (node.times > 1) open(new Set([...opened, node.key]));
    else choose(chosenKey === node.key ? null : node.key);
  };
  const selected = shown.find((row) => row.node.key === chosenKey)?.node;
  return (
    <>
      <div class="chain-picture">
        <ol class="chain-rows" aria-label="What followed, each below its cause, with the time since it">
          {shown.map((row) => (
            <ChainRow row={row} key={row.node.key} select={select} isSelected={row.node.key === chosenKey} />
          ))}
        </ol>
        <Waterfall rows={shown} begun={of.begun} />
      </div>
      {all.length > shown.length && <Notice>{count(all.length - shown.length, "more event")} not drawn.</Notice>}
      {of.trace.more && <Notice>Later events of this chain are left out.</Notice>}
      {selected?.event && (
        <section class="chain-event" aria-label="The chosen event">
          <p class="muted">
            {named(selected.event.subject, names.value)} · {absolute(selected.at)}
          </p>
          <pre class="yaml">{yaml(selected.event.data)}</pre>
        </section>
      )}
    </>
  );
}

/** What a step says, and of which source it is where that is not clear from its place. */
function textOf(node: Node): string {
  const isOfSource = node.event?.subject.startsWith("source/") && node.what !== "sync.started";
  const of = isOfSource ? named(node.event?.subject ?? "", names.value).replace("source/", "") : "";
  return [of, named(node.text, names.value)].filter(Boolean).join(": ");
}

function ChainRow({ row, select, isSelected }: { row: Row; select: (node: Node) => void; isSelected: boolean }) {
  const { node, depth } = row;
  return (
    <li>
      <button type="button" class={`chain-row is-${node.tone}`} data-row data-depth={Math.min(depth, 9)} aria-pressed={isSelected} onClick={() => select(node)} title={node.text}>
        <span class="chain-tone">
          <Shape status={TONES[node.tone]} />
        </span>
        <b class="chain-what">{stepOf(node.what)}</b>
        <span class="chain-text">
          {node.times > 1 && <span class="tier">× {node.times}</span>} {node.text && textOf(node)}
        </span>
        <span class="chain-after muted">{after(node.at - node.from)}</span>
      </button>
    </li>
  );
}
