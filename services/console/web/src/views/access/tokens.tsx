import { useEffect, useMemo } from "preact/hooks";
import { command, type Page, query, read } from "../../api/commands.ts";
import { doubt } from "../../api/session.ts";
import { loader } from "../../model/loaded.ts";
import { users } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { now } from "../../model/now.ts";
import { learnRights, rightTo } from "../../model/rights.ts";
import { absolute } from "../../model/time.ts";
import { Action, MissingRights } from "../../parts/action.tsx";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { choose, chosen } from "../../router.ts";

interface Token {
  id: string;
  name: string;
  issued_at: string;
  expires_at: string | null;
  last_used_at: string | null;
  revoked_at: string | null;
  clusters_only?: boolean;
}

/** One's own. */
const MAY = { allowed: true, reason: "" };

const HOUR = 3_600_000;
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hour12: false });

/** When it was used last: the server knows it to the hour. */
function Used({ token }: { token: Token }) {
  if (!token.last_used_at) return <>, not used yet</>;
  const at = Date.parse(token.last_used_at);
  if (now.value - at < HOUR) return <>, used within the hour</>;
  return (
    <>
      , last used <Ago at={at} />
    </>
  );
}

/** Sessions of the page, logins and tokens: the viewer's own, or a user's where the viewer may manage them. Each can be ended. */
export function Tokens() {
  const whose = chosen.value.get("holder") ?? "";
  const tokens = useMemo(() => loader((stop) => read<Page<Token>>(`/tokens${query({ user: whose, limit: "500" })}`, stop)), [whose]);
  const me = useMemo(() => loader(async (stop) => (await read<{ token: string }>("/me", stop)).token), []);
  useEffect(learnRights, []);
  const right = whose ? rightTo("MANAGE_USER_TOKENS") : MAY;
  useEffect(() => {
    void tokens.run();
    void me.run();
    return () => {
      tokens.stop();
      me.stop();
    };
  }, [tokens]);
  const { value, error, retryAt } = tokens.state.value;
  const all = value?.items ?? [];
  const isOver = (token: Token) => token.revoked_at !== null || (token.expires_at !== null && Date.parse(token.expires_at) < now.value);
  const live = all.filter((token) => !isOver(token)).sort((one, other) => other.issued_at.localeCompare(one.issued_at));
  const over = all.filter(isOver).length;
  const people = users.state.value.value?.items ?? [];
  const current = me.state.value.value;
  const done = (token: Token) => {
    void tokens.run();
    if (token.id === current) void doubt("you revoked this session");
  };
  return (
    <>
      {people.length > 0 && (
        <div class="filters">
          <label class="field">
            Whose
            <select value={whose} onChange={(event) => choose("holder", event.currentTarget.value || null, true)}>
              <option value="">Yours</option>
              {people.map((user) => (
                <option value={user.name ?? ""} key={user.id}>
                  {user.name}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void tokens.run()} />}
      {!value && !error && <Skeleton rows={4} label="Loading tokens" />}
      {value && live.length === 0 && <Empty title="There is no live token." />}
      {live.length > 0 && (
        <ul class="lines tokens">
          {live.map((token) => (
            <li key={token.id}>
              <span class="line token">
                <span class="line-name">
                  <b>{token.name}</b> <code title={token.id}>{token.id.slice(-8)}</code>
                  {token.id === current && <Status status="healthy" word="this session" />}
                </span>
                <span class="line-what muted">
                  {token.clusters_only && "for clusters' APIs only; "}issued <Ago at={Date.parse(token.issued_at)} />
                  <Used token={token} />
                </span>
                <span class="line-commit muted">
                  {token.expires_at ? (
                    <>
                      until <time title={absolute(Date.parse(token.expires_at))}>{day.format(Date.parse(token.expires_at))}</time>
                    </>
                  ) : (
                    "does not end by itself"
                  )}
                </span>
                <span class="line-when">
                  <Action
                    label="Revoke"
                    doing={`Revoke ${token.name}`}
                    command={`kasbah token revoke ${token.id}`}
                    right={right}
                    run={() => command("DELETE", `/tokens/${token.id}`)}
                    done={() => done(token)}
                    isDangerous
                  >
                    <p>
                      What uses <b>{token.name}</b> is refused from now on, and what it has open is closed. This cannot be undone.
                      {token.id === current && " It is this session: you will be signed out."}
                    </p>
                  </Action>
                </span>
              </span>
            </li>
          ))}
        </ul>
      )}
      {live.length > 0 && <MissingRights rights={[right]} />}
      {over > 0 && <p class="muted pad">{count(over, "token")} revoked or expired.</p>}
      <Command text={`kasbah token list${whose ? ` --user ${whose}` : ""}`} />
    </>
  );
}
