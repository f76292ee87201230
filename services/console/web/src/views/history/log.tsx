import { useEffect, useMemo } from "preact/hooks";
import { type Filter, actorOf, type LogEvent, matches, named, shortType, summary, TONES, toneOf } from "../../model/log.ts";
import { names } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { chainPath } from "../../model/paths.ts";
import { KEPT } from "../../model/tail.ts";
import { absolute } from "../../model/time.ts";
import { yaml } from "../../model/yaml.ts";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { useTail } from "../../parts/use-tail.ts";
import { choose, chosen } from "../../router.ts";
import { Density } from "./density.tsx";

const SPANS = [
  ["10m", "10 min", 600_000],
  ["1h", "1 h", 3_600_000],
  ["6h", "6 h", 21_600_000],
  ["24h", "24 h", 86_400_000],
  ["7d", "7 d", 604_800_000],
] as const;
const ROWS = 400;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** The log of the organization, filtered by anything, as it goes on. */
export function Log() {
  const wanted = chosen.value;
  const span = SPANS.find(([id]) => id === wanted.get("since")) ?? SPANS[1];
  const followed = useTail("/log/events", span[2]);
  const filter: Filter = { text: wanted.get("q") ?? "", type: wanted.get("type") ?? "", actor: wanted.get("who") ?? "", subject: wanted.get("of") ?? "" };
  const { isLive, error, left } = followed.state.value;
  const all = followed.events.value;
  const found = useMemo(() => all.filter((event) => matches(event, filter, names.value)).reverse(), [all, names.value, wanted.toString()]);
  const open = all.find((event) => event.id === wanted.get("event"));
  if (error && (error.kind === "denied" || error.kind === "not-found")) return <Forbidden message={error.message} />;
  return (
    <div class={open ? "with-drawer log-frame" : "log-frame"}>
      <div>
        <Filters filter={filter} events={all} span={span[0]} />
        {error && <Trouble error={error} retryAt={null} retry={() => choose("since", span[0])} />}
        <Density events={found} from={Date.now() - span[2]} until={Date.now()} />
        {!isLive && !error && all.length === 0 && <Skeleton rows={10} label="Loading the log" />}
        {isLive && found.length === 0 && <Empty title={all.length === 0 ? `Nothing was recorded in the last ${span[1]}.` : "No event matches the filter."} />}
        {found.length > 0 && <Rows events={found.slice(0, ROWS)} />}
        {found.length > ROWS && <p class="muted pad">{count(found.length - ROWS, "earlier event")} not drawn: filter, or choose a shorter time.</p>}
        {left > 0 && <Notice>Only the newest {KEPT.toLocaleString("en")} events of this time are kept here: kasbah log tail has all.</Notice>}
        <Command text={`kasbah log tail --since ${span[0]} -f`} />
      </div>
      {open && <Opened event={open} />}
    </div>
  );
}

function Forbidden({ message }: { message: string }) {
  return (
    <Empty title={`You may not read the log: ${message}.`}>
      <p class="muted">An owner of the organization gives a role that may:</p>
      <Command text="kasbah user role <name> maintainer" />
    </Empty>
  );
}

function Filters({ filter, events, span }: { filter: Filter; events: LogEvent[]; span: string }) {
  const types = useMemo(() => [...new Set(events.map((event) => shortType(event.type)))].sort(), [events]);
  const field = (name: string, value: string, label: string, list?: string) => (
    <input type="search" aria-label={label} placeholder={label} value={value} list={list} onInput={(event) => choose(name, event.currentTarget.value || null, true)} />
  );
  const preset = (name: "type" | "who", value: string, label: string) => {
    const isOn = (name === "type" ? filter.type : filter.actor) === value;
    return (
      <button type="button" class="chip filter" aria-pressed={isOn} onClick={() => choose(name, isOn ? null : value, true)}>
        {label}
      </button>
    );
  };
  return (
    <div class="filters log-filters" role="search" aria-label="Filter the log">
      {field("q", filter.text, "Any text")}
      {field("type", filter.type, "Type", "types")}
      {field("who", filter.actor, "Who")}
      {field("of", filter.subject, "Source, agent or aggregate")}
      <datalist id="types">
        {types.map((type) => (
          <option value={type} key={type} />
        ))}
      </datalist>
      {preset("who", "user:", "By people")}
      {preset("type", "refused", "Refused")}
      {preset("type", "source.advanced", "Pushes")}
      {preset("type", "sync.finished", "Syncs")}
      <span class="spans" role="group" aria-label="Since">
        {SPANS.map(([id, name]) => (
          <button type="button" class="chip filter" aria-pressed={id === span} key={id} onClick={() => choose("since", id === "1h" ? null : id, true)}>
            {name}
          </button>
        ))}
      </span>
    </div>
  );
}

function Rows({ events }: { events: LogEvent[] }) {
  const today = day.format(Date.now());
  return (
    <ol class="log" aria-label="Events, the newest first">
      {events.map((event) => {
        const at = Date.parse(event.time);
        const date = day.format(at);
        return (
          <li key={event.id}>
            <button type="button" class={`event is-${toneOf(event)}`} data-row aria-pressed={chosen.value.get("event") === event.id} onClick={() => choose("event", event.id)}>
              <time class="muted" dateTime={event.time} title={absolute(at)}>
                {date !== today && `${date} `}
                {clock.format(at)}
              </time>
              <span class="event-tone">{toneOf(event) !== "plain" && <Shape status={TONES[toneOf(event)]} />}</span>
              <code>{shortType(event.type)}</code>
              <span class="event-what">{named(summary(event), names.value)}</span>
              <span class="event-of muted">{named(event.subject, names.value)}</span>
              <span class="event-who muted">{event.actor ? named(actorOf(event), names.value).replace(/^(user|service):/, "") : ""}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

function Opened({ event }: { event: LogEvent }) {
  useEffect(() => {
    const onKey = (key: KeyboardEvent) => {
      if (key.key === "Escape" && !document.querySelector("dialog[open]")) choose("event", null);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const actor = actorOf(event);
  return (
    <aside class="drawer" aria-label={`Event ${shortType(event.type)}`}>
      <header>
        <div>
          <p class="muted">{named(event.subject, names.value)}</p>
          <h2>{shortType(event.type)}</h2>
        </div>
        <button type="button" class="quiet" onClick={() => choose("event", null)} aria-label="Close the event">
          Close
        </button>
      </header>
      <div class="tab" tabIndex={0} role="region" aria-label="What it holds">
        <dl class="fields">
          <div>
            <dt>When</dt>
            <dd>{absolute(Date.parse(event.time))}</dd>
          </div>
          {actor && (
            <div>
              <dt>Who</dt>
              <dd>
                <button type="button" class="quiet link" onClick={() => choose("who", named(actor, names.value))}>
                  {named(actor, names.value)}
                </button>
              </dd>
            </div>
          )}
          <div>
            <dt>Of</dt>
            <dd>
              <button type="button" class="quiet link" onClick={() => choose("of", event.subject)}>
                {event.subject}
              </button>
            </dd>
          </div>
          {event.correlationid && (
            <div>
              <dt>Cause</dt>
              <dd>
                <a href={chainPath(event.correlationid)}>Everything that followed from it</a>
              </dd>
            </div>
          )}
        </dl>
        <pre class="yaml">{yaml(event.data)}</pre>
        {event.correlationid && <Command text={`kasbah log trace ${event.correlationid}`} />}
      </div>
    </aside>
  );
}
