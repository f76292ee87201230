import { QueryError } from "../api/graphql.ts";
import { now } from "../model/now.ts";
import type { Stretch } from "../model/overview.ts";
import { type Status as Kind, WORDS } from "../model/status.ts";
import { Action, MissingRights } from "../parts/action.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../parts/states.tsx";
import { Shape, Status } from "../parts/status.tsx";
import { Strip } from "../parts/strip.tsx";
import { Ago, At, For } from "../parts/time.tsx";
import { Findings } from "./delivery/commits.tsx";
import { PlaceSamples } from "./place/samples.tsx";

const HOUR = 3_600_000;
const MAY = { allowed: true, reason: "" };
const MAY_NOT = { allowed: false, reason: "the role maintainer on shop/deploy is missing" };
const nothing = async () => ({ value: null, chain: null });
const KINDS = Object.keys(WORDS) as Kind[];

function Parts() {
  const at = now.value;
  const day: Stretch[] = [
    { from: at - 20 * HOUR, until: at - 9 * HOUR, status: "healthy" },
    { from: at - 9 * HOUR, until: at - 8 * HOUR, status: "degraded" },
    { from: at - 8 * HOUR, until: at - 2 * HOUR, status: "healthy" },
    { from: at - 2 * HOUR, until: at - 1.5 * HOUR, status: "progressing" },
    { from: at - 1.5 * HOUR, until: at, status: "degraded" },
  ];
  return (
    <>
      <h2>Status</h2>
      <div class="samples">
        {KINDS.map((kind) => (
          <Status status={kind} key={kind} />
        ))}
      </div>
      <h2>Stale</h2>
      <div class="samples">
        {KINDS.map((kind) => (
          <Status status={kind} stale word={`${WORDS[kind]}, stale 14 min`} key={kind} />
        ))}
      </div>
      <h2>Shapes</h2>
      <div class="samples">
        {KINDS.map((kind) => (
          <Shape status={kind} key={kind} />
        ))}
      </div>
      <h2>A day</h2>
      <Strip stretches={day} from={at - 24 * HOUR} until={at} />
      <PlaceSamples />
      <h2>Times</h2>
      <div class="samples">
        <Ago at={at - 4000} />
        <Ago at={at - 3 * HOUR} />
        <For since={at - 140 * 60_000} />
        <At at={at - HOUR} />
        <At at={at - 50 * HOUR} />
      </div>
      <h2>Controls</h2>
      <div class="samples">
        <button type="button">Plain</button>
        <button type="button" class="primary">
          Primary
        </button>
        <button type="button" class="quiet">
          Quiet
        </button>
        <button type="button" disabled>
          Disabled
        </button>
        <button type="button" class="chip">
          2 changes, reorder
        </button>
        <button type="button" class="chip filter" aria-pressed="true">
          Pressed
        </button>
        <input aria-label="Sample" placeholder="Filter" />
        <a href="/style">Link</a>
        <kbd>Ctrl K</kbd>
        <span class="tier">production</span>
      </div>
      <h2>Actions</h2>
      <div class="actions">
        <Action label="Sync" doing="Sync production/shop" command="kasbah source sync production/shop" right={MAY} run={nothing} done={() => {}}>
          <p>47 objects are checked.</p>
        </Action>
        <Action label="Suspend" doing="Suspend production/shop" command="kasbah source suspend production/shop" right={MAY_NOT} run={nothing} done={() => {}}>
          <p>Nothing new is applied.</p>
        </Action>
        <MissingRights rights={[MAY, MAY_NOT]} />
      </div>
      <progress value={31} max={47} aria-label="Objects that are as they should be" />
      <h2>Findings</h2>
      <Findings findings={[{ file: "manifests/web.yaml", line: 3, column: 7, field: "spec.replicas", message: "must be a number, and is \"<two>\"" }]} more={2} />
      <h2>Loading</h2>
      <Skeleton rows={3} label="Loading a sample" />
      <h2>Empty</h2>
      <Empty title="No environment is recorded yet. A CI job records its own:">
        <Command text="kasbah deployment start --env production --project shop/front" />
      </Empty>
      <h2>Partial</h2>
      <Notice>3 kinds cannot be seen: the agent may not list them.</Notice>
      <h2>Stale</h2>
      <Notice tone="warning">As it was known last: its agent is not connected since 13:58.</Notice>
      <h2>Forbidden</h2>
      <Trouble error={new QueryError("the role viewer on shop/front is missing", "denied")} retryAt={null} retry={() => {}} />
      <h2>Error</h2>
      <Trouble error={new QueryError("the server cannot be reached", "unavailable")} retryAt={at + 4000} retry={() => {}} />
    </>
  );
}

/** All parts in all states, in both themes: what the page is made of. */
export default function Style() {
  return (
    <main class="style">
      {(["light", "dark"] as const).map((theme) => (
        <section class={`style-theme is-${theme}`} key={theme} aria-label={theme}>
          <h1>{theme === "light" ? "Light" : "Dark"}</h1>
          <Parts />
        </section>
      ))}
    </main>
  );
}
