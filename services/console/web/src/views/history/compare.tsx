import { query, read } from "../../api/commands.ts";
import { count } from "../../model/news.ts";
import { environmentPath } from "../../model/paths.ts";
import { around } from "../../model/store.ts";
import { ofField, toField } from "../../model/time.ts";
import { Changes } from "../../parts/changes.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import { choose, chosen } from "../../router.ts";

interface Identified {
  identity: { kind: string; namespace: string; name: string };
  uid: string;
  health: { state: string; message: string };
}

interface EnvironmentDiff {
  differs: boolean;
  came: Identified[];
  went: Identified[];
  changed: { object: Identified; fields: { path: string; before?: string; after?: string }[]; field_count: number }[];
  left_out: number;
}

const MOMENTS = [
  ["-15m", "15 min ago"],
  ["-1h", "1 h ago"],
  ["-6h", "6 h ago"],
  ["-24h", "yesterday"],
] as const;

/** An environment at two moments: what came, what went, what changed. */
export function Compare() {
  const rest = around.state.value.value;
  const environments = rest?.environments.nodes ?? [];
  const wanted = chosen.value;
  const id = wanted.get("environment") ?? environments[0]?.id ?? null;
  const from = wanted.get("from") ?? "-1h";
  const to = wanted.get("to");
  const environment = environments.find((one) => one.id === id);
  if (!rest) return <Skeleton rows={6} label="Loading environments" />;
  if (environments.length === 0) {
    return (
      <Empty title="There is no environment that you may see. A source records one when its configuration names it, a CI job by:">
        <Command text="kasbah deployment start --env production --project shop/front" />
      </Empty>
    );
  }
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label="Which moments">
        <label class="field">
          Environment
          <select value={id ?? ""} onChange={(event) => choose("environment", event.currentTarget.value, true)}>
            {environments.map((one) => (
              <option value={one.id} key={one.id}>
                {one.projectPath} {one.name}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          From
          <input type="datetime-local" step={1} value={toField(from)} onChange={(event) => choose("from", ofField(event.currentTarget.value), true)} />
        </label>
        {MOMENTS.map(([moment, name]) => (
          <button type="button" class="chip filter" aria-pressed={from === moment} key={moment} onClick={() => choose("from", moment === "-1h" ? null : moment, true)}>
            {name}
          </button>
        ))}
        <label class="field">
          To
          <input type="datetime-local" step={1} value={to ? toField(to) : ""} onChange={(event) => choose("to", ofField(event.currentTarget.value), true)} />
        </label>
        <button type="button" class="chip filter" aria-pressed={to === null} onClick={() => choose("to", null, true)}>
          now
        </button>
      </form>
      {id && <Compared id={id} from={from} to={to} key={id} />}
      {environment && (
        <p class="pad">
          <a href={environmentPath(environment.id)}>
            {environment.projectPath} {environment.name} now
          </a>
        </p>
      )}
      {environment && <Command text={`kasbah env diff ${environment.name} --project ${environment.projectPath} --from ${from.replace(/^-/, "")}${to ? ` --to ${to}` : ""}`} />}
    </>
  );
}

/** What differs of an environment between two moments. */
export function Compared({ id, from, to }: { id: string; from: string; to: string | null }) {
  const diff = useLoaded((stop) => read<EnvironmentDiff>(`/environments/${encodeURIComponent(id)}/diff${query({ from, to })}`, stop), [id, from, to]);
  const { value, error, retryAt } = diff.state.value;
  if (error?.kind === "not-found") return <Empty title={`This moment is not known: ${error.message}.`} />;
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void diff.run()} />;
  if (!value) return <Skeleton rows={6} label="Comparing" />;
  if (!value.differs) return <Empty title="Nothing differs between these two moments." />;
  return (
    <div class="differences">
      <p>
        {count(value.came.length, "object")} came, {value.went.length} went, {value.changed.length} changed.
      </p>
      <Some title="Went" objects={value.went} isGrave />
      <Some title="Came" objects={value.came} />
      {value.changed.length > 0 && (
        <section class="consequence" aria-label="Changed">
          <h2>Changed</h2>
          <ul>
            {value.changed.map(({ object, fields, field_count }) => (
              <li key={object.uid}>
                <Named of={object} />
                <Changes fields={fields} />
                {field_count > fields.length && <span class="muted">and {count(field_count - fields.length, "more field")}</span>}
                {field_count === 0 && <span class="muted">what changed is not known for both moments</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {value.left_out > 0 && <Notice>{count(value.left_out, "more object")} may differ.</Notice>}
    </div>
  );
}

function Some({ title, objects, isGrave = false }: { title: string; objects: Identified[]; isGrave?: boolean }) {
  if (objects.length === 0) return null;
  return (
    <section class={isGrave ? "consequence is-grave" : "consequence"} aria-label={title}>
      <h2>{title}</h2>
      <ul>
        {objects.map((object) => (
          <li key={object.uid}>
            <Named of={object} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Named({ of }: { of: Identified }) {
  const state = of.health.state === "none" ? "none" : (of.health.state as "healthy");
  return (
    <span>
      <Status status={state} word={of.identity.kind} /> <code>{[of.identity.namespace, of.identity.name].filter(Boolean).join("/")}</code>
      {of.health.message && <span class="muted"> {of.health.message}</span>}
    </span>
  );
}
