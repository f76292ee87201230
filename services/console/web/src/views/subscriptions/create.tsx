import { type Signal, useSignal } from "@preact/signals";
import { command } from "../../api/commands.ts";
import { projects } from "../../model/names.ts";
import { rightTo } from "../../model/rights.ts";
import { around } from "../../model/store.ts";
import { createBody, createCommand, typesOf, WAYS, type Wanted, type Way } from "../../model/subscriptions.ts";
import { Action } from "../../parts/action.tsx";
import { FromFields } from "./from.tsx";
import { Secret, type WithSecret } from "./secret.tsx";

const NOTHING: Wanted = { name: "", url: "", types: "", about: "", way: "cloud-events", from: { how: "here", text: "" } };
/** What people want to hear of. */
const COMMON = ["kasbah.sync.*", "kasbah.deployment.*", "kasbah.source.*", "kasbah.agent.*", "kasbah.observed.health-changed"];

/** Has exported events sent to a webhook. */
export function Create({ done }: { done: () => void }) {
  const wanted = useSignal(NOTHING);
  const environments = around.state.value.value?.environments.nodes ?? [];
  return (
    <Action
      label="Subscribe"
      doing="Create the subscription"
      command={createCommand(wanted.value, environments)}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command<WithSecret>("POST", "/subscriptions", createBody(wanted.value))}
      shows={(made) => (made as WithSecret).secret && <Secret of={made as WithSecret} />}
      done={() => {
        wanted.value = NOTHING;
        done();
      }}
      isPrimary
    >
      <Fields of={wanted} />
    </Action>
  );
}

/** They read what is typed themselves: the dialog around them hears of it later. */
function Fields({ of }: { of: Signal<Wanted> }) {
  const wanted = of.value;
  const change = (some: Partial<Wanted>) => (of.value = { ...of.peek(), ...some });
  const environments = around.state.value.value?.environments.nodes ?? [];
  const types = typesOf(wanted.types);
  const isFetched = wanted.way === "nats";
  const toggle = (type: string) => change({ types: (types.includes(type) ? types.filter((one) => one !== type) : [...types, type]).join(", ") });
  return (
    <>
      <p>
        {isFetched
          ? "A durable consumer is made on NATS, from which your organization's account there fetches each event that fits, and acknowledges it."
          : "Each exported event that fits is sent to the address, signed, in order, and again until it is taken."}
      </p>
      <label>
        Name
        <input required pattern="[a-z0-9]([a-z0-9\-]*[a-z0-9])?" maxLength={63} autocomplete="off" spellcheck={false} title="Lower-case letters, digits and hyphens" value={wanted.name} onInput={(event) => change({ name: event.currentTarget.value })} />
      </label>
      <label>
        Sends
        <select value={wanted.way} onChange={(event) => change({ way: event.currentTarget.value as Way })}>
          {WAYS.map(([way, words]) => (
            <option value={way} key={way}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {!isFetched && (
        <label>
          Address of the webhook
          <input type="url" required autocomplete="off" placeholder="https://example.com/hook" value={wanted.url} onInput={(event) => change({ url: event.currentTarget.value })} />
        </label>
      )}
      <label>
        Types
        <input autocomplete="off" spellcheck={false} placeholder={isFetched || wanted.way === "cloud-events" ? "all" : "none: how environments are"} value={wanted.types} onInput={(event) => change({ types: event.currentTarget.value })} />
      </label>
      <div class="filters" role="group" aria-label="Common types">
        {COMMON.map((type) => (
          <button type="button" class="chip filter" aria-pressed={types.includes(type)} key={type} onClick={() => toggle(type)}>
            {type.replace("kasbah.", "")}
          </button>
        ))}
      </div>
      {!isFetched && (
        <label>
          About
          <select value={wanted.about} onChange={(event) => change({ about: event.currentTarget.value })}>
            <option value="">everything</option>
            {(projects.state.value.value?.items ?? []).map(({ path }) => (
              <option value={`project:${path}`} key={path}>
                project {path}
              </option>
            ))}
            {environments.map(({ id, name, projectPath }) => (
              <option value={`environment:${id}`} key={id}>
                environment {name} of {projectPath}
              </option>
            ))}
          </select>
        </label>
      )}
      <FromFields of={wanted.from} here="from now on" choose={(from) => change({ from })} />
    </>
  );
}
