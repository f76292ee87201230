import { useEffect, useState } from "preact/hooks";
import { command, type Page, read } from "../api/commands.ts";
import { session } from "../api/session.ts";
import { learnRights, rightTo } from "../model/rights.ts";
import { type Theme, theme } from "../model/theme.ts";
import { span } from "../model/time.ts";
import { Action, MissingRights } from "../parts/action.tsx";
import { Command, Empty, Skeleton, Trouble } from "../parts/states.tsx";
import { At } from "../parts/time.tsx";
import { useLoaded } from "../parts/use-loaded.ts";

const DAY = 86_400;

interface Organization {
  id: string;
  name: string;
  token_lifetimes: { default_seconds: number; longest_seconds: number };
}

interface Provider {
  name: string;
  kind: string;
  issuer: string;
  trust?: { owners: string[] };
}

interface Root {
  number: number;
  public_key: string;
  since?: string;
}

/** How the page looks for you, and what holds for the organization. */
export default function Settings() {
  useEffect(learnRights, []);
  return (
    <section class="listing settings" aria-labelledby="settings">
      <header class="section-head">
        <h1 id="settings">Settings</h1>
      </header>
      <section aria-labelledby="looks">
        <h2 id="looks">This browser</h2>
        <div class="filters" role="group" aria-label="Theme">
          {(["system", "light", "dark"] as Theme[]).map((one) => (
            <button type="button" class="chip filter" key={one} aria-pressed={theme.value === one} onClick={() => (theme.value = one)}>
              {one === "system" ? "As the system" : one === "light" ? "Light" : "Dark"}
            </button>
          ))}
        </div>
        <p class="muted">
          You are {session.value?.user ?? "signed in"}
          {session.value?.expires_at && (
            <>
              , in a session that ends by itself <At at={Date.parse(session.value.expires_at)} />
            </>
          )}
          . <a href="/access?tab=tokens">Sessions and tokens</a>
        </p>
      </section>
      <OrganizationPart />
      <Providers />
      <RootKey />
    </section>
  );
}

function useRead<T>(path: string) {
  return useLoaded((stop) => read<T>(path, stop), [path]);
}

function OrganizationPart() {
  const organizations = useRead<Page<Organization>>("/organizations?limit=500");
  const { value, error, retryAt } = organizations.state.value;
  const own = value?.items.find((one) => one.name === session.value?.organization) ?? value?.items[0];
  return (
    <section aria-labelledby="organization">
      <h2 id="organization">Organization {own?.name}</h2>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void organizations.run()} />}
      {!value && !error && <Skeleton rows={2} label="Loading the organization" />}
      {own && <Lifetimes of={own} done={() => void organizations.run()} />}
    </section>
  );
}

function Lifetimes({ of, done }: { of: Organization; done: () => void }) {
  const { default_seconds, longest_seconds } = of.token_lifetimes;
  const [usual, setUsual] = useState(Math.round(default_seconds / DAY));
  const [longest, setLongest] = useState(Math.round(longest_seconds / DAY));
  return (
    <>
      <dl class="fields">
        <div>
          <dt>Tokens live</dt>
          <dd>
            {span(default_seconds * 1000)} where nothing is said, {span(longest_seconds * 1000)} at most
          </dd>
        </div>
      </dl>
      <Action
        label="Change"
        doing={`Set how long tokens of ${of.name} live`}
        command={`kasbah organization tokens --default ${usual}d --longest ${longest}d`}
        right={rightTo("SET_TOKEN_LIFETIMES")}
        run={() => command("PATCH", "/organization/token-lifetimes", { default_seconds: usual * DAY, longest_seconds: longest * DAY })}
        done={done}
      >
        <p>It holds for personal tokens that are issued from now on, sessions of this page among them. Tokens that exist stay as they are.</p>
        <label>
          Days where nothing is said
          <input type="number" min={1} max={longest} required value={usual} onInput={(event) => setUsual(event.currentTarget.valueAsNumber)} />
        </label>
        <label>
          Days at most
          <input type="number" min={1} required value={longest} onInput={(event) => setLongest(event.currentTarget.valueAsNumber)} />
        </label>
      </Action>
      <MissingRights rights={[rightTo("SET_TOKEN_LIFETIMES")]} />
    </>
  );
}

function Providers() {
  const providers = useRead<Provider[]>("/identity-providers");
  const { value, error, retryAt } = providers.state.value;
  const all = value ?? [];
  return (
    <section aria-labelledby="providers">
      <h2 id="providers">Identity providers</h2>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void providers.run()} />}
      {!value && !error && <Skeleton rows={1} label="Loading identity providers" />}
      {value && all.length === 0 && (
        <Empty title="The operator allows none: people sign in with tokens. One is allowed with an option of the server:">
          <Command text="kasbah up --identity-providers providers.yaml" />
        </Empty>
      )}
      {all.length > 0 && (
        <ul class="lines">
          {all.map((one) => (
            <li key={one.name}>
              <span class="line provider">
                <span class="line-name">
                  <b>{one.name}</b> <span class="muted">for {one.kind}</span>
                </span>
                <span class="line-what">{one.issuer}</span>
                <span class="line-commit">{one.trust ? `trusted${one.trust.owners.length > 0 ? ` for ${one.trust.owners.join(", ")}` : ""}` : "not trusted"}</span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function RootKey() {
  const root = useRead<Root>("/root");
  const { value } = root.state.value;
  if (!value) return null;
  return (
    <section aria-labelledby="root">
      <h2 id="root">Root key</h2>
      <p class="muted">Agents accept passes that this key signs{value.since && <> since <At at={Date.parse(value.since)} /></>}; number {value.number}.</p>
      <Command text={value.public_key} />
    </section>
  );
}
