import { useSignal } from "@preact/signals";
import { ask, QueryError } from "../../api/graphql.ts";
import { DIFF, type DiffAnswer, type Difference } from "../../api/object.ts";
import { filterOf } from "../../api/place.ts";
import type { Past } from "../../api/queries.ts";
import { at, inAddress } from "../../model/at.ts";
import { fate, isGone } from "../../model/gone.ts";
import { ofHealth, WORDS } from "../../model/status.ts";
import { Empty } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { At } from "../../parts/time.tsx";
import { withChosen } from "../../router.ts";
import type { Shown } from "../drawer.tsx";
import { Differences } from "./differences.tsx";

/** Fields that are named of one change. */
const NAMED = 4;

function said(change: Past): string {
  if (isGone(change)) return `It ${fate([change], Date.now())}`;
  if (change.what === "gap") return "States of this time are not known";
  const fields = change.fields.slice(0, NAMED).join(", ");
  const more = change.fieldCount > NAMED ? ` and ${change.fieldCount - NAMED} more` : "";
  if (change.what === "changed") return fields ? `changed ${fields}${more}` : "changed it";
  if (change.what === "first-seen") return "is the writer where it was seen first";
  return `${change.what} it`;
}

/** What became of an object, the newest first; each time leads to that moment. */
export default function History({ of, answer }: Shown) {
  const moment = at.value;
  const all = answer.resourceHistory?.nodes ?? [];
  const past = moment === null ? all : all.filter((change) => Date.parse(change.recordedAt) <= moment);
  if (past.length === 0) return <Empty title="No change of it is known." />;
  return (
    <ol class="history">
      {past.map((change) => (
        <Entry change={change} of={of} key={`${change.recordedAt} ${change.what} ${change.uid}`} />
      ))}
      {all.length >= 100 && <li class="muted">Earlier ones: kasbah history</li>}
    </ol>
  );
}

function Entry({ change, of }: { change: Past; of: Shown["of"] }) {
  const values = useSignal<Difference[] | QueryError | "loading" | null>(null);
  const when = Date.parse(change.recordedAt);
  const open = async () => {
    if (values.value) {
      values.value = null;
      return;
    }
    values.value = "loading";
    const moments = { from: new Date(when - 1).toISOString(), to: new Date(when).toISOString() };
    try {
      const { diff } = await ask<DiffAnswer>(DIFF, { filter: filterOf(of), ...moments, status: true });
      values.value = diff.fields;
    } catch (error) {
      values.value = error instanceof QueryError ? error : new QueryError(String(error), "internal");
    }
  };
  const known = values.value;
  return (
    <li>
      <a class="muted" href={withChosen("t", inAddress(Math.ceil(when / 1000) * 1000))} title="Show this moment">
        <At at={when} />
      </a>
      <span>
        {change.what !== "gap" && !isGone(change) && <b>{change.writer?.manager ?? "somebody"} </b>}
        {said(change)}
        {change.healthBefore && (
          <span class="turn">
            <Status status={ofHealth(change.health)} word={`${WORDS[ofHealth(change.health)]}, was ${WORDS[ofHealth(change.healthBefore)].toLowerCase()}`} />
          </span>
        )}
        {change.what === "changed" && (
          <button type="button" class="quiet values" onClick={() => void open()} aria-expanded={known !== null}>
            {known === null ? "values" : "hide"}
          </button>
        )}
        {known === "loading" && <span class="muted"> loading</span>}
        {known instanceof QueryError && <span class="muted"> {known.message}</span>}
        {Array.isArray(known) && (known.length > 0 ? <Differences fields={known} /> : <span class="muted"> Its values are not kept.</span>)}
      </span>
    </li>
  );
}
