import type { Related } from "../../api/object.ts";
import { statusOf } from "../../model/tree.ts";
import { Empty } from "../../parts/states.tsx";
import { Shape } from "../../parts/status.tsx";
import { withChosen } from "../../router.ts";
import type { Shown } from "../drawer.tsx";

/** Relations as a sentence has them: from this object to the other, and the other way round. */
const WORDS: Record<string, [outwards: string, inwards: string]> = {
  controls: ["controls", "is controlled by"],
  owns: ["owns", "is owned by"],
  selects: ["sends traffic to", "gets traffic from"],
  "has-endpoints": ["has its addresses in", "lists addresses of"],
  reaches: ["reaches", "is reached by"],
  "routes-to": ["routes to", "is routed to by"],
  serves: ["serves", "is served by"],
  scales: ["scales", "is scaled by"],
  protects: ["limits disruption of", "is protected by"],
  mounts: ["mounts", "is mounted by"],
  reads: ["reads", "is read by"],
  "runs-as": ["runs as", "is the identity of"],
  "runs-on": ["runs on", "runs"],
  binds: ["binds", "is bound by"],
  "grants-to": ["grants to", "is granted to by"],
  calls: ["is called at", "is called for"],
};

/** What an object is related to. */
export default function Relations({ answer, forest }: Shown) {
  const all = answer.resource?.related ?? [];
  if (all.length === 0) return <Empty title="It is related to nothing that you may see." />;
  const grouped = Map.groupBy(all, ({ relation, inwards }) => WORDS[relation]?.[inwards ? 1 : 0] ?? relation);
  return (
    <dl class="relations">
      {[...grouped].map(([words, related]) => (
        <div key={words}>
          <dt class="muted">{words}</dt>
          <dd>
            {related.map((one) => (
              <Other one={one} forest={forest} key={`${one.kind} ${one.namespace} ${one.name}`} />
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Other({ one, forest }: { one: Related; forest: Shown["forest"] }) {
  const known = one.uid ? forest.get(one.uid)?.line : undefined;
  return (
    <span class="listed">
      <Shape status={known ? statusOf(known) : one.missing ? "missing" : "none"} stale={Boolean(known?.stale)} /> <span class="muted">{one.kind}</span>{" "}
      {known ? <a href={withChosen("object", known.uid)}>{one.name}</a> : <code>{one.name}</code>}
      {one.missing && <span class="muted"> is not there</span>}
      {!one.missing && !one.uid && <span class="muted"> is not seen</span>}
    </span>
  );
}
