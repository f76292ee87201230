import { useEffect } from "preact/hooks";
import { read } from "../../api/commands.ts";
import { learnNames, names } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { subscriptionPath } from "../../model/paths.ts";
import { learnRights, rightTo } from "../../model/rights.ts";
import { inOrder, type Reader, readerOf, reasonOf, standing, type Subscribers, type Subscription, wayOf, whereOf } from "../../model/subscriptions.ts";
import { MissingRights } from "../../parts/action.tsx";
import { useCalmOrder } from "../../parts/calm.ts";
import { Glow } from "../../parts/glow.tsx";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { PlainTable } from "../../parts/table.tsx";
import { Ago, For } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { Create } from "./create.tsx";

const EVERY = 3000;

/** Where exported events are sent to, and how that goes. */
export default function Subscriptions() {
  useEffect(learnNames, []);
  useEffect(learnRights, []);
  const all = usePolled((stop) => read<Subscribers>("/subscriptions", stop), [], { every: EVERY });
  const { error, retryAt } = all.state.value;
  const value = all.state.value.value?.items;
  const readers = all.state.value.value?.readers ?? [];
  const right = rightTo("MANAGE_SUBSCRIPTIONS");
  const isForbidden = error?.kind === "denied" || error?.kind === "not-found";
  return (
    <section class="listing" aria-labelledby="subscriptions">
      <header class="section-head">
        <h1 id="subscriptions">Subscriptions</h1>
        {value && <span class="muted">{count(value.length, "subscription")}</span>}
        <span class="section-actions">
          <Create done={() => void all.run()} />
        </span>
      </header>
      {isForbidden ? (
        <Forbidden reason={right?.reason ?? error?.message ?? ""} />
      ) : (
        <>
          <MissingRights rights={[right]} />
          {error && <Trouble error={error} retryAt={retryAt} retry={() => void all.run()} />}
          {!value && !error && <Skeleton rows={4} label="Loading subscriptions" />}
          {value?.length === 0 && (
            <Empty title="Exported events are sent nowhere. A webhook gets them, signed and in order:">
              <Command text="kasbah subscription create alerts --webhook https://example.com/hook --types 'kasbah.sync.*'" />
            </Empty>
          )}
          {value && value.length > 0 && <Lines of={value} />}
          {readers.length > 0 && <Readers of={readers} />}
          <Command text="kasbah subscription ls" />
        </>
      )}
    </section>
  );
}

/** Who follows exported events without a subscription, and how far they are. */
function Readers({ of }: { of: Reader[] }) {
  return (
    <section class="readers" aria-labelledby="readers">
      <header class="section-head">
        <h2 id="readers">Readers of /api/events</h2>
        <span class="muted">{count(of.length, "program")} connected now</span>
      </header>
      <PlainTable label="Readers, those who lag most first" columns={["Who", "Since", "Behind", "Oldest that waits"]} wide="Types">
        {of.map((one) => (
          <tr key={`${readerOf(one, new Map())} ${one.since}`}>
            <td>{readerOf(one, names.value)}</td>
            <td>
              <Ago at={Date.parse(one.since)} />
            </td>
            <td>{one.behind?.toLocaleString("en") ?? "–"}</td>
            <td>{one.oldest ? <Ago at={Date.parse(one.oldest)} /> : "none"}</td>
            <td class="wide">{one.filter.types?.join(", ") ?? "all events"}</td>
          </tr>
        ))}
      </PlainTable>
    </section>
  );
}

/** Why nothing is shown, and who gives the role that is missing. */
export function Forbidden({ reason }: { reason: string }) {
  return (
    <Empty title={`You may not see subscriptions: ${reason}.`}>
      <p class="muted">Owners of the organization manage them. An owner gives the role:</p>
      <Command text="kasbah user role <name> owner" />
    </Empty>
  );
}

function Lines({ of }: { of: Subscription[] }) {
  const { shown, moved, reorder, hands } = useCalmOrder(inOrder(of), (one) => one.id);
  return (
    <>
      {moved > 0 && (
        <button type="button" class="chip" onClick={reorder}>
          {count(moved, "change")}, reorder
        </button>
      )}
      <ul class="lines" {...hands}>
        {shown.map((one) => (
          <Row of={one} key={one.id} />
        ))}
      </ul>
    </>
  );
}

/** What a subscription is about, in words. */
export function aboutOf({ filter, format }: Subscription): string {
  const types = filter.types?.join(", ") ?? (format === "slack" || format === "message" ? "how environments are" : "all events");
  const about = filter.environment ?? filter.project;
  return about ? `${types} of ${names.value.get(about) ?? `${about.slice(0, 8)}…`}` : types;
}

function Row({ of }: { of: Subscription }) {
  const { status, word } = standing(of);
  const what = reasonOf(of, names.value) || aboutOf(of);
  return (
    <li>
      <a class="line subscription-line" href={subscriptionPath(of.name)} data-row>
        <span class="line-status">
          <Glow of={word}>
            <Status status={status} word={word} />
          </Glow>
        </span>
        <span class="line-name">
          <b>{of.name}</b> <span class="muted">{whereOf(of)}</span>
        </span>
        <span class="line-what" title={what}>
          {what}
        </span>
        <span class="line-commit muted">
          {of.behind ? `behind by ${of.behind.toLocaleString("en")}` : wayOf(of)}
          {of.oldest && (
            <>
              , the oldest for <For since={Date.parse(of.oldest)} />
            </>
          )}
          {of.dead_letters > 0 && <span class="word is-out-of-sync"> {count(of.dead_letters, "dead letter")}</span>}
        </span>
        <span class="line-when muted">
          {of.since ? (
            <>
              since <Ago at={Date.parse(of.since)} />
            </>
          ) : of.delivered_at ? (
            <>
              sent <Ago at={Date.parse(of.delivered_at)} />
            </>
          ) : (
            "nothing sent"
          )}
        </span>
      </a>
    </li>
  );
}
