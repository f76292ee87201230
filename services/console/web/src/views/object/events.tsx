import { useEffect, useMemo } from "preact/hooks";
import { listen } from "../../api/feed.ts";
import { ask, askInParts } from "../../api/graphql.ts";
import { type Body, EVENTS, type EventsAnswer } from "../../api/object.ts";
import { type BodiesAnswer, bodiesOf, type Line } from "../../api/place.ts";
import { instant } from "../../model/at.ts";
import { textOf, valueAt } from "../../model/facts.ts";
import { atMostEvery, loader } from "../../model/loaded.ts";
import { family, type Forest } from "../../model/tree.ts";
import { Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Ago } from "../../parts/time.tsx";
import type { Shown } from "../drawer.tsx";

/** Events whose words are asked for; each costs the server a request. */
const EVENTS_SHOWN = 40;
const AT_ONCE = 20;

interface Reported {
  uid: string;
  type: string;
  reason: string;
  message: string;
  times: number;
  last: number | null;
  object: string;
}

function reported(uid: string, body: Body): Reported & { about: string } {
  const about = textOf(valueAt(body, "regarding", "uid")) ?? textOf(valueAt(body, "involvedObject", "uid")) ?? "";
  const object = valueAt(body, "regarding", "name") ? "regarding" : "involvedObject";
  const last = ["series.lastObservedTime", "deprecatedLastTimestamp", "lastTimestamp", "eventTime", "metadata.creationTimestamp"]
    .map((path) => Date.parse(textOf(valueAt(body, ...path.split("."))) ?? ""))
    .find((at) => !Number.isNaN(at));
  const times = Number(valueAt(body, "series", "count") ?? valueAt(body, "deprecatedCount") ?? valueAt(body, "count") ?? 1);
  return {
    uid,
    about,
    type: textOf(body.type) ?? "",
    reason: textOf(body.reason) ?? "",
    message: textOf(body.note) ?? textOf(body.message) ?? "",
    times,
    last: last ?? null,
    object: `${textOf(valueAt(body, object, "kind")) ?? ""} ${textOf(valueAt(body, object, "name")) ?? ""}`,
  };
}

async function load(of: Line, forest: Forest, at: string | null, stop: AbortSignal): Promise<{ events: Reported[]; further: number }> {
  const about = family(of, forest);
  const names = new Set([...about.values()].map(({ name }) => name));
  const filter = { agent: of.agent, kind: "Event", namespace: of.namespace || null, text: of.name };
  const { resources } = await ask<EventsAnswer>(EVENTS, { filter, at }, stop);
  const found = resources.nodes
    .filter(({ name }) => names.has(name.slice(0, name.lastIndexOf("."))))
    .sort((one, other) => other.changedAt.localeCompare(one.changedAt));
  const events: Reported[] = [];
  for (let from = 0; from < Math.min(found.length, EVENTS_SHOWN); from += AT_ONCE) {
    const some = found.slice(from, Math.min(from + AT_ONCE, EVENTS_SHOWN));
    const { data } = await askInParts<BodiesAnswer>(bodiesOf(some, at), {}, stop);
    some.forEach(({ uid }, number) => {
      const body = data[`o${number}`]?.body;
      const event = body ? reported(uid, body) : null;
      if (event && about.has(event.about)) events.push(event);
    });
  }
  events.sort((one, other) => (other.last ?? 0) - (one.last ?? 0));
  return { events, further: Math.max(0, found.length - EVENTS_SHOWN) };
}

/** What Kubernetes says of an object and of what is below it. */
export default function Events({ of, forest }: Shown) {
  const at = instant.value;
  const loaded = useMemo(() => loader((stop) => load(of, forest, at, stop)), [of.uid, at]);
  useEffect(() => {
    void loaded.run();
    const again = atMostEvery(1500, loaded.run);
    const hear = listen((changes) => at === null && changes.some((change) => change.kind === "Event" && change.namespace === of.namespace && change.name.includes(of.name)) && again());
    return () => {
      hear();
      loaded.stop();
    };
  }, [loaded]);
  const { value, error, retryAt } = loaded.state.value;
  const place = of.namespace ? ` -n ${of.namespace}` : "";
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void loaded.run()} />}
      {!value && !error && <Skeleton rows={4} label="Loading Events" />}
      {value?.events.length === 0 && <Empty title="No Event names it or what is below it. Kubernetes keeps Events for an hour." />}
      <ol class="events">
        {value?.events.map((event) => (
          <li key={event.uid} class={event.type === "Warning" ? "is-warning" : undefined}>
            <span class="muted">{event.last !== null && <Ago at={event.last} />}</span>
            <span>
              <b>{event.type === "Warning" ? `Warning: ${event.reason}` : event.reason}</b>
              {event.times > 1 && <span class="muted"> × {event.times}</span>} <span class="muted">{event.object}</span>
              <span class="condition-message">{event.message}</span>
            </span>
          </li>
        ))}
      </ol>
      {(value?.further ?? 0) > 0 && (
        <Notice>
          {value?.further} earlier ones: <code>{`kubectl events --for ${of.kind.toLowerCase()}/${of.name}${place}`}</code>
        </Notice>
      )}
    </>
  );
}
