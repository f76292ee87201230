import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ask } from "../api/graphql.ts";
import type { Change } from "../api/types.ts";
import { at, compared, compareWith, goTo, horizon } from "../model/at.ts";
import { loader } from "../model/loaded.ts";
import { count } from "../model/news.ts";
import { lately } from "../model/now.ts";
import { isSomebody } from "../model/overview.ts";
import { ofHealth } from "../model/status.ts";
import { changes, unwell } from "../model/store.ts";
import { absolute, moment, SPANS } from "../model/time.ts";
import { Player } from "./player.tsx";

const HOUR = 3_600_000;
const PIECES = 120;
/** While the slider is dragged, so often another moment is shown. */
const DRAGGED = 250;
/** Two presses of Esc within this time lead back to now. */
const TWICE = 700;

/** Changes of more than the hour that is known anyway. */
const CHANGED = `query ChangedSince($from: Moment!) { changes(from: $from, first: 500) {
  nodes { recordedAt kind writer { manager subresource } health healthBefore } pageInfo { hasNextPage } } }`;

type Counted = Pick<Change, "recordedAt" | "writer" | "health" | "healthBefore">;
interface Answer {
  changes: { nodes: Counted[]; pageInfo: { hasNextPage: boolean } };
}

/** What changed when, and the moment that is shown: dragged along, where the view can show others than now. */
export function TimeBar() {
  const span = useSignal<(typeof SPANS)[number]>(SPANS[0]);
  const [, length] = span.value;
  const step = length / PIECES;
  // It moves on by the piece, not by the second.
  const now = lately.value + HOUR / PIECES;
  const [shown, earlier] = [at.value, compared.value];
  const isPast = shown !== null || earlier !== null;
  const looked = earlier ?? shown;
  const end = looked !== null && looked < now - length ? Math.min(now, looked + length / 2) : now;
  const start = end - length;
  const isHour = length === HOUR && end === now;
  const from = Math.floor(start / (length / 12));
  const longer = useMemo(() => loader((stop) => ask<Answer>(CHANGED, { from: new Date(start).toISOString() }, stop)), [from, length]);
  useEffect(() => {
    if (!isHour) void longer.run();
    return longer.stop;
  }, [longer, isHour]);
  const answer = longer.state.value.value?.changes;
  const counted: Counted[] = isHour ? changes.value : (answer?.nodes ?? []);
  const known = horizon.value ?? Date.parse(unwell.state.value.value?.asOf.horizon ?? "");
  const cut = !isHour && answer?.pageInfo.hasNextPage ? Date.parse(answer.nodes.at(-1)?.recordedAt ?? "") : null;
  const hidden = known > start ? Math.min(PIECES, (known - start) / step) : 0;
  return (
    <footer class={`time-bar${isPast ? " is-past" : ""}`}>
      {isPast && <BackToNow />}
      <Player start={known > start ? known : start} />
      <Spans of={span.value} choose={(one) => (span.value = one)} />
      <time title={absolute(start)}>{moment(start, now)}</time>
      <Slider start={start} end={end} now={now}>
        <Strip counted={counted} start={start} step={step} hidden={hidden} cut={cut} />
      </Slider>
      <span class="now">{end === now ? "now" : moment(end, now)}</span>
      <span class="legend muted">
        <i class="density" /> changes <i class="made" /> by somebody <i class="turned" /> became degraded
      </span>
    </footer>
  );
}

function backToNow(): void {
  compareWith(null);
  goTo(null, true);
}

function BackToNow() {
  useEffect(() => {
    let last = 0;
    const press = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      if (event.timeStamp - last < TWICE) backToNow();
      last = event.timeStamp;
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  return (
    <button type="button" class="back" onClick={backToNow} title="Back to now (Esc Esc)">
      Back to now
    </button>
  );
}

function Spans({ of, choose }: { of: (typeof SPANS)[number]; choose: (one: (typeof SPANS)[number]) => void }) {
  return (
    <select class="spans" aria-label="How long the bar is" value={of[0]} onChange={(event) => choose(SPANS.find(([name]) => name === event.currentTarget.value) ?? SPANS[0])}>
      {SPANS.map(([name]) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}

interface Bar {
  start: number;
  end: number;
  now: number;
}

/** Where the moment that is shown stands, and what sets another: drag it, or use the arrows. Where two are compared, each has a handle. */
function Slider({ start, end, now, children }: Bar & { children: ComponentChildren }) {
  const track = useRef<HTMLDivElement>(null);
  const dragged = useRef<"later" | "earlier" | null>(null);
  const sent = useRef(0);
  const shown = at.value ?? now;
  const earlier = compared.value;
  const first = horizon.value ?? -Infinity;
  const momentAt = (event: PointerEvent) => {
    const { left, width } = track.current?.getBoundingClientRect() ?? { left: 0, width: 1 };
    return start + Math.min(1, Math.max(0, (event.clientX - left) / width)) * (end - start);
  };
  const later = (wanted: number, replace: boolean) => goTo(wanted >= now - 2000 ? null : Math.max(first, (earlier ?? -Infinity) + 1000, wanted), replace);
  const before = (wanted: number, replace: boolean) => compareWith(Math.max(first, Math.min(wanted, shown - 1000)), replace);
  const show = (wanted: number, replace: boolean) => (dragged.current === "earlier" ? before : later)(wanted, replace);
  const take = (event: PointerEvent) => {
    const wanted = momentAt(event);
    dragged.current = earlier !== null && Math.abs(wanted - earlier) < Math.abs(wanted - shown) ? "earlier" : "later";
    track.current?.setPointerCapture(event.pointerId);
    show(wanted, false);
  };
  const bar = { start, end, now };
  return (
    <div
      class="slider"
      ref={track}
      onPointerDown={take}
      onPointerMove={(event) => {
        if (!dragged.current || event.timeStamp - sent.current < DRAGGED) return;
        sent.current = event.timeStamp;
        show(momentAt(event), true);
      }}
      onPointerUp={(event) => {
        if (dragged.current) show(momentAt(event), true);
        dragged.current = null;
      }}
    >
      {children}
      {earlier !== null && <Handle bar={bar} label="The moment that it is compared with" moment={earlier} show={(wanted) => before(wanted, true)} last={shown - 1000} isEarlier />}
      <Handle bar={bar} label="The moment that is shown" moment={shown} show={(wanted) => later(wanted, true)} last={now} />
    </div>
  );
}

interface HandleProps {
  bar: Bar;
  label: string;
  moment: number;
  show: (wanted: number) => void;
  /** As late as it goes. */
  last: number;
  isEarlier?: boolean;
}

/** One of the moments, by the keyboard. */
function Handle({ bar: { start, end, now }, label, moment: shown, show, last, isEarlier = false }: HandleProps) {
  const place = Math.min(1, Math.max(0, (shown - start) / (end - start)));
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (by) show(shown + (by * (end - start)) / PIECES);
    else if (event.key === "End") show(last);
    else if (event.key === "Home") show(start);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <i
      class={isEarlier ? "handle is-earlier" : "handle"}
      style={{ left: `${place * 100}%` }}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={Math.floor(start / 1000)}
      aria-valuemax={Math.floor(now / 1000)}
      aria-valuenow={Math.floor(shown / 1000)}
      aria-valuetext={shown >= now ? "now" : absolute(shown)}
      onKeyDown={onKeyDown}
    />
  );
}

function Strip({ counted, start, step, hidden, cut }: { counted: Counted[]; start: number; step: number; hidden: number; cut: number | null }) {
  const density = new Array<number>(PIECES).fill(0);
  const made = new Set<number>();
  const degraded = new Set<number>();
  for (const change of counted) {
    const piece = Math.floor((Date.parse(change.recordedAt) - start) / step);
    if (piece < 0 || piece >= PIECES) continue;
    density[piece] = (density[piece] ?? 0) + 1;
    if (change.healthBefore && ofHealth(change.health) === "degraded") degraded.add(piece);
    else if (isSomebody(change.writer)) made.add(piece);
  }
  const most = Math.max(1, ...density);
  const unknown = cut === null ? 0 : Math.max(0, (cut - start) / step);
  const label = `From ${absolute(start)}: ${count(counted.length, "change")}, ${count(degraded.size, "moment")} at which something became degraded`;
  return (
    <svg viewBox={`0 0 ${PIECES} 20`} preserveAspectRatio="none" role="img" aria-label={label}>
      {unknown > 0 && (
        <rect class="uncounted" x="0" y="17" width={unknown} height="3">
          <title>More changes than are counted</title>
        </rect>
      )}
      {hidden > 0 && (
        <rect class="horizon" x="0" y="0" width={hidden} height="20">
          <title>Before this nothing is known</title>
        </rect>
      )}
      {density.map((number, piece) => number > 0 && <rect class="density" x={piece + 0.1} width="0.8" y={20 - 3 - (number / most) * 11} height={3 + (number / most) * 11} />)}
      {[...made].map((piece) => (
        <rect class="made" x={piece + 0.1} width="0.8" y="0" height="3" />
      ))}
      {[...degraded].map((piece) => (
        <rect class="turned" x={piece + 0.1} width="0.8" y="0" height="6" />
      ))}
    </svg>
  );
}
