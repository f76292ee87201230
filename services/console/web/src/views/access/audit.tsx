import { query } from "../../api/commands.ts";
import { actorOf, type LogEvent, named } from "../../model/log.ts";
import { names, users } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { around } from "../../model/store.ts";
import { absolute } from "../../model/time.ts";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { useTail } from "../../parts/use-tail.ts";
import { choose, chosen } from "../../router.ts";

const ROWS = 300;
const HOUR = 3_600_000;
const SPANS = [
  ["1h", "1 h", HOUR],
  ["24h", "24 h", 24 * HOUR],
  ["7d", "7 d", 168 * HOUR],
] as const;
const clock = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

interface Audited {
  agent: string;
  phase: string;
  attributes: { verb: string; target: { path: string } | { resource: { group?: string; resource: string; subresource?: string; namespace?: string; name?: string } } };
  dry_run?: boolean;
  is_recorded?: boolean;
  because: string;
  code: number;
  millis: number;
  client?: string;
}

function asked({ attributes: { verb, target }, dry_run }: Audited): string {
  const dry = dry_run ? " (dry run)" : "";
  if ("path" in target) return `${verb} ${target.path}${dry}`;
  const { group, resource, subresource, namespace, name } = target.resource;
  const what = `${resource}${group ? `.${group}` : ""}${subresource ? `/${subresource}` : ""}`;
  return `${verb} ${what} ${[namespace, name].filter(Boolean).join("/")}${dry}`.trim();
}

/** What people and jobs did with clusters' APIs, by which entry, as it goes on. */
export function Audit() {
  const wanted = chosen.value;
  const [agent, user, text] = [wanted.get("agent"), wanted.get("user"), wanted.get("q") ?? ""];
  const span = SPANS.find(([id]) => id === wanted.get("since")) ?? SPANS[1];
  const path = `/log/audit${query({ agent, user })}`;
  const followed = useTail(path, span[2]);
  const { isLive, error } = followed.state.value;
  const known = names.value;
  const words = (event: LogEvent) => `${named(actorOf(event), known)} ${asked(event.data as unknown as Audited)} ${(event.data as unknown as Audited).because} ${(event.data as unknown as Audited).code}`.toLowerCase();
  const found = followed.events.value.filter((event) => event.data && words(event).includes(text.toLowerCase())).reverse();
  if (error && (error.kind === "denied" || error.kind === "not-found")) {
    return (
      <Empty title={`You may not read the audit log: ${error.message}.`}>
        <p class="muted">An owner of the organization gives a role that may:</p>
        <Command text="kasbah user role <name> maintainer" />
      </Empty>
    );
  }
  return (
    <>
      <div class="filters" role="search" aria-label="Filter the audit log">
        <input type="search" aria-label="Any text" placeholder="Any text" value={text} onInput={(event) => choose("q", event.currentTarget.value || null, true)} />
        <label class="field">
          Cluster
          <select value={agent ?? ""} onChange={(event) => choose("agent", event.currentTarget.value || null, true)}>
            <option value="">all</option>
            {around.state.value.value?.agents.nodes.map((one) => (
              <option value={one.id} key={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          Who
          <select value={user ?? ""} onChange={(event) => choose("user", event.currentTarget.value || null, true)}>
            <option value="">anybody</option>
            {users.state.value.value?.items.map((one) => (
              <option value={one.name ?? one.id} key={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        {SPANS.map(([id, name]) => (
          <button type="button" class="chip filter" aria-pressed={id === span[0]} key={id} onClick={() => choose("since", id === "24h" ? null : id, true)}>
            {name}
          </button>
        ))}
      </div>
      {error && <Trouble error={error} retryAt={null} retry={() => choose("since", span[0])} />}
      {!isLive && !error && <Skeleton rows={6} label="Loading the audit log" />}
      {isLive && found.length === 0 && <Empty title={`Nobody used a cluster's API by Kasbah in the last ${span[1]}${text || agent || user ? " in this way" : ""}.`} />}
      {found.length > 0 && (
        <ol class="log audit" aria-label="Requests, the newest first">
          {found.slice(0, ROWS).map((event) => (
            <AuditRow event={event} key={event.id} />
          ))}
        </ol>
      )}
      {found.length > ROWS && <p class="muted pad">{count(found.length - ROWS, "earlier request")} not drawn.</p>}
      <Command text={`kasbah audit --since ${span[0]}${agent ? ` --agent ${known.get(agent) ?? agent}` : ""}${user ? ` --user ${user}` : ""} -f`} />
    </>
  );
}

function AuditRow({ event }: { event: LogEvent }) {
  const record = event.data as unknown as Audited;
  const isGood = record.code >= 100 && record.code < 400;
  const code = record.code === 0 ? (record.phase === "began" ? "asked" : "left") : String(record.code);
  return (
    <li>
      <span class="event audit-row" data-row tabIndex={0} title={record.client}>
        <time class="muted" dateTime={event.time} title={absolute(Date.parse(event.time))}>
          {clock.format(Date.parse(event.time))}
        </time>
        <b class="event-who">{named(actorOf(event), names.value).replace(/^user:/, "")}</b>
        <span class="event-what">
          <code>{asked(record)}</code> <span class="muted">in {names.value.get(record.agent) ?? record.agent.slice(0, 8)}</span>
        </span>
        <span class={isGood ? "muted" : "word is-degraded"}>
          {code}
          {record.phase === "began" ? " began" : ` ${record.millis} ms`}
          {record.is_recorded && " recorded"}
        </span>
        <span class="event-because muted">{record.because}</span>
      </span>
    </li>
  );
}
