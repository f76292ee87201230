import { useEffect, useState } from "preact/hooks";
import { ended, type Provider, providers, refused, session, signIn, signInWith } from "../api/session.ts";
import { Command } from "../parts/states.tsx";
import { chosen, go, path } from "../router.ts";

const PATH = "/sign-in";

/** The token of a link that signs in once, taken out of the address. */
function taken(): string | null {
  const token = location.hash.slice(1);
  if (path.peek() !== PATH || !token) return null;
  history.replaceState(null, "", PATH);
  return token;
}

const ofLink = taken();

/** Where somebody wanted to go: a path of this page. */
function wanted(): string {
  if (path.peek() !== PATH) return path.peek() + location.search;
  const to = chosen.peek().get("to") ?? "/";
  return /^\/(?![/\\])/.test(to) && !to.startsWith(PATH) ? to : "/";
}

/** Where somebody signs in. `failure` is why it is not known whether somebody is. */
export function SignIn({ failure, retry }: { failure: string | null; retry: () => void }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(ofLink !== null);
  /** Tries to sign in; leads on where that was all. */
  const attempt = async (begin: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await begin();
    } catch (problem) {
      setError((problem as Error).message);
    } finally {
      setBusy(false);
    }
  };
  const begin = (with_: string, once: boolean) =>
    attempt(async () => {
      await signIn(with_, once);
      if (path.peek() === PATH) go(wanted(), true);
    });
  useEffect(() => {
    if (ofLink) void begin(ofLink, true);
    else if (session.peek() && path.peek() === PATH) go(wanted(), true);
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    void begin(token.trim(), false);
  };
  const notSignedIn = error ?? refused.value?.message;
  const said = notSignedIn ?? ended.value ?? failure;
  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <h1>
          <span class="brand" aria-hidden="true">
            K
          </span>
          Sign in to Kasbah
        </h1>
        {said && (
          <p class="notice is-warning" role="alert">
            {failure && !notSignedIn ? (
              <>
                The server cannot be asked: {failure}.{" "}
                <button type="button" class="quiet" onClick={retry}>
                  Try again
                </button>
              </>
            ) : (
              `${notSignedIn ? "Not signed in" : "You were signed out"}: ${said}.`
            )}
          </p>
        )}
        <Providers busy={busy} signIn={(provider, organization) => void attempt(() => signInWith(provider, wanted(), organization))} />
        <label for="token">Personal token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          placeholder="kasbah_p_…"
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
          required
        />
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Signing in" : "Sign in"}
        </button>
        <p class="muted">It is not kept: the session gets a token of its own for seven days, which you can revoke. With the command line, a link signs you in:</p>
        <Command text="kasbah open" />
      </form>
    </main>
  );
}

/** Identity providers at which people sign in, where the operator allows any. */
function Providers({ busy, signIn: signInAt }: { busy: boolean; signIn: (provider: string, organization: string) => void }) {
  const [all, setAll] = useState<Provider[]>([]);
  const [organization, setOrganization] = useState("");
  useEffect(() => {
    // Without them there is the token still.
    void providers().then(setAll, () => {});
  }, []);
  if (all.length === 0) return null;
  return (
    <div class="providers">
      {refused.value?.organization && (
        <>
          <label for="organization">Organization</label>
          <input id="organization" autocomplete="organization" spellcheck={false} value={organization} onInput={(event) => setOrganization(event.currentTarget.value)} />
        </>
      )}
      {all.map(({ name }) => (
        <button type="button" key={name} disabled={busy} onClick={() => signInAt(name, organization)}>
          Sign in with {name}
        </button>
      ))}
      <p class="or muted">or</p>
    </div>
  );
}
