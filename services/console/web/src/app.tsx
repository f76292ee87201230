import { effect, untracked } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { recall, session } from "./api/session.ts";
import { Frame } from "./frame/frame.tsx";
import { groups, isSignedIn, keepCurrent } from "./model/store.ts";
import { Patterns } from "./parts/status.tsx";
import { Skeleton } from "./parts/states.tsx";
import { path } from "./router.ts";
import { Overview } from "./views/overview.tsx";
import { SignIn } from "./views/sign-in.tsx";

/** Views that are loaded when they are opened. */
const LATER: [pattern: RegExp, load: () => Promise<{ default: ComponentType<{ matched: string[] }> }>][] = [
  [/^\/environments$/, () => import("./views/environments.tsx")],
  [/^\/environments\/([^/]+)$/, () => import("./views/environment.tsx")],
  [/^\/clusters\/([^/]+)\/namespaces\/([^/]*)$/, () => import("./views/environment.tsx")],
  [/^\/delivery$/, () => import("./views/delivery/sources.tsx")],
  [/^\/delivery\/([^/]+)$/, () => import("./views/delivery/source.tsx")],
  [/^\/agents$/, () => import("./views/agents/agents.tsx")],
  [/^\/agents\/([^/]+)$/, () => import("./views/agents/agent.tsx")],
  [/^\/history$/, () => import("./views/history/history.tsx")],
  [/^\/access$/, () => import("./views/access/access.tsx")],
  [/^\/subscriptions$/, () => import("./views/subscriptions/subscriptions.tsx")],
  [/^\/subscriptions\/([^/]+)$/, () => import("./views/subscriptions/subscription.tsx")],
  [/^\/settings$/, () => import("./views/settings.tsx")],
];

effect(() => {
  if (isSignedIn.value) return untracked(keepCurrent);
});

// A tab that is not looked at says in its name whether it is worth looking.
effect(() => {
  const wrong = groups.value?.filter((group) => group.status !== "progressing").length ?? 0;
  document.title = wrong > 0 ? `${wrong} wrong · Kasbah` : "Kasbah";
});

function Later({ load, matched }: { load: () => Promise<{ default: ComponentType<{ matched: string[] }> }>; matched: string[] }) {
  const [view, show] = useState<{ of: typeof load; View: ComponentType<{ matched: string[] }> } | null>(null);
  useEffect(() => {
    let isWanted = true;
    void load().then(({ default: View }) => isWanted && show({ of: load, View }));
    return () => {
      isWanted = false;
    };
  }, [load]);
  if (view?.of !== load) return <Skeleton rows={8} label="Loading the view" />;
  return <view.View matched={matched} key={matched.join("/")} />;
}

function View() {
  const at = path.value;
  if (at === "/") return <Overview />;
  for (const [pattern, load] of LATER) {
    const found = pattern.exec(at);
    if (found) return <Later load={load} matched={found.slice(1).map(decodeURIComponent)} />;
  }
  return (
    <section class="nothing">
      <h1>There is no such view</h1>
      <p>
        The address <code>{at}</code> names none. <a href="/">Go to the overview</a>.
      </p>
    </section>
  );
}

const loadStyle = () => import("./views/style.tsx");

/** The whole page. */
export function App() {
  const [failure, fail] = useState<string | null>(null);
  const begin = () => {
    fail(null);
    recall().catch((error: Error) => fail(error.message));
  };
  useEffect(begin, []);
  return (
    <>
      <Patterns />
      {path.value === "/style" ? (
        <Later load={loadStyle} matched={[]} />
      ) : session.value && path.value !== "/sign-in" ? (
        <Frame>
          <View />
        </Frame>
      ) : session.value !== undefined || failure ? (
        <SignIn failure={failure} retry={begin} />
      ) : null}
    </>
  );
}
