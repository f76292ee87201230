import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { listen } from "../../api/feed.ts";
import { ask } from "../../api/graphql.ts";
import { DEPLOYMENTS, type DeploymentsAnswer, type Place, SPAN, type SpanAnswer } from "../../api/place.ts";
import type { Change, Deployment } from "../../api/types.ts";
import { at, goTo, horizon } from "../../model/at.ts";
import { atMostEvery, loader } from "../../model/loaded.ts";
import { count, short } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import type { Known } from "../../model/place.ts";
import { WORDS } from "../../model/status.ts";
import { absolute, moment, SPANS } from "../../model/time.ts";
import { type Lane, lanes } from "../../model/timeline.ts";
import { useSeldom } from "../../parts/seldom.ts";
import { Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { choose, chosen, withChosen } from "../../router.ts";

/** Pages of changes that are asked for. */
const PAGES = 4;
const LANES = 60;
/** Changes that came since the pages were loaded; earlier ones leave. */
const LIVE = 2000;
/** So often the lanes are drawn anew while changes come: each takes all of them. */
const DRAWN = 1000;
/** Units of a lane's width. */
const WIDE = 1000;

interface Loaded {
  changes: Change[];
  deployments: Deployment[];
  /** Earlier changes of the time are not loaded. */
  cut: number | null;
}

async function load(place: Place, from: number, until: number, stop: AbortSignal): Promise<Loaded> {
  const { environment, agent, namespace } = place;
  const filter = environment ? { env: environment.id } : { agent, namespace: namespace || null };
  const changes: Change[] = [];
  let [after, cut]: [string | null, number | null] = [null, null];
  for (let page = 0; page < PAGES; page++) {
    const answer: SpanAnswer = await ask(SPAN, { filter, from: new Date(from).toISOString(), to: new Date(until).toISOString(), after }, stop);
    changes.push(...answer.changes.nodes);
    after = answer.changes.pageInfo.endCursor;
    if (!answer.changes.pageInfo.hasNextPage) break;
    if (page === PAGES - 1) cut = Date.parse(changes.at(-1)?.recordedAt ?? "");
  }
  const deployments = environment ? (await ask<DeploymentsAnswer>(DEPLOYMENTS, { id: environment.id }, stop)).environment.deployments.nodes : [];
  return { changes, deployments, cut };
}

/** How each workload was, what was delivered and what somebody did; a point of it is a moment of the whole page. */
export default function Timeline({ place, known }: { place: Place; known: Known }) {
  const span = SPANS.find(([name]) => name === chosen.value.get("span")) ?? SPANS[0];
  const now = lately.value + 30_000;
  const chosenMoment = at.value;
  const until = chosenMoment !== null && chosenMoment < now - span[1] ? Math.min(now, chosenMoment + span[1] / 2) : now;
  const from = until - span[1];
  const steady = Math.floor(from / (span[1] / 24));
  const loaded = useMemo(() => loader((stop) => load(place, from, until, stop)), [place.environment?.id, place.agent, place.namespace, span, steady]);
  const live = useSignal<Change[]>([]);
  useEffect(() => {
    live.value = [];
    void loaded.run();
    const isHere = (change: Change) => known.forest.has(change.uid) || (change.agent === place.agent && change.namespace === place.namespace);
    let fresh: Change[] = [];
    const show = atMostEvery(DRAWN, () => {
      live.value = [...fresh.reverse(), ...live.peek()].slice(0, LIVE);
      fresh = [];
    });
    const hear = listen((some) => {
      const here = some.filter(isHere);
      fresh.push(...here);
      if (here.length > 0) show();
    });
    return () => {
      hear();
      loaded.stop();
    };
  }, [loaded]);
  const last = useRef<Loaded | null>(null);
  const { value, error, retryAt } = loaded.state.value;
  last.current = value ?? last.current;
  const shown = last.current;
  const hidden = Math.max(horizon.value ?? 0, shown?.cut ?? 0);
  const forest = useSeldom(known.forest, DRAWN);
  const all = useMemo(
    () => (shown ? lanes(forest, [...live.value.filter(({ recordedAt }) => Date.parse(recordedAt) <= until), ...shown.changes], from, until, hidden) : []),
    [shown, live.value, forest, from, until, hidden],
  );
  return (
    <>
      <div class="filters" role="group" aria-label="How long">
        {SPANS.map((one) => (
          <button type="button" class="chip filter" key={one[0]} aria-pressed={one === span} onClick={() => choose("span", one === SPANS[0] ? null : one[0], true)}>
            {one[0]}
          </button>
        ))}
        <span class="legend muted">
          <i class="made" /> by somebody <i class="turned" /> became degraded <i class="delivered" /> deployment
        </span>
      </div>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void loaded.run()} />}
      {!shown && !error && <Skeleton rows={6} label="Loading what changed" />}
      {shown && all.length === 0 && <Empty title="Nothing that has a health was here in this time." />}
      {shown && all.length > 0 && <Chart {...{ all, from, until, hidden }} deployments={shown.deployments} />}
      {shown?.cut && <Notice>More than 2,000 changes happened in this time: what was before {moment(shown.cut, now)} is not drawn.</Notice>}
      {all.length > LANES && <Notice>{count(all.length - LANES, "further object")} that did not change much {all.length - LANES === 1 ? "is" : "are"} not drawn.</Notice>}
    </>
  );
}

function Chart({ all, from, until, hidden, deployments }: { all: Lane[]; from: number; until: number; hidden: number; deployments: Deployment[] }) {
  const x = (when: number) => ((when - from) / (until - from)) * WIDE;
  const pick = (event: MouseEvent) => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    goTo(from + ((event.clientX - left) / width) * (until - from));
  };
  const within = deployments.filter(({ createdAt }) => Date.parse(createdAt) > from && Date.parse(createdAt) < until);
  const ticks = [0, 0.25, 0.5, 0.75].map((part) => from + part * (until - from));
  const shared = { from, until, x, hidden };
  return (
    <div class="timeline">
      <div class="lane lane-axis">
        <span />
        <div class="lane-times">
          {ticks.map((tick) => (
            <time key={tick} title={absolute(tick)} style={{ left: `${x(tick) / 10}%` }}>
              {moment(tick, until)}
            </time>
          ))}
          {within.map((deployment) => (
            <button
              type="button"
              class={`delivered-mark${x(Date.parse(deployment.createdAt)) > 0.94 * WIDE ? " is-late" : ""}`}
              key={deployment.createdAt}
              style={{ left: `${x(Date.parse(deployment.createdAt)) / 10}%` }}
              title={`Deployed ${short(deployment.sha)} by ${deployment.by}, ${deployment.status.toLowerCase()}, ${absolute(Date.parse(deployment.createdAt))}`}
              onClick={() => goTo(Date.parse(deployment.createdAt) + 1000)}
            >
              {short(deployment.sha)}
            </button>
          ))}
        </div>
      </div>
      {all.slice(0, LANES).map((lane) => (
        <Row lane={lane} key={lane.key} {...shared} deployments={within} pick={pick} />
      ))}
    </div>
  );
}

interface Scale {
  from: number;
  until: number;
  hidden: number;
  x: (when: number) => number;
}

function Row({ lane, x, from, hidden, deployments, pick }: Scale & { lane: Lane; deployments: Deployment[]; pick: (event: MouseEvent) => void }) {
  const when = at.value;
  const said = lane.stretches.map(({ status, from }) => `${WORDS[status]} from ${moment(from, Date.now())}`).join(", ");
  return (
    <div class="lane">
      <span class="lane-name">
        <Shape status={lane.status} stale={Boolean(lane.line?.stale)} />
        {lane.line ? (
          <a href={withChosen("object", lane.key)} data-row title={`${lane.kind} ${lane.name}`}>
            {lane.name}
          </a>
        ) : (
          <span class="muted" title={`${lane.kind} ${lane.name}`}>
            {lane.name}, gone
          </span>
        )}
        <span class="muted">{lane.kind}</span>
      </span>
      <div class="lane-track" onClick={pick}>
        <svg viewBox={`0 0 ${WIDE} 20`} preserveAspectRatio="none" role="img" aria-label={`${lane.kind} ${lane.name}: ${said || "not known"}; ${count(lane.marks.length, "mark")}`}>
          {hidden > from && <rect class="horizon" x="0" y="0" width={Math.max(0, x(hidden))} height="20" />}
          {lane.stretches.map(({ from, until, status }) => (
            <rect class={`stretch is-${status}`} key={`${from} ${status}`} x={x(from)} width={Math.max(1, x(until) - x(from))} y={TALL[status] ?? 4} height={16 - (TALL[status] ?? 4)}>
              <title>{`${WORDS[status]} from ${absolute(from)}`}</title>
            </rect>
          ))}
        </svg>
        {deployments.map(({ createdAt }) => (
          <i class="lane-delivered" key={createdAt} style={{ left: `${x(Date.parse(createdAt)) / 10}%` }} />
        ))}
        {lane.marks.slice(0, 200).map((mark, number) => (
          <i class={`lane-mark is-${mark.kind}`} key={number} style={{ left: `${x(mark.at) / 10}%` }} title={`${mark.text}, ${absolute(mark.at)}`} />
        ))}
        {when !== null && x(when) >= 0 && x(when) <= WIDE && <i class="lane-cursor" style={{ left: `${x(when) / 10}%` }} />}
      </div>
    </div>
  );
}

/** Height tells a status as well as colour: what is wrong stands tall. */
const TALL: Partial<Record<Lane["status"], number>> = { healthy: 11, none: 14, suspended: 8, progressing: 7, degraded: 2, missing: 2, unknown: 7 };
