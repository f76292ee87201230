import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { clustersUrl } from "../../api/clusters.ts";
import { askInParts } from "../../api/graphql.ts";
import { type BodiesAnswer, bodiesOf, type Line } from "../../api/place.ts";
import { at } from "../../model/at.ts";
import type { Said } from "../../model/log-lines.ts";
import { count } from "../../model/news.ts";
import { type Container, containersIn, podsOf } from "../../model/pods.ts";
import { statusOf } from "../../model/tree.ts";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import type { Shown } from "../drawer.tsx";
import { LINES, readLogs } from "./log-reader.ts";

/** Pods whose logs can be chosen. */
const PODS = 20;
/** Streams at once: over HTTP/1.1 a browser has six connections to an origin, and one stays free. */
const streamsAtOnce = () => (clustersUrl()?.startsWith("https:") ? 12 : 5);
const ROW = 18;

/** Logs of one pod or of several, straight from the cluster. */
export default function Logs({ of, forest }: Shown) {
  const pods = podsOf(of, forest);
  const known = pods.map(({ uid }) => uid).join(" ");
  const containers = useLoaded(async (stop) => {
    const some = pods.slice(0, PODS);
    if (some.length === 0) return [];
    const { data } = await askInParts<BodiesAnswer>(bodiesOf(some, null), {}, stop);
    return some.flatMap((pod, number): Container[] => containersIn(data[`o${number}`]?.body ?? null).map((container) => ({ pod, container })));
  }, [known]);
  const { value, error, retryAt } = containers.state.value;
  if (at.value !== null) return <Empty title="Logs are read from the cluster as it is now: go back to now to read them." />;
  if (!clustersUrl()) return <Empty title="This server does not say where clusters' APIs are, so that the page cannot ask them: --clusters-url." />;
  if (pods.length === 0) return <Empty title="It has no pod." />;
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void containers.run()} />}
      {!value && !error && <Skeleton rows={6} label="Loading its containers" />}
      {value && <Reader streams={value} of={of} further={pods.length - PODS} key={known} />}
    </>
  );
}

function Reader({ streams, of, further }: { streams: Container[]; of: Line; further: number }) {
  const limit = streamsAtOnce();
  const first = streams.filter(({ pod, container }) => streams.find((one) => one.pod.uid === pod.uid)?.container === container).slice(0, limit);
  const picked = useSignal<ReadonlySet<Container>>(new Set(first));
  const follows = useSignal(true);
  const previous = useSignal(false);
  const times = useSignal(false);
  const text = useSignal("");
  const reading = useMemo(
    () => readLogs(streams.filter((one) => picked.value.has(one)), { follow: follows.value && !previous.value, previous: previous.value }),
    [picked.value, follows.value, previous.value],
  );
  useEffect(() => reading.start(), [reading]);
  const { lines, failures, dropped } = reading.state.value;
  const wanted = text.value.toLowerCase();
  const shown = useMemo(() => (wanted ? lines.filter((line) => line.text.toLowerCase().includes(wanted)) : lines), [lines, wanted]);
  const names = reading.streams.map(({ pod, container }) => (new Set(reading.streams.map((one) => one.container)).size > 1 ? `${pod.name} ${container}` : pod.name));
  const written = (line: Said) => `${times.value && line.at ? `${line.at} ` : ""}${reading.streams.length > 1 ? `${names[line.from]}  ` : ""}${line.text}`;
  const download = () => {
    const address = URL.createObjectURL(new Blob([shown.map((line) => `${written(line)}\n`).join("")], { type: "text/plain" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: `${of.name}.log` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  return (
    <div class="logs">
      <div class="filters">
        <input type="search" aria-label="Filter lines" placeholder="Filter lines" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <Toggle of={follows} name="Follow" disabled={previous.value} />
        <Toggle of={previous} name="Previous" />
        <Toggle of={times} name="Times" />
        <button type="button" class="quiet" disabled={shown.length === 0} onClick={download}>
          Download
        </button>
        <span class="muted">
          {wanted ? `${shown.length.toLocaleString("en")} of ${count(lines.length, "line")}` : count(lines.length, "line")}
        </span>
      </div>
      {streams.length > 1 && <Streams streams={streams} picked={picked} limit={limit} />}
      {further > 0 && <Notice>{count(further, "further pod")} of it can be read by opening it.</Notice>}
      {failures.map(({ stream, message }) => (
        <Notice tone="warning" key={`${stream.pod.uid} ${stream.container}`}>
          {stream.pod.name} {stream.container}: {message}
        </Notice>
      ))}
      {dropped && <p class="muted">Only the last {LINES.toLocaleString("en")} lines are kept here.</p>}
      <Lines lines={shown} written={written} follows={follows.value} />
      <Command text={commandOf(of, reading.streams, follows.value, previous.value)} />
    </div>
  );
}

function Toggle({ of, name, disabled = false }: { of: { value: boolean }; name: string; disabled?: boolean }) {
  return (
    <button type="button" class="chip filter" aria-pressed={of.value && !disabled} disabled={disabled} onClick={() => (of.value = !of.value)}>
      {name}
    </button>
  );
}

function Streams({ streams, picked, limit }: { streams: Container[]; picked: { value: ReadonlySet<Container> }; limit: number }) {
  const toggle = (one: Container) => {
    const next = new Set(picked.value);
    if (!next.delete(one)) next.add(one);
    if (next.size <= limit) picked.value = next;
  };
  return (
    <details class="streams">
      <summary>
        {count(picked.value.size, "container")} of {streams.length}
        {streams.length > limit && <span class="muted">, {limit} at once</span>}
      </summary>
      <ul>
        {streams.map((one) => (
          <li key={`${one.pod.uid} ${one.container}`}>
            <label>
              <input type="checkbox" checked={picked.value.has(one)} disabled={!picked.value.has(one) && picked.value.size >= limit} onChange={() => toggle(one)} />
              <Shape status={statusOf(one.pod)} stale={one.pod.stale !== null} />
              <span>
                {one.pod.name} <span class="muted">{one.container}</span>
              </span>
            </label>
          </li>
        ))}
      </ul>
    </details>
  );
}

function commandOf(of: Line, streams: Container[], follows: boolean, previous: boolean): string {
  const what = streams.length === 1 && streams[0] ? `${streams[0].pod.name} -c ${streams[0].container}` : of.kind === "Pod" ? `${of.name} --all-containers` : `${of.kind.toLowerCase()}/${of.name} --all-pods`;
  return `kubectl logs -n ${of.namespace} ${what} --tail 500${previous ? " --previous" : follows ? " -f" : ""}`;
}

/** What of the lines is near the window is in the document; at the end it stays at the end. */
function Lines({ lines, written, follows }: { lines: Said[]; written: (line: Said) => string; follows: boolean }) {
  const frame = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const from = useSignal(0);
  const rows = 80;
  useEffect(() => {
    const element = frame.current;
    if (element && isAtEnd.current && follows) element.scrollTop = element.scrollHeight;
  }, [lines, follows]);
  const look = () => {
    const element = frame.current;
    if (!element) return;
    isAtEnd.current = element.scrollTop + element.clientHeight > element.scrollHeight - 2 * ROW;
    from.value = Math.max(0, Math.floor(element.scrollTop / ROW) - 20);
  };
  const first = Math.min(from.value, Math.max(0, lines.length - 1));
  return (
    <div class="log-lines" ref={frame} onScroll={look} tabIndex={0} role="log" aria-label="Lines" aria-live="off">
      {lines.length === 0 ? (
        <p class="muted pad">No line yet.</p>
      ) : (
        <div style={{ height: `${lines.length * ROW}px` }}>
          <pre style={{ transform: `translateY(${first * ROW}px)` }}>
            {lines
              .slice(first, first + rows)
              .map(written)
              .join("\n")}
          </pre>
        </div>
      )}
    </div>
  );
}
