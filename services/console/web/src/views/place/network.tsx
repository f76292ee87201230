// Who sends traffic to whom: a drawing, and the same as a table.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { listen } from "../../api/feed.ts";
import { ask } from "../../api/graphql.ts";
import { filterOfPlace, NETWORK, type Network, type NetworkAnswer, type NetworkNode } from "../../api/network.ts";
import type { Place } from "../../api/place.ts";
import { instant } from "../../model/at.ts";
import { atMostEvery } from "../../model/loaded.ts";
import { type Drawing, layout, meshInFull, meshInWords, neighboursOf, next, type Placed, ROLES, statusOf, WIDTH, wordsOf } from "../../model/network.ts";
import { count } from "../../model/news.ts";
import { placePath } from "../../model/paths.ts";
import type { Known } from "../../model/place.ts";
import { WORDS } from "../../model/status.ts";
import { Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { PlainTable } from "../../parts/table.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import { choose, chosen, withChosen } from "../../router.ts";
import "../../style/network.css";

const PADDING = 12;
/** How often it is asked for again while the place changes. */
const AGAIN = 3000;

/** Who sends traffic to whom in an environment or a namespace. */
export default function NetworkView({ place, known }: { place: Place; known: Known }) {
  const at = instant.value;
  const loaded = useLoaded(async (stop) => (await ask<NetworkAnswer>(NETWORK, { filter: filterOfPlace(place), at }, stop)).network, [place.environment?.id, place.agent, place.namespace, at]);
  useEffect(() => {
    if (at !== null) return;
    const again = atMostEvery(AGAIN, loaded.run);
    return listen((changes) => changes.some(({ uid, agent, namespace }) => known.forest.has(uid) || (agent === place.agent && namespace === place.namespace)) && again());
  }, [loaded, known.forest]);
  const { value, error, retryAt } = loaded.state.value;
  if (!value && error) return <Trouble error={error} retryAt={retryAt} retry={() => void loaded.run()} />;
  if (!value) return <Skeleton rows={8} label="Loading the network" />;
  if (value.nodes.length === 0) return <Empty title="Nothing here receives or sends traffic, as far as you may see: no Service, no route, no workload." />;
  const asTable = chosen.value.get("as") === "table";
  return (
    <div class="network">
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void loaded.run()} />}
      <div class="filters">
        <button type="button" class="chip filter" aria-pressed={!asTable} onClick={() => choose("as", null, true)}>
          Drawing
        </button>
        <button type="button" class="chip filter" aria-pressed={asTable} onClick={() => choose("as", "table", true)}>
          Table
        </button>
        <span class="muted">
          {count(value.nodes.length, "object")}, {count(value.edges.length, "connection")}
        </span>
      </div>
      {(value.leftOut > 0 || value.edgesLeftOut > 0) && (
        <Notice>
          Only the first {count(value.nodes.length, "object")} are shown: {count(value.leftOut, "further object")} and {count(value.edgesLeftOut, "connection")} are left out. A namespace of it shows less at once.
        </Notice>
      )}
      {asTable ? <Connections of={value} place={place} known={known} /> : <Picture of={value} place={place} known={known} />}
    </div>
  );
}

/** Where an object is opened: here, or where it belongs to. */
function addressOf({ resource, agent, namespace }: NetworkNode, known: Known): string | null {
  if (!resource) return null;
  if (!known.forest.has(resource.uid)) return `${placePath(agent, namespace)}?object=${encodeURIComponent(resource.uid)}`;
  return withChosen("object", resource.uid);
}

function noteOf(node: NetworkNode, place: Place): string {
  const parts = [node.kind];
  if (node.namespace && node.namespace !== place.namespace) parts.push(`in ${node.namespace}`);
  if (node.pods !== null) parts.push(count(node.pods, "pod"));
  if (!node.resource) parts.push(node.missing ? "is not there" : "is not seen");
  return parts.join(", ");
}

function Picture({ of, place, known }: { of: Network; place: Place; known: Known }) {
  const drawing = useMemo(() => layout(of), [of]);
  const neighbours = useMemo(() => neighboursOf(of), [of]);
  const pointed = useSignal<number | null>(null);
  const focused = useSignal(0);
  const sheet = useRef<HTMLDivElement>(null);
  const opened = of.nodes.findIndex(({ resource }) => resource?.uid === chosen.value.get("object"));
  const lit = pointed.value ?? (opened >= 0 ? opened : null);
  const isLit = (number: number) => lit === null || number === lit || (neighbours[lit]?.includes(number) ?? false);
  const tabbed = focused.value < of.nodes.length ? focused.value : 0;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    focused.value = next(drawing, tabbed, event.key);
    sheet.current?.querySelector<HTMLElement>(`[data-number="${focused.value}"]`)?.focus();
  };
  return (
    <div class="network-frame">
      <div
        class="network-sheet"
        ref={sheet}
        role="group"
        aria-label="Who sends traffic to whom; the table beside says the same"
        style={{ width: `${drawing.width + 2 * PADDING}px`, height: `${drawing.height + 2 * PADDING}px` }}
        onKeyDown={onKeyDown}
      >
        <div class="network-layer" style={{ left: `${PADDING}px`, top: `${PADDING}px` }}>
          {drawing.columns.map(({ role, x }) => (
            <span class="network-head muted" key={role} style={{ left: `${x}px` }}>
              {ROLES[role]}
            </span>
          ))}
          <Lines of={drawing} lit={lit} />
          {drawing.placed.map((one) => (
            <Item
              one={one}
              height={drawing.nodeHeight}
              key={`${one.node.agent} ${one.node.kind} ${one.node.group} ${one.node.namespace} ${one.node.name}`}
              address={addressOf(one.node, known)}
              note={noteOf(one.node, place)}
              state={`${one.number === opened ? " is-selected" : ""}${isLit(one.number) ? "" : " is-dim"}`}
              isTabbed={one.number === tabbed}
              point={(number) => (pointed.value = number)}
              focus={() => (focused.value = one.number)}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

/** Lines in the direction of the traffic; dashed from a policy to what it is for. */
function Lines({ of: { placed, edges, nodeHeight, width, height }, lit }: { of: Drawing; lit: number | null }) {
  const drawn = { traffic: "", policy: "", "traffic is-lit": "", "policy is-lit": "" };
  for (const { from, to, relation } of edges) {
    const [one, other] = [placed[from], placed[to]];
    if (!one || !other) continue;
    const [left, right] = one.x <= other.x ? [one, other] : [other, one];
    const [x, end] = [left.x + WIDTH, right.x];
    const bend = Math.max(24, (end - x) / 2);
    const [high, low] = [left.y + nodeHeight / 2, right.y + nodeHeight / 2];
    const line = `M${x} ${high}C${x + bend} ${high} ${end - bend} ${low} ${end} ${low}`;
    const kind = relation === "protects" ? "policy" : "traffic";
    drawn[lit === from || lit === to ? (`${kind} is-lit` as const) : kind] += line;
  }
  return (
    <svg class={`network-lines${lit === null ? "" : " has-lit"}`} width={width} height={height} aria-hidden="true">
      {Object.entries(drawn).map(([kind, line]) => (
        <path class={kind} d={line} key={kind} />
      ))}
    </svg>
  );
}

interface ItemProps {
  one: Placed;
  height: number;
  address: string | null;
  note: string;
  state: string;
  isTabbed: boolean;
  point: (number: number | null) => void;
  focus: () => void;
}

function Item({ one: { node, number, x, y }, height, address, note, state, isTabbed, point, focus }: ItemProps) {
  const status = statusOf(node);
  const mesh = meshInWords(node);
  const shared = {
    class: `node network-node${node.beside ? " is-beside" : ""}${state}`,
    "data-number": number,
    style: { left: `${x}px`, top: `${y}px`, height: `${height}px` },
    tabIndex: isTabbed ? 0 : -1,
    title: [node.resource?.health.message || note, meshInFull(node)].filter(Boolean).join("\n"),
    onFocus: () => {
      focus();
      point(number);
    },
    onBlur: () => point(null),
    onPointerEnter: () => point(number),
    onPointerLeave: () => point(null),
  };
  const inside = (
    <>
      <Shape status={status} stale={Boolean(node.resource?.stale)} />
      <span class="node-name">{node.name}</span>
      <span class="node-kind">{note}</span>
      {mesh && (
        <span class="node-kind">
          <span class="unseen">, </span>
          <span class={`mtls is-${node.mesh?.mtls}`}>{mesh}</span>
        </span>
      )}
      <span class="unseen">, {WORDS[status]}</span>
    </>
  );
  return address ? (
    <a {...shared} href={address}>
      {inside}
    </a>
  ) : (
    <div {...shared} role="note">
      {inside}
    </div>
  );
}

/** The same in rows. */
function Connections({ of, place, known }: { of: Network; place: Place; known: Known }) {
  const neighbours = neighboursOf(of);
  const alone = of.nodes.filter((_, number) => neighbours[number]?.length === 0);
  const cell = (node: NetworkNode | undefined) => node && <Named node={node} address={addressOf(node, known)} note={noteOf(node, place)} />;
  return (
    <PlainTable label="Who sends traffic to whom" columns={["From", "How", "To"]} wide="Encryption">
      {of.edges.map(({ from, to, relation }) => {
        const target = of.nodes[to];
        return (
          <tr key={`${from} ${to} ${relation}`}>
            <td>{cell(of.nodes[from])}</td>
            <td class="muted">{wordsOf(relation)}</td>
            <td>{cell(target)}</td>
            <td class="wide">{target && meshInFull(target)}</td>
          </tr>
        );
      })}
      {alone.map((node) => (
        <tr key={`${node.agent} ${node.kind} ${node.namespace} ${node.name}`}>
          <td>{cell(node)}</td>
          <td class="muted">no connection</td>
          <td />
          <td class="wide">{meshInFull(node)}</td>
        </tr>
      ))}
    </PlainTable>
  );
}

function Named({ node, address, note }: { node: NetworkNode; address: string | null; note: string }) {
  const status = statusOf(node);
  return (
    <span class="network-named">
      <Shape status={status} stale={Boolean(node.resource?.stale)} />
      <span class="unseen">{WORDS[status]} </span>
      {address ? <a href={address}>{node.name}</a> : <code>{node.name}</code>} <span class="muted">{note}</span>
    </span>
  );
}
