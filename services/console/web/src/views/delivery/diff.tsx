import { type Consequence, consequences, diffInWords, placeOf } from "../../model/delivery.ts";
import { count, short } from "../../model/news.ts";
import { Changes } from "../../parts/changes.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import { Findings } from "./commits.tsx";
import { askDiff, type ObjectDiff, type WholeSource } from "../../api/delivery.ts";

/** Objects of one consequence that are drawn; the rest is counted. */
const OBJECTS = 100;

/** What the next sync would do, by a dry run in the cluster. `stamp` changes when it may be another. */
export function useDiff(source: string, stamp: string | null, seen?: () => void) {
  const load = async (stop: AbortSignal) => {
    const diff = await askDiff(source, stop);
    seen?.();
    return diff;
  };
  return useLoaded(load, [source, stamp]);
}

/** Before it is applied: everything that the next sync would do. */
export function NextSync({ source, name }: { source: WholeSource; name: string }) {
  const right = source.rights.find((one) => one.action === "DIFF");
  if (right && !right.allowed) return <Empty title={`You may not see what the next sync would do: ${right.reason}.`} />;
  return <Asked source={source} name={name} />;
}

function Asked({ source, name }: { source: WholeSource; name: string }) {
  const diff = useDiff(source.id, `${source.desiredCommit} ${source.heldCommit} ${source.syncedCommit}`);
  return (
    <>
      <Differences of={diff} />
      <p class="muted">This is a dry run in the cluster: nothing is changed.</p>
      <Command text={`kasbah source diff ${name}`} />
    </>
  );
}

/** The differences, the gravest first. */
export function Differences({ of, isBrief = false }: { of: ReturnType<typeof useDiff>; isBrief?: boolean }) {
  const { value, error, retryAt } = of.state.value;
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void of.run()} />;
  if (!value) return <Skeleton rows={4} label="Asking the cluster what would change" />;
  const all = consequences(value);
  return (
    <div class={isBrief ? "differences is-brief" : "differences"} tabIndex={isBrief ? 0 : -1} role="region" aria-label="What the next sync would do">
      <p>
        <b>{value.commit ? short(value.commit) : "No commit"}</b>: {diffInWords(value)}; {count(value.unchanged, "object")} {value.unchanged === 1 ? "stays as it is" : "stay as they are"}.
      </p>
      {value.pending && !isBrief && <Notice>Not delivered yet: {value.pending}.</Notice>}
      {value.stopped && <Notice tone="warning">The sync would not do all of this: {value.stopped.message}.</Notice>}
      {value.fetch_failure && <Notice tone="warning">The repository cannot be read, so there may be newer commits: {value.fetch_failure}.</Notice>}
      {value.rejected && (
        <>
          <Notice tone="warning">
            The newest commit <code>{short(value.rejected.commit)}</code> was rejected; this is the newest good one.
          </Notice>
          {!isBrief && <Findings findings={value.rejected.findings} more={value.rejected.more} />}
        </>
      )}
      {all.map((one) => (
        <Group of={one} key={one.title} />
      ))}
      {(value.left_out ?? 0) > 0 && <Notice>{count(value.left_out ?? 0, "more object")} would change: kasbah source diff shows them.</Notice>}
    </div>
  );
}

function Group({ of }: { of: Consequence }) {
  return (
    <section class={of.isGrave ? "consequence is-grave" : "consequence"} aria-label={of.title}>
      <h2>{of.title}</h2>
      <ul>
        {of.objects.slice(0, OBJECTS).map((object) => (
          <ObjectRow of={object} key={nameOf(object)} />
        ))}
      </ul>
      {of.objects.length > OBJECTS && <p class="muted">and {count(of.objects.length - OBJECTS, "more object")}</p>}
    </section>
  );
}

const nameOf = ({ identity }: ObjectDiff) => `${identity.group} ${identity.kind} ${identity.namespace}/${identity.name}`;

function ObjectRow({ of }: { of: ObjectDiff }) {
  const { identity, fields, message } = of;
  return (
    <li>
      <span>
        {identity.kind} <code>{[identity.namespace, identity.name].filter(Boolean).join("/")}</code>
        {of.file && <span class="muted"> {placeOf({ file: of.file, line: of.line ?? 0, column: 0 })}</span>}
      </span>
      {message && <span class="muted">{message}</span>}
      {fields.length > 0 && <Changes fields={fields.map(([path, before, after]) => ({ path, before, after }))} />}
    </li>
  );
}
