import { names, type User, users } from "../../model/names.ts";
import { count } from "../../model/news.ts";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { choose } from "../../router.ts";

function Role({ of }: { of: User["roles"][number] }) {
  const [role, scope] = of;
  const [kind, id] = Object.entries(scope)[0] ?? ["", ""];
  const where = role === "operator" ? "the installation" : kind === "organization" ? "the whole organization" : `${kind} ${names.value.get(id) ?? `${id.slice(0, 8)}…`}`;
  return (
    <span class="role">
      <b>{role}</b> in {where}
    </span>
  );
}

/** Users, and what each may do where. */
export function People() {
  const { value, error, retryAt } = users.state.value;
  if (error?.kind === "denied" || error?.kind === "not-found") {
    return (
      <Empty title={`You may not see users: ${error.message}.`}>
        <p class="muted">Owners and maintainers of the organization may. An owner gives roles:</p>
        <Command text="kasbah user role <name> maintainer" />
      </Empty>
    );
  }
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void users.run()} />;
  if (!value) return <Skeleton rows={5} label="Loading people" />;
  return (
    <>
      <p class="muted">
        {count(value.items.length, "user")}
        {value.next && ", the first 500: kasbah user list"}
      </p>
      <ul class="lines people">
        {value.items.map((user) => (
          <li key={user.id}>
            <span class="line person">
              <span class="line-name">
                <b>{user.name ?? "erased"}</b>
                {user.disabled && <Status status="suspended" word="Disabled" />}
              </span>
              <span class="line-what">{user.roles.length === 0 ? <span class="muted">no role</span> : user.roles.map((role) => <Role of={role} key={JSON.stringify(role)} />)}</span>
              <span class="line-commit muted">{(user.accounts ?? []).join(", ")}</span>
              <span class="line-when">
                {user.name && (
                  <>
                    <button type="button" class="quiet" onClick={() => (choose("user", user.name, true), choose("tab", null))}>
                      Can they…
                    </button>
                    <a href={`/history?who=${encodeURIComponent(user.name)}&since=24h`}>What they did</a>
                  </>
                )}
              </span>
            </span>
          </li>
        ))}
      </ul>
      <Command text="kasbah user list" />
    </>
  );
}
