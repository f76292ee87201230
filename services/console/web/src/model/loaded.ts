import { signal } from "@preact/signals";
import { QueryError } from "../api/graphql.ts";

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/** Something that is asked for again and again: what was answered last, and what is wrong with asking. */
export interface Loaded<T> {
  value: T | null;
  error: QueryError | null;
  /** When it is tried again, while it fails. */
  retryAt: number | null;
}

/** Asks for something when told to: never twice at once, and again by itself while it fails. What was answered stays. */
export function loader<T>(load: (stop: AbortSignal) => Promise<T>) {
  const state = signal<Loaded<T>>({ value: null, error: null, retryAt: null });
  let running = false;
  let again = false;
  let pause = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = new AbortController();

  const run = async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    clearTimeout(timer);
    const stop = stopped.signal;
    try {
      const value = await load(stop);
      if (stop.aborted) return;
      pause = 0;
      state.value = { value, error: null, retryAt: null };
    } catch (error) {
      if (stop.aborted) return;
      const failure = error instanceof QueryError ? error : new QueryError(String(error), "internal");
      pause = Math.min(pause === 0 ? FIRST_PAUSE : pause * 2, LONGEST_PAUSE);
      state.value = { ...state.peek(), error: failure, retryAt: Date.now() + pause };
      timer = setTimeout(run, pause);
    } finally {
      running = false;
      if (again && !stop.aborted) {
        again = false;
        void run();
      }
    }
  };
  return {
    state,
    /** Asks now, or once more after what runs. */
    run,
    /** Stops asking. */
    stop: () => {
      clearTimeout(timer);
      stopped.abort();
      stopped = new AbortController();
      again = false;
    },
  };
}

/** Calls something at most once in a while, and once more for what was asked meanwhile. */
export function atMostEvery(milliseconds: number, call: () => void): () => void {
  let last = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    const wait = last + milliseconds - Date.now();
    timer ??= setTimeout(() => {
      timer = undefined;
      last = Date.now();
      call();
    }, Math.max(0, wait));
  };
}
