import { choose, chosen } from "../router.ts";

export type Listed = readonly (readonly [id: string, name: string])[];

interface Props {
  of: Listed;
  label: string;
  /** What of the address chooses one. */
  name?: string;
  /** The panel that they show. */
  panel?: string;
  class?: string;
}

/** Tabs whose choice stands in the address; the first one is what no choice means. */
export function Tabs({ of, label, name = "tab", panel = "tab", class: further = "page-tabs" }: Props) {
  const at = tabOf(of, name);
  const select = (id: string | undefined) => choose(name, !id || id === of[0]?.[0] ? null : id, true);
  const move = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = of[(of.findIndex(([id]) => id === at) + by + of.length) % of.length]?.[0];
    select(next);
    document.getElementById(`${name}-${next}`)?.focus();
  };
  return (
    <div class={`tabs ${further}`} role="tablist" aria-label={label} onKeyDown={move}>
      {of.map(([id, word]) => (
        <button
          type="button"
          role="tab"
          id={`${name}-${id}`}
          key={id}
          aria-selected={id === at}
          aria-controls={panel}
          tabIndex={id === at ? 0 : -1}
          onClick={() => select(id)}
        >
          {word}
        </button>
      ))}
    </div>
  );
}

/** Which tab the address chooses. */
export function tabOf(of: Listed, name = "tab"): string {
  const wanted = chosen.value.get(name);
  return of.find(([id]) => id === wanted)?.[0] ?? of[0]?.[0] ?? "";
}
