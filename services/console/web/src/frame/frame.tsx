import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { link } from "../api/feed.ts";
import { session, signOut } from "../api/session.ts";
import { at, compared } from "../model/at.ts";
import { now } from "../model/now.ts";
import { type Theme, theme } from "../model/theme.ts";
import { span } from "../model/time.ts";
import { AskedAction } from "../parts/action.tsx";
import { NowOnly } from "../parts/as-of.tsx";
import { Mark } from "../parts/marks.tsx";
import { go, path, visit } from "../router.ts";
import { Keys, listenToKeys, showsKeys } from "./keys.tsx";
import { openPalette, Palette } from "./palette.tsx";
import { TimeBar } from "./time-bar.tsx";

const VIEWS = [
  { path: "/", name: "Overview", mark: "overview", key: "o" },
  { path: "/environments", name: "Environments", mark: "environments", key: "e" },
  { path: "/delivery", name: "Delivery", mark: "delivery", key: "d" },
  { path: "/agents", name: "Agents", mark: "agents", key: "a" },
  { path: "/history", name: "History", mark: "history", key: "h" },
  { path: "/access", name: "Access", mark: "access", key: "c" },
  { path: "/subscriptions", name: "Subscriptions", mark: "subscriptions", key: "u", isSeldom: true },
] as const;

/** Views that show other moments than now; each says by itself what of it does not. */
const PAST = /^\/($|environments|clusters\/|delivery|agents)/;

function Rail() {
  const isAt = (view: string) => (view === "/" ? path.value === "/" : path.value.startsWith(view));
  return (
    <nav class="rail" aria-label="Views">
      <a class="brand" href="/" aria-label="Kasbah, overview">
        K
      </a>
      {VIEWS.map((view) => (
        <a class={"isSeldom" in view ? "rail-link is-seldom" : "rail-link"} key={view.path} href={view.path} aria-current={isAt(view.path) ? "page" : undefined} title={`${view.name} (g ${view.key})`}>
          <Mark of={view.mark} />
          <span>{view.name}</span>
        </a>
      ))}
    </nav>
  );
}

function Live() {
  const state = link.value;
  const broken = state.state === "broken" && now.value - state.since > 2000;
  const text = broken
    ? `not live for ${span(now.value - state.since)}: ${state.why}`
    : `live ${state.state === "live" ? span(now.value - state.heard) : ""}`;
  return (
    <span class={`live${broken ? " is-broken" : ""}`} title={broken ? "What is shown is as of then; it is tried again by itself" : "Seconds since the server was heard"}>
      <i aria-hidden="true" />
      <span>{text}</span>
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

function Account() {
  const who = session.value;
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: MouseEvent) => {
      if (menu.current && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    document.addEventListener("click", close);
    return () => document.removeEventListener("click", close);
  }, []);
  return (
    <details class="menu" ref={menu} onKeyDown={(event) => event.key === "Escape" && menu.current && (menu.current.open = false)}>
      <summary>{who?.user ?? "account"}</summary>
      <div class="menu-items">
        <button type="button" onClick={() => (theme.value = NEXT[theme.value])}>
          Theme: {theme.value}
        </button>
        <button type="button" onClick={() => visit("/subscriptions")}>
          Subscriptions <kbd>g u</kbd>
        </button>
        <button type="button" onClick={() => visit("/settings")}>
          Settings <kbd>g s</kbd>
        </button>
        <button type="button" onClick={() => (showsKeys.value = true)}>
          Keys <kbd>?</kbd>
        </button>
        <button type="button" onClick={() => void signOut().then(() => go("/"))}>
          Sign out
        </button>
      </div>
    </details>
  );
}

/** What stands around each view. */
export function Frame({ children }: { children: ComponentChildren }) {
  useEffect(() => listenToKeys([...VIEWS, { path: "/settings", key: "s" }]), []);
  return (
    <div class={`frame${at.value !== null || compared.value !== null ? " is-past" : ""}`}>
      <a class="skip" href="#view" onClick={(event) => (event.preventDefault(), document.getElementById("view")?.focus())}>
        Skip to the view
      </a>
      <Rail />
      <header class="head">
        <span class="organization">{session.value?.organization ?? "Kasbah"}</span>
        <button type="button" class="search" onClick={openPalette}>
          <Mark of="search" />
          <span>Search or go to</span>
          <kbd>Ctrl K</kbd>
        </button>
        <Live />
        <Account />
      </header>
      <main class="view" id="view" tabIndex={-1}>
        {!PAST.test(path.value) && <NowOnly what="This view has no past" />}
        {children}
      </main>
      <TimeBar />
      <Palette views={VIEWS} />
      <Keys />
      <AskedAction />
    </div>
  );
}
