import type { Agent, Cluster } from "../../api/types.ts";
import { at } from "../../model/at.ts";
import { wordOf } from "../../model/delivery.ts";
import { count } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import { agentsThen, tunnelEvents } from "../../model/past.ts";
import { agentPath } from "../../model/paths.ts";
import { compare, ofState, type Status as Kind } from "../../model/status.ts";
import { around } from "../../model/store.ts";
import { readable } from "../../model/time.ts";
import { AsOf } from "../../parts/as-of.tsx";
import { useCalmOrder } from "../../parts/calm.ts";
import { Glow } from "../../parts/glow.tsx";
import { Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { At, ForOrSince } from "../../parts/time.tsx";
import { usePast } from "../../parts/use-seen.ts";
import { FirstRun, isFirstRun } from "../first-run.tsx";

/** How an agent is shown: one that is gone as it was, and hatched. */
export function shownAs(agent: Agent): { status: Kind; word: string; stale: boolean } {
  const isConnected = (agent.status?.instances.length ?? 0) > 0;
  if (!agent.status) return { status: "unknown", word: "Not known yet", stale: false };
  if (isConnected) {
    const { state } = agent.status;
    return { status: ofState(state), word: state === "IN_SYNC" ? "Connected" : wordOf(state), stale: false };
  }
  return agent.status.goneSince ? { status: "healthy", word: "Gone", stale: true } : { status: "missing", word: "Never connected", stale: false };
}

/** All agents, each in one line. Where there is none, how to get the first. */
export default function Agents() {
  const { value, error, retryAt } = around.state.value;
  const moment = at.value;
  const isUnknown = usePast(moment);
  const all = value?.agents.nodes ?? null;
  const nodes = all && !isUnknown ? (moment === null ? all : agentsThen(all, moment)) : null;
  const connected = nodes?.filter((agent) => agent.status?.instances.length).length ?? 0;
  if (value && isFirstRun(value)) return <FirstRun around={value} />;
  return (
    <section class="listing" aria-labelledby="agents">
      <header class="section-head">
        <h1 id="agents">Agents</h1>
        <AsOf />
        {nodes && (
          <span class="muted">
            {connected} of {count(nodes.length, "agent")} connected
          </span>
        )}
      </header>
      {moment !== null && !isUnknown && (
        <Notice tone={tunnelEvents() ? "plain" : "warning"}>
          {tunnelEvents() ? "By what the log has of connections; what was wrong with an agent is not known of the past." : "Whether agents were connected stands in the log, which you may not read, or which has more of these days than is read here."}
        </Notice>
      )}
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void around.run()} />}
      {!nodes && !error && <Skeleton rows={5} label="Loading agents" />}
      {nodes?.length === 100 && <Notice>The first 100 agents are shown: kasbah agent list.</Notice>}
      {value && nodes && <Lines agents={nodes} coverage={moment === null ? value.coverage.agents : []} />}
    </section>
  );
}

function Lines({ agents, coverage }: { agents: Agent[]; coverage: Cluster[] }) {
  const worstFirst = [...agents].sort((one, other) => {
    const [a, b] = [shownAs(one), shownAs(other)];
    return Number(b.stale) - Number(a.stale) || compare(a.status, b.status) || one.name.localeCompare(other.name);
  });
  const { shown, moved, reorder, hands } = useCalmOrder(worstFirst, (agent) => agent.id);
  return (
    <>
      {moved > 0 && (
        <button type="button" class="chip" onClick={reorder}>
          {count(moved, "change")}, reorder
        </button>
      )}
      <ul class="lines" {...hands}>
        {shown.map((agent) => (
          <Row agent={agent} cluster={coverage.find((one) => one.agent === agent.id)} key={agent.id} />
        ))}
      </ul>
    </>
  );
}

function Row({ agent, cluster }: { agent: Agent; cluster: Cluster | undefined }) {
  const { status, word, stale } = shownAs(agent);
  const instances = agent.status?.instances ?? [];
  const since = instances.length > 0 ? Math.min(...instances.map((instance) => Date.parse(instance.since))) : null;
  const wrong = agent.status?.conditions.find((condition) => condition.state !== "IN_SYNC");
  const versions = [...new Set(instances.map((instance) => instance.version))];
  return (
    <li>
      <a class="line agent-line" href={agentPath(agent.id)} data-row>
        <span class="line-status">
          <Glow of={word}>
            <Status status={status} stale={stale} word={word} />
          </Glow>
        </span>
        <span class="line-name">
          <b>{agent.name}</b> <span class="muted">{agent.projectPath}</span>
        </span>
        <span class="line-what">
          {wrong ? readable(wrong.message, lately.value) : (cluster?.stale && readable(cluster.stale, lately.value)) || (cluster ? `${count(cluster.objects, "object")} of ${count(cluster.kinds, "kind")}` : "")}
          {cluster && cluster.blindCount > 0 && <span class="word is-out-of-sync"> {count(cluster.blindCount, "kind")} cannot be seen</span>}
        </span>
        <span class="line-commit">
          {versions.join(", ")}
          {instances.length > 1 && <span class="muted"> {instances.length} instances</span>}
        </span>
        <span class="line-when muted">
          {since !== null ? (
            <ForOrSince since={since} />
          ) : agent.status?.goneSince ? (
            <>
              since <At at={Date.parse(agent.status.goneSince)} />
            </>
          ) : null}
        </span>
      </a>
    </li>
  );
}
