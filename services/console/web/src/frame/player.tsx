import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { after, at, compared, compareWith, goTo, isLoading, SPEEDS, type Speed } from "../model/at.ts";

/** So often the next moment is shown, once the one before it has arrived. */
const EVERY = 1000;
/** How far back two moments are compared at first. */
const BEFORE = 3_600_000;

/** Whether a press of a key is meant for something on the page. */
function isTaken(event: KeyboardEvent): boolean {
  const target = event.target as Element | null;
  return event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || Boolean(target?.closest("a, button, input, select, textarea, summary, dialog, [tabindex]:not(main)"));
}

/** Plays what happened, from the moment that is shown to now; and compares two moments. `start` is where the bar begins. */
export function Player({ start }: { start: number }) {
  const isPlaying = useSignal(false);
  const speed = useSignal<Speed>(10);
  const shownAt = useRef(0);
  const toggle = () => {
    if (isPlaying.value) {
      isPlaying.value = false;
      return;
    }
    // From now there is nothing to play: what the bar has is played.
    if (at.peek() === null) goTo(start);
    shownAt.current = Date.now();
    isPlaying.value = true;
  };
  useEffect(() => {
    if (!isPlaying.value) return;
    const timer = setInterval(() => {
      const moment = at.peek();
      // Requests do not pile up: the next moment waits for the one before it.
      if (moment === null) isPlaying.value = false;
      if (moment === null || isLoading.peek() || document.visibilityState !== "visible") return;
      const now = Date.now();
      const next = after(moment, speed.peek(), Math.min(now - shownAt.current, 2 * EVERY), now);
      shownAt.current = now;
      goTo(next, true);
    }, EVERY);
    return () => clearInterval(timer);
  }, [isPlaying.value]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== " " || isTaken(event)) return;
      event.preventDefault();
      toggle();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  const isComparing = compared.value !== null;
  return (
    <span class="player">
      <button type="button" class="play" aria-pressed={isPlaying.value} aria-label={isPlaying.value ? "Pause" : "Play what happened"} title={isPlaying.value ? "Pause (Space)" : "Play what happened, until now (Space)"} onClick={toggle}>
        <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
          <path class="fill" d={isPlaying.value ? "M2.5 1.5h2.5v9H2.5zM7 1.5h2.5v9H7z" : "M2.5 1.2 10.5 6l-8 4.8z"} />
        </svg>
      </button>
      <select class="spans" aria-label="How fast it is played" value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value) as Speed)}>
        {SPEEDS.map((one) => (
          <option value={one} key={one}>
            {one}×
          </option>
        ))}
      </select>
      <button type="button" class="chip filter compare" aria-pressed={isComparing} title="Compare two moments" onClick={() => compareWith(isComparing ? null : Math.max(start, (at.peek() ?? Date.now()) - BEFORE))}>
        Compare
      </button>
    </span>
  );
}
