import { useEffect, useMemo } from "preact/hooks";
import { askInParts } from "../../api/graphql.ts";
import type { Body } from "../../api/object.ts";
import { type BodiesAnswer, bodiesOf, type Line, type Place } from "../../api/place.ts";
import { instant } from "../../model/at.ts";
import { type Block, board, percent, type Track, workloadsOf } from "../../model/board.ts";
import { atMostEvery, loader } from "../../model/loaded.ts";
import { count } from "../../model/news.ts";
import type { Known } from "../../model/place.ts";
import { WORDS } from "../../model/status.ts";
import { type Forest, statusOf } from "../../model/tree.ts";
import { useCalmOrder } from "../../parts/calm.ts";
import { Glow } from "../../parts/glow.tsx";
import { Empty, Trouble } from "../../parts/states.tsx";
import { Shape, Status } from "../../parts/status.tsx";
import { chosen, withChosen } from "../../router.ts";

/** Bodies that one query asks for: each costs the server a request. */
const AT_ONCE = 24;
/** Workloads and revisions of which bodies are asked for; further ones are counted by their pods. */
const BODIES = 240;
/** Squares of one track. */
const SQUARES = 200;

/** Bodies of workloads, asked for again where one changed. */
function useBodies(forest: Forest) {
  const at = instant.value;
  const bodies = useMemo(() => {
    const known = new Map<string, { changedAt: string; body: Body }>();
    let wanted: Line[] = [];
    const asked = loader(async (stop) => {
      const missing = wanted.filter((line) => known.get(line.uid)?.changedAt !== line.changedAt);
      for (let from = 0; from < missing.length; from += AT_ONCE) {
        const some = missing.slice(from, from + AT_ONCE);
        const { data } = await askInParts<BodiesAnswer>(bodiesOf(some, at), {}, stop);
        some.forEach((line, number) => known.set(line.uid, { changedAt: line.changedAt, body: data[`o${number}`]?.body ?? {} }));
      }
      return new Map([...known].map(([uid, { body }]) => [uid, body]));
    });
    return { asked, again: atMostEvery(500, asked.run), want: (lines: Line[]) => (wanted = lines.slice(0, BODIES)) };
  }, [at]);
  useEffect(() => {
    bodies.want(workloadsOf(forest).flatMap(({ workload, revisions }) => [workload.line, ...revisions.map(({ line }) => line)]));
    bodies.again();
  }, [bodies, forest]);
  useEffect(() => bodies.asked.stop, [bodies]);
  return bodies.asked;
}

/** One block a workload, one square a pod. */
export default function Board({ known }: { place: Place; known: Known }) {
  const bodies = useBodies(known.forest);
  const { value, error, retryAt } = bodies.state.value;
  const blocks = useMemo(() => board(known.forest, value ?? new Map()), [known.forest, value]);
  const { shown, moved, reorder, hands } = useCalmOrder(blocks, ({ key }) => key);
  if (blocks.length === 0) return <Empty title="No workload runs here: no Deployment, StatefulSet, DaemonSet or Rollout." />;
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void bodies.run()} />}
      {moved > 0 && (
        <button type="button" class="chip" onClick={reorder}>
          {count(moved, "change")}, reorder
        </button>
      )}
      <ul class="board" {...hands}>
        {shown.map((block) => (
          <Workload block={block} key={block.key} />
        ))}
      </ul>
    </>
  );
}

function Workload({ block }: { block: Block }) {
  const { workloads, status, wanted, ready, updated, tracks, note } = block;
  const [first] = workloads;
  if (!first) return null;
  const reason = workloads.map(({ health }) => health.message).find((message) => message);
  return (
    <li class={`block is-${status}`}>
      <header>
        <a href={withChosen("object", first.uid)} data-row>
          {first.name}
        </a>
        <span class="muted">{first.kind}</span>
        <Glow of={status}>
          <Status status={status} stale={first.stale !== null} />
        </Glow>
        {note && <Status status="held" word={note} />}
      </header>
      <div class="shares">
        <Share name="ready" part={ready} whole={wanted} />
        <Share name="updated" part={updated} whole={wanted} />
      </div>
      {tracks.map((track) => (
        <Pods track={track} isNamed={tracks.length > 1 || track.name !== ""} key={`${track.workload.uid} ${track.name}`} />
      ))}
      {reason && status !== "healthy" && <p class="why">{reason}</p>}
    </li>
  );
}

function Share({ name, part, whole }: { name: string; part: number; whole: number }) {
  const share = percent(part, whole);
  return (
    <span class="share">
      <span>
        <b>{share} %</b> {name}
      </span>
      <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
        <rect class="bar-whole" width="100" height="4" />
        <rect class="bar-part" width={share} height="4" />
      </svg>
      <span class="muted">
        {part} of {whole}
      </span>
    </span>
  );
}

/** A pod. It is drawn anew only when it changed, as there are hundreds. */
function Square({ pod, isSelected, search }: { pod: Line; isSelected: boolean; search: string }) {
  return useMemo(() => {
    const status = statusOf(pod);
    const reason = pod.health.message ? `, ${pod.health.message}` : "";
    const params = new URLSearchParams(search);
    params.set("object", pod.uid);
    return (
      <a class={`square is-${status}${isSelected ? " is-selected" : ""}`} href={`?${params}`} aria-label={`Pod ${pod.name}, ${WORDS[status]}`} title={`${pod.name}: ${WORDS[status]}${reason}`}>
        <Shape status={status} stale={pod.stale !== null} />
      </a>
    );
  }, [pod, isSelected, search]);
}

function Pods({ track, isNamed }: { track: Track; isNamed: boolean }) {
  const selected = chosen.value.get("object");
  const search = chosen.value.toString();
  return (
    <div class="track">
      {isNamed && <span class="muted track-name">{track.name}</span>}
      <span class="squares">
        {track.pods.slice(0, SQUARES).map((pod) => (
          <Square pod={pod} isSelected={selected === pod.uid} search={search} key={pod.uid} />
        ))}
        {track.pods.length > SQUARES && <span class="muted">and {count(track.pods.length - SQUARES, "more pod", "more pods")}</span>}
        {track.pods.length === 0 && <span class="muted">no pods</span>}
      </span>
    </div>
  );
}
