// The address is the state: a view, and what is chosen in it.

import { computed, signal } from "@preact/signals";

const href = signal(location.pathname + location.search);
const url = computed(() => new URL(href.value, location.origin));

/** The path of the view. */
export const path = computed(() => url.value.pathname);
/** What is chosen in it. */
export const chosen = computed(() => url.value.searchParams);

/** Shows another view. */
export function go(to: string, replace = false): void {
  if (to === href.peek()) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  href.value = to;
}

/** What of the address is of every view: the moment that is shown, and the one that it is compared with. */
const MOMENT = ["t", "with"];

/** Shows another view, at the moment that is shown where its address names none. */
export function visit(to: string): void {
  const { pathname, searchParams: params } = new URL(to, location.origin);
  if (!params.has("t")) {
    for (const name of MOMENT) {
      const value = chosen.peek().get(name);
      if (value !== null) params.set(name, value);
    }
  }
  const text = params.toString();
  go(pathname + (text ? `?${text}` : ""));
}

/** The address of this view with something else chosen, for a link. */
export function withChosen(name: string, value: string): string {
  const params = new URLSearchParams(chosen.value);
  params.set(name, value);
  return `?${params}`;
}

/** Chooses something in this view; `null` chooses nothing. */
export function choose(name: string, value: string | null, replace = false): void {
  const params = new URLSearchParams(chosen.peek());
  if (value === null) params.delete(name);
  else params.set(name, value);
  const query = params.toString();
  go(path.peek() + (query ? `?${query}` : ""), replace);
}

/** Follows the browser's buttons, and links of the page without loading it again. */
export function follow(): void {
  addEventListener("popstate", () => {
    href.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
    if (link.pathname.startsWith("/api/")) return;
    event.preventDefault();
    visit(link.pathname + link.search);
  });
}
