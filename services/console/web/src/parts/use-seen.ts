import { useEffect, useMemo, useRef } from "preact/hooks";
import { horizon, load } from "../model/at.ts";
import { loader } from "../model/loaded.ts";
import { isPastKnown, learnPast } from "../model/past.ts";
import { type Indexed, indexedAt, type Seen, seenNow, seenThen } from "../model/seen.ts";
import { around } from "../model/store.ts";

/** Says while a moment is loaded that the one before it is shown still. */
export function useLoading(isLoading: boolean): void {
  useEffect(() => (isLoading ? load() : undefined), [isLoading]);
}

function useLearning(moment: number | null): void {
  const isReady = around.state.value.value !== null;
  useEffect(() => learnPast(moment), [moment, isReady]);
}

/** Asks the log for what it has of the past, once there is a moment. True until that is known. */
export function usePast(moment: number | null): boolean {
  useLearning(moment);
  const isUnknown = moment !== null && !isPastKnown();
  useLoading(isUnknown);
  return isUnknown;
}

/** How everything is, or was at a moment. While another moment is loaded the one before it stays. */
export function useSeen(moment: number | null): Seen {
  const rest = around.state.value.value;
  const isReady = rest !== null;
  useLearning(moment);
  const indexed = useMemo(
    () =>
      loader(async (stop): Promise<Indexed | null> => {
        const known = around.state.peek().value;
        return moment === null || !known ? null : indexedAt(moment, known, stop);
      }),
    [moment, isReady],
  );
  useEffect(() => {
    if (moment !== null && isReady) void indexed.run();
    return indexed.stop;
  }, [indexed]);
  const before = useRef<Indexed | null>(null);
  const { value, error, retryAt } = indexed.state.value;
  before.current = moment === null ? null : (value ?? before.current);
  const known = before.current;
  useEffect(() => {
    if (known) horizon.value = known.unwell.asOf.horizon ? Date.parse(known.unwell.asOf.horizon) : null;
  }, [known]);
  useLoading(moment !== null && error === null && (value === null || !isPastKnown()));
  if (moment === null) return seenNow();
  return seenThen({ value: known, error, retryAt }, () => void indexed.run());
}
