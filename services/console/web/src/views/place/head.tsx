import type { Place } from "../../api/place.ts";
import type { Health } from "../../api/types.ts";
import { at } from "../../model/at.ts";
import { count, short } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import { commitPath } from "../../model/paths.ts";
import type { Known } from "../../model/place.ts";
import { compare, isBad, ofHealth, type Status as Kind, WORDS, worst } from "../../model/status.ts";
import { around, groups } from "../../model/store.ts";
import { readable } from "../../model/time.ts";
import { type Node, statusOf } from "../../model/tree.ts";
import { AsOf } from "../../parts/as-of.tsx";
import { Notice } from "../../parts/states.tsx";
import { Shape, Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { choose, withChosen } from "../../router.ts";

/** Objects at the top, of which the state of a place is made. */
function counted(known: Known): Node[] {
  return [...known.forest.values()].filter(({ line, parent }) => (parent === null || !known.forest.has(parent)) && !line.health.optional && line.kind !== "Event");
}

function stateOf(known: Known | null): Kind {
  if (!known) return "none";
  if (known.rollUp) return ofHealth(known.rollUp.state);
  return worst(counted(known).map(({ line }) => statusOf(line)));
}

/** What a place is, how it is doing and why, and what was delivered to it last. */
export function Head({ place: { environment, agent: id, namespace }, known }: { place: Place; known: Known | null }) {
  const agent = around.state.value.value?.agents.nodes.find((one) => one.id === id);
  const moment = at.value;
  const group = moment === null ? groups.value?.find((one) => one.agent === id && one.namespace === namespace && one.key.includes("/")) : undefined;
  const status = stateOf(known);
  const last = environment?.lastDeployment;
  // What it was delivered by, where a job did not do it by itself.
  const source = around.state.value.value?.sources.nodes.find((one) => one.agent === id && one.defaultNamespace === namespace);
  const wasThere = last && (moment === null || Date.parse(last.createdAt) <= moment);
  const stale = moment === null ? (known?.rollUp?.stale ?? group?.stale ?? null) : null;
  return (
    <header class="place-head">
      <div class="section-head">
        <h1 id="place">{environment ? `${environment.projectPath} ${environment.name}` : namespace || "cluster-wide objects"}</h1>
        {environment && environment.tier.toLowerCase() !== environment.name && <span class="tier">{environment.tier.toLowerCase()}</span>}
        {known && <Status status={status} stale={stale !== null} />}
        <AsOf />
      </div>
      {known && isBad(status) && <Reasons known={known} remarks={group?.remarks.map(({ text }) => text) ?? []} />}
      <p class="muted facts">
        <span>
          {agent?.name ?? "an agent that you may not see"} / {namespace || "no namespace"}
        </span>
        {last && wasThere && (
          <span>
            {last.status === "RUNNING" ? "deploying" : last.status === "FAILED" ? "failed to deploy" : "deployed"}{" "}
            {source && last.sha ? (
              <a href={commitPath(source.id, last.sha)}>
                <code>{short(last.sha)}</code>
              </a>
            ) : (
              <code>{short(last.sha)}</code>
            )}
            {last.ref && ` of ${last.ref}`} <Ago at={Date.parse(last.createdAt)} />
          </span>
        )}
        {environment?.externalUrl && /^https?:/.test(environment.externalUrl) && (
          <a href={environment.externalUrl} target="_blank" rel="noreferrer noopener">
            {environment.externalUrl}
          </a>
        )}
        {known && <Counts known={known} isStale={stale !== null} />}
      </p>
      {stale && <Notice tone="warning">As it was known last: {readable(stale, lately.value)}.</Notice>}
      {known?.rollUp?.hidden && <Notice>{known.rollUp.hidden}</Notice>}
    </header>
  );
}

const REASONS = 3;

/** Why it is not well: objects at the top that are not, each with the words of what is to blame. */
function Reasons({ known, remarks }: { known: Known; remarks: string[] }) {
  const wrong = counted(known)
    .filter(({ line }) => isBad(statusOf(line)))
    .sort((one, other) => compare(statusOf(one.line), statusOf(other.line)));
  return (
    <ul class="place-reasons">
      {remarks.map((text) => (
        <li key={text}>{readable(text, lately.value)}</li>
      ))}
      {wrong.slice(0, REASONS).map(({ line }) => (
        <li key={line.uid}>
          <Shape status={statusOf(line)} stale={line.stale !== null} />
          <span class="why" title={line.health.message}>
            <a href={withChosen("object", line.uid)}>
              {line.kind} {line.name}
            </a>
            {line.health.message && `: ${readable(line.health.message, lately.value)}`}
          </span>
        </li>
      ))}
      {wrong.length > REASONS && <li class="muted">and {count(wrong.length - REASONS, "more object", "more objects")}</li>}
    </ul>
  );
}

/** How many are how; each leads to these in the table. */
function Counts({ known, isStale }: { known: Known; isStale: boolean }) {
  const counts: { state: Health; count: number }[] =
    known.rollUp?.counts ?? [...Map.groupBy(counted(known), ({ line }) => line.health.state)].map(([state, { length }]) => ({ state, count: length }));
  const all = known.leftOut > 0 && known.rollUp ? known.rollUp.objects : [...known.forest.values()].filter(({ line }) => line.kind !== "Event").length;
  return (
    <span class="counts">
      {count(all, "object")}
      {counts
        .filter(({ state }) => state !== "NONE")
        .map(({ state, count: number }) => ({ status: ofHealth(state), number }))
        .sort((one, other) => compare(one.status, other.status))
        .map(({ status, number }) => (
          <button
            type="button"
            class="quiet"
            key={status}
            onClick={() => {
              choose("health", status, true);
              choose("view", "table");
            }}
          >
            <Shape status={status} stale={isStale} /> {number} {WORDS[status].toLowerCase()}
          </button>
        ))}
    </span>
  );
}
