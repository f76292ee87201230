import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { QueryError } from "../api/graphql.ts";
import { now } from "../model/now.ts";
import { span } from "../model/time.ts";

/** What will stand here, drawn in its final layout, after a moment without an answer. */
export function Skeleton({ rows, label }: { rows: number; label: string }) {
  const [shown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={shown ? "skeleton" : "skeleton waits"} role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, row) => (
        <div class="skeleton-row" key={row}>
          <i />
          <i />
          <i />
        </div>
      ))}
    </div>
  );
}

/** Nothing is here: what would be, and what makes it so. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>{title}</p>
      {children}
    </div>
  );
}

/** What is missing of what is shown, and why. */
export function Notice({ tone = "plain", children }: { tone?: "plain" | "warning"; children: ComponentChildren }) {
  return (
    <p class={`notice is-${tone}`} role="note">
      {children}
    </p>
  );
}

/** Something could not be asked: what happened, what is still true, when it is tried again. */
export function Trouble({ error, retryAt, retry }: { error: QueryError; retryAt: number | null; retry: () => void }) {
  const wait = retryAt === null ? null : Math.max(0, retryAt - now.value);
  const denied = error.kind === "denied";
  return (
    <div class="trouble" role="alert">
      <p>
        <b>{denied ? "You may not see this" : "This could not be loaded"}</b>
        {": "}
        {error.message}.
      </p>
      <p class="muted">
        {denied
          ? "An administrator of the project gives the role that is missing: kasbah user role."
          : "What is shown elsewhere on the page still holds."}
      </p>
      <p>
        <button type="button" onClick={retry}>
          Try again
        </button>
        {wait !== null && <span class="muted">{wait > 0 ? ` in ${span(wait + 999)} by itself` : " trying"}</span>}
      </p>
    </div>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  const [copied, note] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    note(true);
    setTimeout(() => note(false), 1500);
  };
  return (
    <div class="command">
      <code tabIndex={0}>{text}</code>
      <button type="button" class="quiet" onClick={copy} aria-label={`Copy: ${text}`}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}
