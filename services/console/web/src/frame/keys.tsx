import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { visit } from "../router.ts";
import { isPaletteOpen, openPalette } from "./palette.tsx";

/** Whether the list of keys is shown. */
export const showsKeys = signal(false);

const KEYS: [keys: string, does: string][] = [
  ["Ctrl K  or  /", "search, go to anything; > for commands"],
  ["g o", "overview"],
  ["g e", "environments"],
  ["g d  g a", "delivery, agents"],
  ["g h  g c", "history, access"],
  ["g u  g s", "subscriptions, settings"],
  ["↑ ↓  or  j k", "next and previous row"],
  ["Enter", "open the row"],
  ["[ ]", "previous and next tab of an object"],
  ["y d l", "YAML, diff, logs of an object"],
  ["f + -", "fit the tree, larger, smaller"],
  ["Esc", "close what is open"],
  ["Esc Esc", "from a past moment back to now"],
  ["?", "these keys"],
];

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return Boolean(element?.closest?.("input, textarea, select, [contenteditable]"));
}

/** Moves the focus to another row of the list that has it, or into the first list. */
function move(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("#view [data-row]")];
  if (rows.length === 0) return false;
  const at = rows.findIndex((row) => row === document.activeElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return true;
}

/** Listens to the keys of the whole page, until the returned function is called. */
export function listenToKeys(views: readonly { path: string; key: string }[]): () => void {
  let leader = 0;
  const hear = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isPaletteOpen.peek()) return;
    const view = Date.now() - leader < 1200 && views.find(({ key }) => key === event.key);
    leader = event.key === "g" ? Date.now() : 0;
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (view) visit(view.path);
    else if (event.key === "/") openPalette();
    else if (event.key === "?") showsKeys.value = true;
    else if (!by || !move(by)) return;
    event.preventDefault();
  };
  document.addEventListener("keydown", hear);
  return () => document.removeEventListener("keydown", hear);
}

/** The list of keys. */
export function Keys() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (showsKeys.value) dialog.current?.showModal();
  }, [showsKeys.value]);
  if (!showsKeys.value) return null;
  return (
    <dialog class="dialog" ref={dialog} onClose={() => (showsKeys.value = false)} aria-label="Keys">
      <h2>Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, does]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}
