import { useEffect } from "preact/hooks";
import { read } from "../../api/commands.ts";
import { learnNames, names } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { subscriptionPath } from "../../model/paths.ts";
import { learnRights, rightTo } from "../../model/rights.ts";
import { inOrder, standing, type Subscription, wayOf, whereOf } from "../../model/subscriptions.ts";
import { MissingRights } from "../../parts/action.tsx";
import { useCalmOrder } from "../../parts/calm.ts";
import { Glow } from "../../parts/glow.tsx";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { Create } from "./create.tsx";

const EVERY = 3000;

/** Where exported events are sent to, and how that goes. */
export default function Subscriptions() {
  useEffect(learnNames, []);
  useEffect(learnRights, []);
  const all = usePolled(async (stop) => (await read<{ items: Subscription[] }>("/subscriptions", stop)).items, [], { every: EVERY });
  const { value, error, retryAt } = all.state.value;
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
          <Command text="kasbah subscription ls" />
        </>
      )}
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
        <span class="line-what" title={of.reason || aboutOf(of)}>
          {of.reason || aboutOf(of)}
        </span>
        <span class="line-commit muted">
          {of.behind ? `behind by ${of.behind.toLocaleString("en")}` : wayOf(of)}
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
