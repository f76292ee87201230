import type { Condition } from "../api/delivery.ts";
import { wordOf } from "../model/delivery.ts";
import { lately } from "../model/now.ts";
import { ofState } from "../model/status.ts";
import { readable } from "../model/time.ts";
import { Status } from "./status.tsx";
import { Ago } from "./time.tsx";

/** Conditions, each in a line; nothing where there is none. */
export function Conditions({ of, label }: { of: Omit<Condition, "retryAt">[]; label: string }) {
  if (of.length === 0) return null;
  return (
    <ul class="conditions" aria-label={label}>
      {of.map((condition) => (
        <li key={`${condition.reason} ${condition.message}`}>
          <Status status={ofState(condition.state)} word={wordOf(condition.state)} />
          <span>{readable(condition.message, lately.value)}</span>
          {condition.since && (
            <span class="muted">
              <Ago at={Date.parse(condition.since)} />
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
