import { type Status as Kind, WORDS } from "../model/status.ts";

/** The pattern of what is stale, once for all shapes of the page. */
export function Patterns() {
  return (
    <svg class="patterns" aria-hidden="true">
      <defs>
        <pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="1.5" height="3" fill="currentColor" />
        </pattern>
      </defs>
    </svg>
  );
}

function outline(status: Kind) {
  switch (status) {
    case "healthy":
      return <circle class="fill" cx="6" cy="6" r="4.5" />;
    case "progressing":
      return <path class="stroke turning" d="M6 1.75A4.25 4.25 0 1 1 1.75 6" />;
    case "degraded":
      return <path class="fill" d="M6 .5 11.5 6 6 11.5.5 6z" />;
    case "suspended":
    case "held":
      return <path class="fill" d="M2.25 1.5h2.75v9H2.25zM7 1.5h2.75v9H7z" />;
    case "out-of-sync":
      return (
        <>
          <circle class="stroke" cx="6" cy="6" r="4.25" />
          <path class="fill" d="M6 1.75a4.25 4.25 0 0 1 0 8.5z" />
        </>
      );
    case "missing":
      return <circle class="stroke dashed" cx="6" cy="6" r="4.25" />;
    default:
      return <circle class="fill" cx="6" cy="6" r="2.25" />;
  }
}

/** The shape of a status, without its word: only where the word stands beside it. */
export function Shape({ status, stale = false }: { status: Kind; stale?: boolean }) {
  return (
    <svg class={`shape is-${status}${stale ? " is-stale" : ""}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {outline(status)}
    </svg>
  );
}

/** A status: shape, word and colour. */
export function Status({ status, stale = false, word }: { status: Kind; stale?: boolean; word?: string }) {
  return (
    <span class="status">
      <Shape status={status} stale={stale} />
      <span class={stale ? "muted" : `word is-${status}`}>{word ?? WORDS[status]}</span>
    </span>
  );
}
