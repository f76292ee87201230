// The tree: what is within the window is in the document, and nothing else.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Line } from "../../api/place.ts";
import { count } from "../../model/news.ts";
import { WORDS } from "../../model/status.ts";
import { type Drawn, type Forest, HEIGHT, type Layout, layout, next, WIDTH } from "../../model/tree.ts";
import { Empty } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { choose, chosen } from "../../router.ts";

/** So much around the window is drawn as well, so that scrolling shows no holes. */
const MARGIN = 300;
const ZOOMS = [0.4, 0.55, 0.75, 1, 1.25];
const PADDING = 12;

interface Window {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** A value of a set, put in or taken out. */
function toggled(set: ReadonlySet<string>, value: string): Set<string> {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

/** Objects from left to right, each beside what it has caused. */
export function Tree({ forest }: { forest: Forest }) {
  const open = useSignal<ReadonlySet<string>>(new Set());
  const shut = useSignal<ReadonlySet<string>>(new Set());
  const zoom = useSignal(1);
  const held = useSignal(false);
  const focus = useSignal<string | null>(null);
  const seen = useSignal<Window>({ left: 0, top: 0, right: 1600, bottom: 1200 });
  const order = useRef<ReadonlyMap<string, number>>(new Map());
  const frame = useRef<HTMLDivElement>(null);
  const before = useRef<Layout | null>(null);
  const drawing = useMemo(
    () => layout(forest, open.value, shut.value, held.value ? order.current : null, before.current),
    [forest, open.value, shut.value, held.value],
  );
  before.current = drawing;
  order.current = useMemo(() => new Map(drawing.drawn.map(({ key }, at) => [key, at])), [drawing]);

  const look = () => {
    const element = frame.current;
    if (!element) return;
    const [scale, { scrollLeft: left, scrollTop: top, clientWidth, clientHeight }] = [zoom.value, element];
    seen.value = {
      left: (left - MARGIN) / scale,
      top: (top - MARGIN) / scale,
      right: (left + clientWidth + MARGIN) / scale,
      bottom: (top + clientHeight + MARGIN) / scale,
    };
  };
  useEffect(look, [zoom.value, drawing]);
  useEffect(() => {
    const watch = new ResizeObserver(look);
    if (frame.current) watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  useWheel(frame, (by) => step(by));

  const step = (by: number) => {
    const at = ZOOMS.findIndex((one) => one >= zoom.value - 0.01);
    zoom.value = ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, at + by))] ?? 1;
  };
  const fit = () => {
    const element = frame.current;
    if (!element) return;
    const scale = Math.min(1, element.clientWidth / (drawing.width + 2 * PADDING), element.clientHeight / (drawing.height + 2 * PADDING));
    zoom.value = Math.max(0.2, scale);
    element.scrollTo(0, 0);
  };
  const toggle = (one: Drawn) => {
    if (one.fold) open.value = toggled(open.value, one.key);
    else if (one.children > 0) shut.value = toggled(shut.value, one.key);
  };
  const goTo = (at: number) => {
    const one = drawing.drawn[at];
    const element = frame.current;
    if (!one || !element) return;
    focus.value = one.key;
    const scale = zoom.value;
    const [x, y] = [(one.x + PADDING) * scale, (one.y + PADDING) * scale];
    if (x < element.scrollLeft || x + WIDTH * scale > element.scrollLeft + element.clientWidth) element.scrollLeft = Math.max(0, x - 40);
    if (y < element.scrollTop || y + HEIGHT * scale > element.scrollTop + element.clientHeight) element.scrollTop = Math.max(0, y - element.clientHeight / 2);
    look();
    requestAnimationFrame(() => element.querySelector<HTMLElement>(`[data-key="${CSS.escape(one.key)}"]`)?.focus({ preventScroll: true }));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = drawing.drawn.findIndex(({ key }) => key === focus.value);
    const one = drawing.drawn[at];
    const isArrow = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key);
    if (isArrow && one && event.key === "ArrowRight" && (one.fold ? !one.fold.isOpen : shut.value.has(one.key))) toggle(one);
    else if (isArrow) goTo(at < 0 ? 0 : next(drawing, at, event.key));
    else if (event.key === " " && one) toggle(one);
    else if (event.key === "Enter" && one?.fold) toggle(one);
    else if (event.key === "f") fit();
    else if (event.key === "+" || event.key === "-") step(event.key === "+" ? 1 : -1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  if (forest.size === 0) return <Empty title="There are no objects here that you may see." />;
  const search = chosen.value.toString();
  const tabbed = order.current.has(focus.value ?? "") ? focus.value : drawing.drawn[0]?.key;
  return (
    <div class="tree-frame">
      <div class="tree-tools">
        <button type="button" onClick={() => step(-1)} aria-label="Smaller" title="Smaller (-)">
          −
        </button>
        <button type="button" onClick={() => step(1)} aria-label="Larger" title="Larger (+)">
          +
        </button>
        <button type="button" onClick={fit} title="Fit all of it (f)">
          Fit
        </button>
      </div>
      <div
        class="tree"
        ref={frame}
        role="tree"
        aria-label="Objects, each beside what it has caused"
        onScroll={look}
        onKeyDown={onKeyDown}
        onFocusCapture={(event) => (focus.value = (event.target as HTMLElement).dataset.key ?? focus.value)}
        onPointerEnter={() => (held.value = true)}
        onPointerLeave={() => (held.value = false)}
      >
        <div class="tree-sheet" role="presentation" style={{ width: `${(drawing.width + 2 * PADDING) * zoom.value}px`, height: `${(drawing.height + 2 * PADDING) * zoom.value}px` }}>
          <div class="tree-layer" role="presentation" style={{ transform: `scale(${zoom.value}) translate(${PADDING}px, ${PADDING}px)` }}>
            <Edges of={drawing} within={seen.value} />
            {drawing.drawn
              .filter(({ x, y }) => isWithin(x, y, seen.value))
              .map((one) => (
                <Item one={one} key={one.key} isTabbed={one.key === tabbed} isShut={shut.value.has(one.key)} search={search} toggle={() => toggle(one)} />
              ))}
          </div>
        </div>
      </div>
    </div>
  );
}

function isWithin(x: number, y: number, { left, top, right, bottom }: Window): boolean {
  return x < right && x + WIDTH > left && y < bottom && y + HEIGHT > top;
}

/** Zooms by the wheel with Ctrl; without, the wheel scrolls. */
function useWheel(frame: { current: HTMLElement | null }, step: (by: number) => void) {
  useEffect(() => {
    const element = frame.current;
    const turn = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      step(event.deltaY < 0 ? 1 : -1);
    };
    element?.addEventListener("wheel", turn, { passive: false });
    return () => element?.removeEventListener("wheel", turn);
  }, []);
}

/** Lines from each object to what is below it: dashed where the upper one has not brought the lower one about. */
function Edges({ of: { drawn, width, height }, within }: { of: Layout; within: Window }) {
  const lines = { solid: "", dashed: "", guilty: "" };
  for (const { x, y, parent, relation, guilty } of drawn) {
    const above = parent === null ? null : drawn[parent];
    if (!above || y < within.top || above.y > within.bottom || x < within.left - 100 || above.x > within.right) continue;
    const from = above.x + WIDTH;
    const middle = (from + x) / 2;
    const line = `M${from} ${above.y + HEIGHT / 2}H${middle}V${y + HEIGHT / 2}H${x}`;
    lines[guilty ? "guilty" : relation === "controls" || relation === "owns" ? "solid" : "dashed"] += line;
  }
  return (
    <svg class="tree-edges" width={width} height={height} aria-hidden="true">
      <path class="solid" d={lines.solid} />
      <path class="dashed" d={lines.dashed} />
      <path class="guilty" d={lines.guilty} />
    </svg>
  );
}

interface ItemProps {
  one: Drawn;
  isTabbed: boolean;
  isShut: boolean;
  search: string;
  toggle: () => void;
}

/** What is drawn is drawn anew only when it changed, as there are a hundred of them. */
function Item(props: ItemProps) {
  const { one, isTabbed, isShut, search } = props;
  const { line, x, y, depth, status, fold, children, guilty } = one;
  return useMemo(
    () => (fold ? <Fold {...props} fold={fold} /> : line && <Single {...props} line={line} />),
    [line, x, y, depth, status, fold?.count, fold?.isOpen, fold?.isStale, children, guilty, isTabbed, isShut, search],
  );
}

const sharedOf = (one: Drawn, isTabbed: boolean) => ({
  "data-key": one.key,
  role: "treeitem" as const,
  "aria-level": one.depth + 1,
  tabIndex: isTabbed ? 0 : -1,
  style: { left: `${one.x}px`, top: `${one.y}px` },
});

function Fold({ one, isTabbed, toggle, fold: { kind, count: number, isOpen, isStale } }: ItemProps & { fold: NonNullable<Drawn["fold"]> }) {
  return (
    <div {...sharedOf(one, isTabbed)} class="node is-fold" aria-expanded={isOpen} aria-selected={false} onClick={toggle}>
      <Shape status={one.status} stale={isStale} />
      <span class="node-name">
        {number} × {kind}
      </span>
      <span class="node-kind">
        {one.status === "none" ? "" : `${WORDS[one.status].toLowerCase()}, `}
        {isOpen ? "close" : "open"}
      </span>
    </div>
  );
}

function Single({ one, isTabbed, isShut, search, toggle, line }: ItemProps & { line: Line }) {
  const params = new URLSearchParams(search);
  const isOpen = params.get("object") === line.uid;
  params.set("object", line.uid);
  const reason = line.health.message;
  return (
    <>
      <a
        {...sharedOf(one, isTabbed)}
        class={`node${isOpen ? " is-selected" : ""}${one.guilty ? " is-guilty" : ""}`}
        href={`?${params}`}
        aria-selected={isOpen}
        aria-expanded={one.children > 0 ? !isShut : undefined}
        title={reason || `${line.kind} ${line.name}`}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          event.stopPropagation();
          choose("object", line.uid);
        }}
      >
        <Shape status={one.status} stale={line.stale !== null} />
        <span class="node-name">{line.name}</span>
        <span class="node-kind">
          {line.kind}
          {line.health.terminating && ", being deleted"}
        </span>
        <span class="unseen">
          {WORDS[one.status]}
          {line.stale && ", stale"}
        </span>
      </a>
      {one.children > 0 && (
        <span class="node-toggle" aria-hidden="true" style={{ left: `${one.x + WIDTH - 9}px`, top: `${one.y + HEIGHT / 2 - 9}px` }} onClick={toggle} title={isShut ? `Show ${count(one.children, "object")}` : "Hide what is below"}>
          {isShut ? "+" : "−"}
        </span>
      )}
    </>
  );
}
