import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Line } from "../../api/place.ts";
import { count } from "../../model/news.ts";
import { compare, isBad, ofHealth, type Status as Kind, WORDS } from "../../model/status.ts";
import type { Forest } from "../../model/tree.ts";
import { useCalmOrder } from "../../parts/calm.ts";
import { Empty } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { choose, chosen, withChosen } from "../../router.ts";

const ROW = 29;
/** Rows that are drawn beyond what can be seen. */
const SPARE = 20;

function matches(line: Line, text: string): boolean {
  const words = `${line.kind} ${line.name} ${line.health.message}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => words.includes(word));
}

const byName = (one: string, other: string) => (one === other ? 0 : one.localeCompare(other));
const byWorst = (one: Line, other: Line) =>
  compare(ofHealth(one.health.state), ofHealth(other.health.state)) || byName(one.kind, other.kind) || byName(one.name, other.name);

interface Listed {
  all: number;
  objects: number;
  counts: Map<Kind, number>;
  /** All are as they were known last. */
  isStale: boolean;
  found: Line[];
}

/** What matches, the worst first. `before` is the list before: what is nearly in order is sorted at once. */
function listed(forest: Forest, text: string, health: string | null, before: Line[]): Listed {
  const known = before.map(({ uid }) => forest.get(uid)).filter((node) => node !== undefined);
  const all = [...new Set([...known, ...forest.values()])].map(({ line }) => line);
  // Events are about other objects: they are listed only where the filter asks for them.
  const isAsked = /\bevents?\b/i.test(text);
  const objects = isAsked ? all : all.filter((line) => line.kind !== "Event");
  const counts = new Map<Kind, number>();
  for (const line of objects) {
    const status = ofHealth(line.health.state);
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  const found = objects.filter((line) => (!health || ofHealth(line.health.state) === health) && (!text || matches(line, text))).sort(byWorst);
  return { all: all.length, objects: objects.length, counts, isStale: objects.every(({ stale }) => stale !== null), found };
}

/** All objects of a place, the worst first. */
export function Table({ forest }: { forest: Forest }) {
  const text = chosen.value.get("q") ?? "";
  const health = chosen.value.get("health");
  const before = useRef<Line[]>([]);
  const { all, objects, counts, isStale, found } = useMemo(() => listed(forest, text, health, before.current), [forest, text, health]);
  before.current = found;
  const { shown, moved, reorder, hands } = useCalmOrder(found, (line) => line.uid);
  return (
    <>
      <div class="filters">
        <input
          type="search"
          aria-label="Filter by kind, name or reason"
          placeholder="Filter by kind, name or reason"
          value={text}
          onInput={(event) => choose("q", event.currentTarget.value || null, true)}
        />
        {[...counts]
          .sort(([one], [other]) => compare(one, other))
          .map(([status, number]) => (
            <button
              type="button"
              key={status}
              class="chip filter"
              aria-pressed={health === status}
              onClick={() => choose("health", health === status ? null : status, true)}
            >
              <Status status={status} stale={isStale} word={`${number} ${status === "none" ? "without health" : WORDS[status].toLowerCase()}`} />
            </button>
          ))}
        {moved > 0 && (
          <button type="button" class="chip" onClick={reorder}>
            {count(moved, "change")}, reorder
          </button>
        )}
      </div>
      {found.length === 0 ? <Empty title={all === 0 ? "There are no objects here that you may see." : "No object matches."} /> : <Rows lines={shown} hands={hands} />}
      {objects < all && <p class="muted pad">{count(all - objects, "Event is", "Events are")} not listed: filter by “event”.</p>}
    </>
  );
}

/** What of the list is near the window is in the document. */
function Rows({ lines, hands }: { lines: Line[]; hands: object }) {
  const frame = useRef<HTMLDivElement>(null);
  const [[from, until], show] = useState([0, 80]);
  useEffect(() => {
    const scroller = frame.current?.closest<HTMLElement>(".listing, .view") ?? document.documentElement;
    const outer = document.getElementById("view") ?? scroller;
    const look = () => {
      const top = frame.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / ROW) - SPARE);
      const last = Math.ceil((innerHeight - top) / ROW) + SPARE;
      show((known) => (known[0] === first && known[1] === last ? known : [first, last]));
    };
    look();
    for (const one of [scroller, outer, window]) one.addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      for (const one of [scroller, outer, window]) one.removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, []);
  const last = Math.min(lines.length, until);
  const first = Math.min(from, Math.max(0, last - 1));
  return (
    <div class="table-frame" ref={frame} {...hands}>
      <table aria-rowcount={lines.length}>
        <thead>
          <tr>
            <th scope="col">Health</th>
            <th scope="col">Kind</th>
            <th scope="col">Name</th>
            <th scope="col" class="wide">
              Reason
            </th>
            <th scope="col">Changed</th>
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Spacer rows={first} key="before" />}
          {lines.slice(first, last).map((line) => (
            <Row line={line} key={line.uid} />
          ))}
          {last < lines.length && <Spacer rows={lines.length - last} key="after" />}
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ rows }: { rows: number }) {
  return (
    <tr class="spacer" aria-hidden="true" style={{ height: `${rows * ROW}px` }}>
      <td colSpan={5} />
    </tr>
  );
}

function Row({ line }: { line: Line }) {
  const status = ofHealth(line.health.state);
  const isOpen = chosen.value.get("object") === line.uid;
  const open = () => choose("object", line.uid);
  return (
    <tr class={isOpen ? "is-selected" : ""} onClick={(event) => (event.target as Element).closest("a") || open()}>
      <td>
        <Status status={status} stale={line.stale !== null} />
      </td>
      <td class="muted">{line.kind}</td>
      <td class="name">
        <a href={withChosen("object", line.uid)} data-row aria-current={isOpen || undefined}>
          {line.name}
        </a>
      </td>
      <td class="wide" title={line.health.message}>
        {isBad(status) || status === "suspended" ? line.health.message : ""}
        {line.health.terminating && <span class="muted"> being deleted</span>}
      </td>
      <td class="muted">
        <Ago at={Date.parse(line.changedAt)} />
      </td>
    </tr>
  );
}
