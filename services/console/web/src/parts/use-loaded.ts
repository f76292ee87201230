import { type Inputs, useEffect, useMemo } from "preact/hooks";
import { listen } from "../api/feed.ts";
import type { Change } from "../api/types.ts";
import { atMostEvery, loader } from "../model/loaded.ts";

/** Asks for something at once, and anew when an input changes, until the view is gone. */
export function useLoaded<T>(load: (stop: AbortSignal) => Promise<T>, inputs: Inputs) {
  const loaded = useMemo(() => loader(load), inputs);
  useEffect(() => {
    void loaded.run();
    return loaded.stop;
  }, [loaded]);
  return loaded;
}

interface Polled<T> {
  /** So often, in milliseconds, while somebody sees the page. */
  every: number;
  /** Whether it is of use to ask again, by what was answered last. */
  wants?: (value: T | null) => boolean;
  /** Whether some changes call for asking at once. */
  hears?: (changes: Change[], value: T | null) => boolean;
}

/** The same, and again and again. */
export function usePolled<T>(load: (stop: AbortSignal) => Promise<T>, inputs: Inputs, { every, wants, hears }: Polled<T>) {
  const loaded = useLoaded(load, inputs);
  useEffect(() => {
    const value = () => loaded.state.peek().value;
    const isWanted = () => document.visibilityState === "visible" && (wants?.(value()) ?? true);
    const timer = setInterval(() => isWanted() && loaded.run(), every);
    const again = atMostEvery(1000, loaded.run);
    const hear = hears && listen((changes) => hears(changes, value()) && again());
    return () => {
      clearInterval(timer);
      hear?.();
    };
  }, [loaded]);
  return loaded;
}
