import { useEffect, useMemo } from "preact/hooks";
import { ask } from "../../api/graphql.ts";
import { loader } from "../../model/loaded.ts";
import { short } from "../../model/news.ts";
import { chainPath } from "../../model/paths.ts";
import { Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { At } from "../../parts/time.tsx";
import { DEEDS, type Deed } from "../../api/delivery.ts";

/** What people did with a source. `stamp` changes when there may be more. */
export function Deeds({ id, stamp }: { id: string; stamp: string }) {
  const deeds = useMemo(() => loader(async (stop) => (await ask<{ source: { deeds: Deed[] } }>(DEEDS, { id }, stop)).source.deeds), [id]);
  useEffect(() => void deeds.run(), [deeds, stamp]);
  useEffect(() => deeds.stop, [deeds]);
  const { value, error, retryAt } = deeds.state.value;
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void deeds.run()} />;
  if (!value) return <Skeleton rows={4} label="Loading what people did" />;
  if (value.length === 0) return <Empty title="Nobody suspended, pinned, confirmed or synced it by hand." />;
  return (
    <ol class="deeds">
      {value.map((deed) => (
        <li key={`${deed.at} ${deed.what}`}>
          <span class="muted">
            <At at={Date.parse(deed.at)} />
          </span>
          <span>
            <b>{deed.by}</b> {deed.what === "sync requested" ? "asked for a sync" : `${deed.what} it`}
            {deed.detail && /^[0-9a-f]{40,64}$/.test(deed.detail) ? (
              <>
                {deed.what === "pinned" ? " to " : ": "}
                <code>{short(deed.detail)}</code>
              </>
            ) : (
              deed.detail && `: ${deed.detail}`
            )}
          </span>
          <a href={chainPath(deed.chain)}>What followed</a>
        </li>
      ))}
    </ol>
  );
}
