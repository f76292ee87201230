import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { clustersUrl, mayDo, openSocket, whyRefused } from "../../api/clusters.ts";
import { askInParts, QueryError } from "../../api/graphql.ts";
import { type BodiesAnswer, bodiesOf } from "../../api/place.ts";
import type { Right } from "../../api/types.ts";
import { at } from "../../model/at.ts";
import { endInWords, execCommand, execPath, message, PROTOCOLS, RESIZE, STATUS, STDERR, STDIN, STDOUT } from "../../model/exec.ts";
import { count } from "../../model/news.ts";
import { type Container, containersIn, podsOf, runningIn } from "../../model/pods.ts";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import type { Shown } from "../drawer.tsx";

/** Pods whose containers can be chosen. */
const PODS = 20;

/** A container that may have a shell. */
interface Place extends Container {
  runs: boolean;
}

/** A shell in a container, straight from the cluster. */
export default function Shell({ of, forest }: Shown) {
  const pods = podsOf(of, forest);
  const known = pods.map(({ uid }) => uid).join(" ");
  const places = useLoaded(async (stop) => {
    const some = pods.slice(0, PODS);
    if (some.length === 0) return [];
    const { data } = await askInParts<BodiesAnswer>(bodiesOf(some, null), {}, stop);
    return some.flatMap((pod, number): Place[] => {
      const body = data[`o${number}`]?.body ?? null;
      const running = runningIn(body);
      return [...new Set([...containersIn(body), ...running])].map((container) => ({ pod, container, runs: running.includes(container) }));
    });
  }, [known]);
  const { value, error, retryAt } = places.state.value;
  // An open shell stays when other pods come and go.
  const kept = useRef<Place[] | null>(null);
  kept.current = value ?? kept.current;
  if (at.value !== null) return <Empty title="A shell is opened in the cluster as it is now: go back to now to open one." />;
  if (!clustersUrl()) return <Empty title="This server does not say where clusters' APIs are, so that the page cannot ask them: --clusters-url." />;
  if (pods.length === 0) return <Empty title="It has no pod." />;
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void places.run()} />}
      {!kept.current && !error && <Skeleton rows={6} label="Loading its containers" />}
      {kept.current && <Choice places={kept.current} further={pods.length - PODS} />}
    </>
  );
}

const nameOf = ({ pod, container }: Container) => `${pod.name} ${container}`;

/** Which container, and what opens a shell in it. */
function Choice({ places, further }: { places: Place[]; further: number }) {
  const first = places.find(({ runs }) => runs) ?? places[0];
  const picked = useSignal(first && nameOf(first));
  const right = useSignal<Right | null>(null);
  const opened = useSignal<{ of: Place; number: number } | null>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const chosen = places.find((place) => nameOf(place) === picked.value) ?? first;
  useEffect(() => {
    if (!chosen) return;
    let isWanted = true;
    right.value = null;
    const { agent, namespace, name } = chosen.pod;
    void mayDo(agent, { verb: "create", group: "", resource: "pods", subresource: "exec", namespace, name })
      .catch((error: Error): Right => ({ allowed: false, reason: error.message }))
      .then((found) => isWanted && (right.value = found));
    return () => {
      isWanted = false;
    };
  }, [chosen?.pod.uid]);
  if (!chosen) return <Empty title="Its pods have no containers that are known here." />;
  const whyNot = !chosen.runs ? `container ${chosen.container} does not run` : right.value === null ? "asking whether you may" : right.value.allowed ? null : right.value.reason;
  const { namespace, name } = chosen.pod;
  return (
    <div class="shell">
      <div class="filters">
        {places.length > 1 && (
          <select aria-label="Container" value={picked.value} onChange={(event) => (picked.value = event.currentTarget.value)}>
            {places.map((place) => (
              <option key={nameOf(place)} value={nameOf(place)}>
                {nameOf(place)}
                {place.runs ? "" : ", does not run"}
              </option>
            ))}
          </select>
        )}
        <button
          type="button"
          class="primary"
          ref={opener}
          disabled={whyNot !== null}
          title={whyNot ?? undefined}
          aria-describedby={whyNot ? "no-shell" : undefined}
          onClick={() => (opened.value = { of: chosen, number: (opened.value?.number ?? 0) + 1 })}
        >
          {opened.value ? "Open another shell" : "Open a shell"}
        </button>
        {places.length === 1 && <span class="muted">in {nameOf(chosen)}</span>}
      </div>
      {whyNot && (
        <p class="muted missing" id="no-shell">
          {whyNot}
        </p>
      )}
      {further > 0 && <Notice>A shell in {count(further, "further pod")} of it can be opened by opening the pod.</Notice>}
      {opened.value && <Session of={opened.value.of} leave={() => opener.current?.focus()} key={opened.value.number} />}
      <Command text={execCommand(namespace, name, chosen.container)} />
    </div>
  );
}

/** One shell: it ends when it is left. */
function Session({ of, leave }: { of: Place; leave: () => void }) {
  const frame = useRef<HTMLDivElement>(null);
  const state = useSignal<{ kind: "opening" | "open" | "ended"; says: string }>({ kind: "opening", says: "Opening a shell…" });
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const stop = new AbortController();
    void run(of, element, leave, stop.signal, (kind, says) => {
      if (!stop.signal.aborted) state.value = { kind, says };
    });
    return () => stop.abort();
  }, []);
  return (
    <>
      <p class="muted" role="status">
        {state.value.says}
      </p>
      <div class="terminal-frame" ref={frame} data-state={state.value.kind} role="group" aria-label={`Shell in ${nameOf(of)}`} />
    </>
  );
}

type Say = (kind: "opening" | "open" | "ended", says: string) => void;

async function run({ pod, container }: Place, element: HTMLElement, leave: () => void, stop: AbortSignal, say: Say): Promise<void> {
  const path = execPath(pod.namespace, pod.name, container);
  let socket: WebSocket;
  const parts = import("./terminal.ts");
  try {
    socket = await openSocket(pod.agent, path, PROTOCOLS);
  } catch (error) {
    say("ended", `The shell could not be opened: ${error instanceof QueryError ? error.message : String(error)}.`);
    return;
  }
  const { terminalIn } = await parts;
  if (stop.aborted) {
    socket.close();
    return;
  }
  const send = (channel: number, content: string) => socket.readyState === WebSocket.OPEN && socket.send(message(channel, content));
  const resize = (columns: number, rows: number) => send(RESIZE, JSON.stringify({ Width: columns, Height: rows }));
  const terminal = terminalIn(element, { data: (text) => send(STDIN, text), resized: resize, left: leave });
  stop.addEventListener("abort", () => {
    socket.close();
    terminal.dispose();
  });
  let wasOpen = false;
  let end = "";
  socket.binaryType = "arraybuffer";
  const begin = () => {
    if (wasOpen) return;
    wasOpen = true;
    say("open", "Open. F6 leads out of the terminal.");
    resize(...terminal.size());
    terminal.focus();
  };
  if (socket.readyState === WebSocket.OPEN) begin();
  socket.onopen = begin;
  socket.onmessage = ({ data }) => {
    const bytes = new Uint8Array(data as ArrayBuffer);
    const content = bytes.subarray(1);
    if (bytes[0] === STDOUT || bytes[0] === STDERR) terminal.write(content);
    else if (bytes[0] === STATUS) end = new TextDecoder().decode(content);
  };
  socket.onclose = () => {
    if (stop.aborted) return;
    terminal.freeze();
    if (end) say("ended", endInWords(end));
    else if (wasOpen) say("ended", "The connection to the shell broke. What ran in it may have ended with it.");
    else void whyRefused(pod.agent, path).then((why) => say("ended", `The shell could not be opened${why ? `: ${why}` : ": the gateway or the cluster refused the connection"}.`));
  };
}
