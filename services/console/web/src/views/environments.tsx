import { count, short } from "../model/news.ts";
import { environmentPath } from "../model/paths.ts";
import { placed } from "../model/overview.ts";
import { compare, type Status as Kind, WORDS } from "../model/status.ts";
import { at } from "../model/at.ts";
import type { Seen } from "../model/seen.ts";
import { around } from "../model/store.ts";
import { AsOf } from "../parts/as-of.tsx";
import { Command, Empty, Skeleton, Trouble } from "../parts/states.tsx";
import { Status } from "../parts/status.tsx";
import { Ago } from "../parts/time.tsx";
import { useSeen } from "../parts/use-seen.ts";
import type { Deployment, Environment } from "../api/types.ts";
import { visit } from "../router.ts";

const DEPLOYED: Record<Deployment["status"], Kind> = { RUNNING: "progressing", SUCCESS: "healthy", FAILED: "degraded", UNKNOWN: "unknown" };
const DEPLOYED_WORDS: Record<Deployment["status"], string> = { RUNNING: "Running", SUCCESS: "Succeeded", FAILED: "Failed", UNKNOWN: "Unknown end" };

/** All environments, with what was deployed there. */
export default function Environments() {
  const { error, retryAt } = around.state.value;
  const seen = useSeen(at.value);
  const all = seen.around?.environments.nodes;
  return (
    <section class="listing" aria-labelledby="environments">
      <header class="section-head">
        <h1 id="environments">Environments</h1>
        <AsOf />
        {all && <span class="muted">{count(all.length, "environment")}</span>}
      </header>
      {!all && error && <Trouble error={error} retryAt={retryAt} retry={() => void around.run()} />}
      {!all && !error && <Skeleton rows={8} label="Loading environments" />}
      {all?.length === 0 && (
        <Empty title="No environment is recorded yet. A source that names one deploys into it; a CI job records its own:">
          <Command text="kasbah deployment start --env production --project shop/front" />
        </Empty>
      )}
      {all && all.length > 0 && (
        <div class="table-frame">
          <table>
            <thead>
              <tr>
                <th scope="col">Health</th>
                <th scope="col">Environment</th>
                <th scope="col">Project</th>
                <th scope="col">Tier</th>
                <th scope="col">Last deployment</th>
                <th scope="col">Commit</th>
                <th scope="col">When</th>
              </tr>
            </thead>
            <tbody>
              {inOrder(all, seen).map((environment) => (
                <Row environment={environment} health={healthOf(environment, seen)} key={environment.id} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function healthOf(environment: Environment, { groups }: Seen): Kind {
  if (environment.state === "STOPPED") return "suspended";
  const group = groups?.find((one) => one.environment?.id === environment.id);
  if (group) return group.status;
  return groups && placed([environment]).length > 0 ? "healthy" : "unknown";
}

/** The worst first. */
function inOrder(all: Environment[], seen: Seen): Environment[] {
  const name = ({ projectPath, name }: Environment) => `${projectPath} ${name}`;
  return [...all].sort((one, other) => compare(healthOf(one, seen), healthOf(other, seen)) || name(one).localeCompare(name(other)));
}

function Row({ environment, health }: { environment: Environment; health: Kind }) {
  const last = environment.lastDeployment;
  const to = environmentPath(environment.id);
  return (
    <tr onClick={(event) => (event.target as Element).closest("a") || visit(to)}>
      <td>
        <Status status={health} word={environment.state === "STOPPED" ? "Stopped" : WORDS[health]} />
      </td>
      <td>
        <a href={to} data-row>
          {environment.name}
        </a>
      </td>
      <td>{environment.projectPath}</td>
      <td>{environment.tier.toLowerCase()}</td>
      <td>{last ? <Status status={DEPLOYED[last.status]} word={DEPLOYED_WORDS[last.status]} /> : <span class="muted">none</span>}</td>
      <td>
        <code>{short(last?.sha)}</code>
      </td>
      <td class="muted">{last && <Ago at={Date.parse(last.createdAt)} />}</td>
    </tr>
  );
}
