import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { command, read } from "../../api/commands.ts";
import { learnNames, names } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { now } from "../../model/now.ts";
import { quoted } from "../../model/quoted.ts";
import { learnRights, rightTo } from "../../model/rights.ts";
import { type From, fromOf, reasonOf, standing, type Subscription, wayOf, whereOf } from "../../model/subscriptions.ts";
import { span } from "../../model/time.ts";
import { Action, MissingRights } from "../../parts/action.tsx";
import { Glow } from "../../parts/glow.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago, For } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { go } from "../../router.ts";
import { FromFields } from "./from.tsx";
import { Letters } from "./letters.tsx";
import { Secret, type WithSecret } from "./secret.tsx";
import { aboutOf, Forbidden } from "./subscriptions.tsx";

const EVERY = 2000;
const LIST = "/subscriptions";

/** One subscription: how it stands and why, what its receiver refused, and what can be done. */
export default function SubscriptionView({ matched }: { matched: string[] }) {
  const name = matched[0] ?? "";
  const path = `${LIST}/${encodeURIComponent(name)}`;
  useEffect(learnNames, []);
  useEffect(learnRights, []);
  const one = usePolled((stop) => read<Subscription>(path, stop), [path], { every: EVERY });
  const { value, error, retryAt } = one.state.value;
  const right = rightTo("MANAGE_SUBSCRIPTIONS");
  const again = () => void one.run();
  if (right && !right.allowed) return <Forbidden reason={right.reason} />;
  if (error?.kind === "not-found") return <Empty title={`There is no subscription ${name}.`} />;
  if (error && !value) return <Trouble error={error} retryAt={retryAt} retry={again} />;
  if (!value) return <Skeleton rows={8} label="Loading the subscription" />;
  const { status, word } = standing(value);
  return (
    <section class="listing subscription" aria-labelledby="subscription">
      <header class="place-head">
        <div class="section-head">
          <h1 id="subscription">{value.name}</h1>
          <Glow of={word}>
            <Status status={status} word={word} />
          </Glow>
          {value.since && (
            <span class="muted">
              for <For since={Date.parse(value.since)} />
            </span>
          )}
        </div>
        {value.reason && <p class="place-reason clamped">{reasonOf(value, names.value)}</p>}
      </header>
      {error && <Trouble error={error} retryAt={retryAt} retry={again} />}
      <NextAttempt of={value} />
      <p class="actions">
        {value.state !== "active" && <Resume of={value} path={path} done={again} />}
        {value.state !== "paused" && <Pause of={value} path={path} done={again} />}
        <Replay of={value} path={path} done={again} />
        {!value.consumer && <Rotate of={value} path={path} done={again} />}
        <Delete of={value} path={path} />
      </p>
      <MissingRights rights={[right]} />
      <Facts of={value} />
      {!value.consumer && <Letters of={value} path={path} done={again} />}
      <Command text={`kasbah subscription show ${quoted(value.name)}`} />
    </section>
  );
}

function NextAttempt({ of: { state, retry_at } }: { of: Subscription }) {
  if (state === "parked" || state === "paused") return <Notice tone="warning">Nothing is sent until it is resumed. Events wait for seven days, or as long as the operator keeps them.</Notice>;
  if (!retry_at) return null;
  const wait = Date.parse(retry_at) - now.value;
  return <Notice tone="warning">Later events wait, so that the order stays. {wait > 0 ? `The next attempt is made in ${span(wait + 999)}.` : "An attempt is made now."}</Notice>;
}

function Facts({ of }: { of: Subscription }) {
  const field = (name: string, what: ComponentChildren) => (
    <div>
      <dt>{name}</dt>
      <dd>{what}</dd>
    </div>
  );
  return (
    <dl class="fields">
      {field("Sends", aboutOf(of))}
      {field("To", <code>{whereOf(of)}</code>)}
      {field("As", wayOf(of))}
      {field("Last sent", of.delivered_at ? <Ago at={Date.parse(of.delivered_at)} /> : "nothing yet")}
      {field("Behind", of.behind === undefined ? "not known before its first event" : of.behind === 0 ? "nothing" : `${of.behind.toLocaleString("en")} exported events${of.consumer ? "" : ", whether it wants them or not"}`)}
      {field("Oldest that waits", of.oldest ? <Ago at={Date.parse(of.oldest)} /> : "none")}
      {of.position && field("Position", <code>{of.position}</code>)}
      {field("Created", <Ago at={Date.parse(of.created_at)} />)}
    </dl>
  );
}

interface Props {
  of: Subscription;
  path: string;
  done: () => void;
}

function Pause({ of, path, done }: Props) {
  return (
    <Action
      label="Pause"
      doing={`Pause ${of.name}`}
      command={`kasbah subscription pause ${quoted(of.name)}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command("POST", `${path}/pause`, {})}
      done={done}
    >
      <p>{of.consumer ? "Programs that fetch get nothing" : "Nothing is sent"} until somebody resumes it. It stays where it is: events wait for seven days, or as long as the operator keeps them.</p>
    </Action>
  );
}

function Resume({ of, path, done }: Props) {
  return (
    <Action
      label="Resume"
      doing={`Resume ${of.name}`}
      command={`kasbah subscription resume ${quoted(of.name)}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command("POST", `${path}/resume`, {})}
      done={done}
      isPrimary={of.state !== "retrying"}
    >
      <p>
        {of.consumer ? "Programs fetch again, from where they were." : "Sending goes on behind the last event that was dealt with, at once."}
        {of.behind ? ` ${count(of.behind, "event")} came since.` : ""} A gap event says which events have left the server meanwhile, if any.
      </p>
    </Action>
  );
}

function Replay({ of, path, done }: Props) {
  const from = useSignal<From>({ how: "time", text: "" });
  const where = fromOf(from.value);
  return (
    <Action
      label="Replay"
      doing={`Replay ${of.name}`}
      command={`kasbah subscription replay ${quoted(of.name)} --from ${where ? quoted(where) : "POSITION"}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command("POST", `${path}/replay`, { from: where })}
      done={done}
    >
      <Where from={from} />
    </Action>
  );
}

/** It reads what is chosen itself: the dialog around it hears of it later. */
function Where({ from }: { from: Signal<From> }) {
  return (
    <>
      <p>Events from there on are sent again, also those that the receiver has. Each has the id that it had.</p>
      <FromFields of={from.value} choose={(chosen) => (from.value = chosen)} />
    </>
  );
}

function Rotate({ of, path, done }: Props) {
  return (
    <Action
      label="Rotate the secret"
      doing={`Make another secret for ${of.name}`}
      command={`kasbah subscription rotate ${quoted(of.name)}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command<WithSecret>("POST", `${path}/secrets`, {})}
      shows={(made) => <Secret of={made as WithSecret} />}
      done={done}
    >
      <p>For a day, messages have two signatures, one with each secret. Then the present secret counts no more.</p>
    </Action>
  );
}

function Delete({ of, path }: Omit<Props, "done">) {
  return (
    <Action
      label="Delete"
      doing={`Delete ${of.name}`}
      command={`kasbah subscription delete ${quoted(of.name)}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command("DELETE", path)}
      done={() => go(LIST, true)}
      isDangerous
    >
      <p>
        {of.consumer ? `Its consumer ${of.consumer.name} on NATS is deleted.` : `Nothing is sent to ${whereOf(of)} any more. Its secret counts no more.`}
        {of.dead_letters > 0 && ` Its ${of.dead_letters} dead letters are gone with it.`} Its position is forgotten.
      </p>
    </Action>
  );
}
