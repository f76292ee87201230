import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { atMostEvery } from "../model/loaded.ts";

/** A value that changes often, as it was at most so many milliseconds ago: for what takes long to draw. */
export function useSeldom<T>(value: T, milliseconds: number): T {
  const [shown, show] = useState(value);
  const latest = useRef(value);
  latest.current = value;
  const again = useMemo(() => atMostEvery(milliseconds, () => show(() => latest.current)), []);
  useEffect(again, [value]);
  return shown;
}
