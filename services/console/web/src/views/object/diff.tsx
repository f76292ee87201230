import { useSignal } from "@preact/signals";
import { ask } from "../../api/graphql.ts";
import { askDiff, type Identity, type SourceDiff } from "../../api/delivery.ts";
import { DIFF, type DiffAnswer, type Difference } from "../../api/object.ts";
import { filterOf, type Line } from "../../api/place.ts";
import { instant } from "../../model/at.ts";
import { short } from "../../model/news.ts";
import { around } from "../../model/store.ts";
import { isInstant, ofField, toField } from "../../model/time.ts";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import { choose, chosen } from "../../router.ts";
import type { Shown } from "../drawer.tsx";
import { Differences } from "./differences.tsx";

const AGO = [
  ["10 minutes before", "10m", 600_000],
  ["1 hour before", "1h", 3_600_000],
  ["1 day before", "24h", 86_400_000],
] as const;

/** The source that has put an object there, if one did. */
function sourceOf(of: Line) {
  const owner = of.owners.find(({ kind }) => kind === "source");
  if (!owner) return null;
  const name = owner.name.slice(owner.name.lastIndexOf("/") + 1);
  return around.state.value.value?.sources.nodes.find((one) => one.agent === of.agent && one.name === name) ?? null;
}

/** An object beside what Git wants of it, or beside itself at another moment. */
export default function Diff({ of, answer }: Shown) {
  const source = sourceOf(of);
  const against = chosen.value.get("against") ?? (source && instant.value === null ? "git" : "1h");
  return (
    <>
      <div class="filters" role="group" aria-label="What it is compared with">
        {source && instant.value === null && (
          <button type="button" class="chip filter" aria-pressed={against === "git"} onClick={() => choose("against", "git", true)}>
            Git
          </button>
        )}
        {AGO.map(([words, name]) => (
          <button type="button" class="chip filter" key={name} aria-pressed={against === name} onClick={() => choose("against", name, true)}>
            {words}
          </button>
        ))}
        <label class="moment">
          <span class="muted">at </span>
          <input type="datetime-local" step="1" aria-label="Another moment" value={toField(against)} onChange={(event) => choose("against", ofField(event.currentTarget.value), true)} />
        </label>
      </div>
      {against === "git" && source && instant.value === null ? (
        <FromGit of={of} source={source.id} name={source.name} key={of.uid} />
      ) : (
        <FromMoment of={of} against={against} hasBody={Boolean(answer.resource?.body)} key={`${of.uid} ${against}`} />
      )}
    </>
  );
}

function FromMoment({ of, against, hasBody }: { of: Line; against: string; hasBody: boolean }) {
  const withStatus = useSignal(false);
  const to = instant.value;
  const ago = AGO.find(([, name]) => name === against);
  const from = isInstant(against) ? against : new Date((to ? Date.parse(to) : Date.now()) - (ago?.[2] ?? 3_600_000)).toISOString();
  const compared = useLoaded((stop) => ask<DiffAnswer>(DIFF, { filter: filterOf(of), from, to, status: withStatus.value }, stop), [of.uid, against, withStatus.value, to]);
  const { value, error, retryAt } = compared.state.value;
  const place = of.namespace ? ` -n ${of.namespace}` : "";
  return (
    <>
      <label class="check">
        <input type="checkbox" checked={withStatus.value} onChange={(event) => (withStatus.value = event.currentTarget.checked)} /> with status
      </label>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void compared.run()} />}
      {!value && !error && <Skeleton rows={3} label="Comparing" />}
      {value && <Compared diff={value.diff} hasBody={hasBody} />}
      <Command text={`kasbah diff ${of.kind.toLowerCase()}/${of.name}${place} --from ${isInstant(against) ? against : (ago?.[1] ?? "1h")}`} />
    </>
  );
}

function Compared({ diff, hasBody }: { diff: DiffAnswer["diff"]; hasBody: boolean }) {
  if (!diff.from && diff.to) return <Empty title="It was not there at that moment." />;
  if (diff.from && !diff.to) return <Empty title="It was there at that moment, and is gone." />;
  if (!diff.differs) return <Empty title={hasBody ? "Nothing differs." : "Nothing differs of what is known."} />;
  return <Differences fields={diff.fields} />;
}

function FromGit({ of, source, name }: { of: Line; source: string; name: string }) {
  const compared = useLoaded((stop) => askDiff(source, stop), [source]);
  const { value, error, retryAt } = compared.state.value;
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void compared.run()} />}
      {!value && !error && <Skeleton rows={3} label="The agent compares it with Git, by a dry run" />}
      {value && <Wanted diff={value} of={of} />}
      <Command text={`kasbah source diff ${of.agentName}/${name}`} />
    </>
  );
}

const WHAT: Record<SourceDiff["objects"][number]["change"], string> = {
  create: "The next sync would create it.",
  change: "The next sync would change it.",
  prune: "It is not in Git any more: the next sync would delete it.",
  keep: "It is not in Git any more, and is kept.",
  wait: "It cannot be applied yet.",
  refused: "A sync would not apply it.",
};

function parsed(text: string | null): unknown {
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const isOf = (of: Line) => ({ identity }: { identity: Identity }) =>
  identity.kind === of.kind && (identity.group ?? "") === of.group && (identity.namespace ?? "") === of.namespace && identity.name === of.name;

function Wanted({ diff, of }: { diff: SourceDiff; of: Line }) {
  const found = diff.objects.find(isOf(of));
  const extra = diff.extra?.find(isOf(of))?.fields ?? [];
  const fields: Difference[] = (found?.fields ?? []).map(([path, before, after]) => ({ path, before: parsed(before), after: parsed(after) }));
  return (
    <>
      {diff.pending && <Notice>Commit {short(diff.commit)} is not delivered yet: {diff.pending}.</Notice>}
      {!found && (
        <p class="drawer-reason">
          It is as commit <code>{short(diff.commit)}</code> has it.
        </p>
      )}
      {found && (
        <p class="drawer-reason">
          {WHAT[found.change]} {found.message}
          {found.file && (
            <span class="muted">
              {" "}
              {found.file}
              {found.line ? `:${found.line}` : ""} in commit {short(diff.commit)}
            </span>
          )}
        </p>
      )}
      {fields.length > 0 && <Differences fields={fields} />}
      {extra.length > 0 && (
        <p class="muted">
          Others added, and Git does not state: {extra.map(([path, manager]) => <code class="listed" key={`${path} ${manager}`} title={`by ${manager}`}>{path}</code>)}
        </p>
      )}
      {(diff.left_out ?? 0) > 0 && !found && <Notice>{diff.left_out} objects that differ were left out of the answer; this one may be among them.</Notice>}
    </>
  );
}
