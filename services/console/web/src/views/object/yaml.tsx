import { useSignal } from "@preact/signals";
import { yaml } from "../../model/yaml.ts";
import { pieces } from "../../model/highlight.ts";
import { count } from "../../model/news.ts";
import { Empty, Notice } from "../../parts/states.tsx";
import type { Shown } from "../drawer.tsx";

/** Lines that are drawn; the rest is counted. */
const LINES = 4000;

/** An object's body as YAML. Nothing of it is markup: each piece is text. */
export default function Yaml({ of, answer }: Shown) {
  const search = useSignal("");
  const body = answer.resource?.body ?? null;
  if (!body) return <Empty title="Its body is not known: it was compacted away, or you may not see it." />;
  const text = yaml(body);
  const lines = text.trimEnd().split("\n");
  const wanted = search.value.toLowerCase();
  const found = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)).length : 0;
  const place = of.namespace ? ` -n ${of.namespace}` : "";
  return (
    <>
      <div class="filters">
        <input type="search" aria-label="Search in the YAML" placeholder="Search" value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
        {wanted && <span class="muted">{count(found, "line")}</span>}
        <button type="button" class="quiet" onClick={() => void navigator.clipboard.writeText(text)}>
          Copy
        </button>
        <code class="muted">{`kubectl get ${of.kind.toLowerCase()} ${of.name}${place} -o yaml`}</code>
      </div>
      <pre class="yaml">
        {lines.slice(0, LINES).map((line, at) => (
          <div class={wanted && line.toLowerCase().includes(wanted) ? "is-found" : undefined} key={at}>
            {pieces(line).map(({ kind, text }, piece) => (kind ? <span class={kind} key={piece}>{text}</span> : text))}
            {"\n"}
          </div>
        ))}
      </pre>
      {lines.length > LINES && <Notice>{count(lines.length - LINES, "further line")}: copy all of it, or ask kubectl.</Notice>}
    </>
  );
}
