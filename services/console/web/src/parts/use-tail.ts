import { useEffect, useState } from "preact/hooks";
import { tail } from "../model/tail.ts";

/** The log of the last so many milliseconds and as it goes on, until the view is gone. */
export function useTail(path: string, length: number) {
  const begin = () => tail(path, new Date(Date.now() - length).toISOString());
  const [followed, follow] = useState(begin);
  useEffect(() => {
    const next = begin();
    follow(next);
    next.start();
    return next.stop;
  }, [path, length]);
  return followed;
}
