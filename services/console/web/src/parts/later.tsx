import { type ComponentChildren, type ComponentType, h } from "preact";
import { useEffect, useState } from "preact/hooks";

/** A view that is loaded when it is opened, with what it shows; `waiting` stands in its place until then. */
export function Later<P extends object>({ load, shown, waiting }: { load: () => Promise<{ default: ComponentType<P> }>; shown: P; waiting: ComponentChildren }) {
  const [view, show] = useState<{ of: typeof load; View: ComponentType<P> } | null>(null);
  useEffect(() => {
    let isWanted = true;
    void load().then(({ default: View }) => isWanted && show({ of: load, View }));
    return () => {
      isWanted = false;
    };
  }, [load]);
  return view?.of === load ? h(view.View, shown) : <>{waiting}</>;
}
