import type { Difference } from "../../api/object.ts";
import { yaml } from "../../model/yaml.ts";

/** Fields that are drawn; the rest is counted. */
const FIELDS = 200;

function Value({ of, sign }: { of: unknown; sign: "−" | "+" }) {
  if (of === null || of === undefined) return null;
  const text = typeof of === "object" ? yaml(of).trimEnd() : String(of);
  return (
    <pre class={sign === "+" ? "is-added" : "is-removed"}>
      {text
        .split("\n")
        .map((line) => `${sign} ${line}`)
        .join("\n")}
    </pre>
  );
}

/** Fields that differ, each with what it was and what it is. */
export function Differences({ fields }: { fields: Difference[] }) {
  return (
    <ul class="differences">
      {fields.slice(0, FIELDS).map(({ path, before, after }) => (
        <li key={path}>
          <code>{path}</code>
          <Value of={before} sign="−" />
          <Value of={after} sign="+" />
        </li>
      ))}
      {fields.length > FIELDS && <li class="muted">and {fields.length - FIELDS} more fields</li>}
    </ul>
  );
}
