import { ask, askInParts } from "../../api/graphql.ts";
import type { Agent, Cluster, Time } from "../../api/types.ts";
import type { loader } from "../../model/loaded.ts";
import { count, short } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import { sourcePath } from "../../model/paths.ts";
import { ofState } from "../../model/status.ts";
import { around } from "../../model/store.ts";
import { readable } from "../../model/time.ts";
import { yaml } from "../../model/yaml.ts";
import { NowOnly } from "../../parts/as-of.tsx";
import { Conditions } from "../../parts/conditions.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { PlainTable } from "../../parts/table.tsx";
import { Tabs, tabOf } from "../../parts/tabs.tsx";
import { Ago, At, For } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { Findings } from "../delivery/commits.tsx";
import type { Finding } from "../../api/delivery.ts";
import { shownAs } from "./agents.tsx";
import { Connections } from "./connections.tsx";

const EVERY = 5000;
const BLIND = 200;
const FINDING = "file line column field message";
const AGENT = `query Agent($name: String!) { agent(name: $name) { id name projectPath groupName registeredAt
  status { state conditions { state reason message since retryAt } instances { id since version applier } goneSince apiServerReachable missingRights } } }`;
const CONFIGURATION = `query Configuration($name: String!) { agent(name: $name) { configuration { file inForce commit since
  warnings { ${FINDING} } rejectedAt rejectedCommit findings { ${FINDING} } } } }`;
const TABS = [
  ["connection", "Connection"],
  ["configuration", "Configuration"],
  ["sees", "What it sees"],
] as const;

interface WholeAgent extends Agent {
  groupName: string | null;
  status: (NonNullable<Agent["status"]> & { apiServerReachable: boolean | null; missingRights: string[] }) | null;
}

interface Configuration {
  file: string;
  inForce: Record<string, unknown> | null;
  commit: string | null;
  since: Time | null;
  warnings: Finding[];
  rejectedAt: Time | null;
  rejectedCommit: string | null;
  findings: Finding[];
}

async function configurationOf(name: string, stop: AbortSignal): Promise<Configuration | null> {
  const { data, failure } = await askInParts<{ agent: { configuration: Configuration | null } | null }>(CONFIGURATION, { name }, stop);
  if (!data.agent?.configuration && failure) throw failure;
  return data.agent?.configuration ?? null;
}

/** One agent: its connection, its configuration, its rights, and what it cannot see. */
export default function AgentView({ matched }: { matched: string[] }) {
  const name = matched[0] ?? "";
  const often = { every: EVERY };
  const agent = usePolled(async (stop) => (await ask<{ agent: WholeAgent }>(AGENT, { name }, stop)).agent, [name], often);
  const configuration = usePolled((stop) => configurationOf(name, stop), [name], often);
  const { value, error, retryAt } = agent.state.value;
  if (!value) {
    return (
      <section class="listing">
        {error?.kind === "not-found" ? (
          <Empty title="There is no such agent, or you may not see it: a maintainer of its project may." />
        ) : error ? (
          <Trouble error={error} retryAt={retryAt} retry={() => void agent.run()} />
        ) : (
          <Skeleton rows={10} label="Loading the agent" />
        )}
      </section>
    );
  }
  const { status, word, stale } = shownAs(value);
  const cluster = around.state.value.value?.coverage.agents.find((one) => one.agent === value.id);
  const rejected = configuration.state.value.value?.rejectedAt;
  return (
    <section class="listing" aria-labelledby="agent">
      <header class="place-head">
        <div class="section-head">
          <h1 id="agent">{value.name}</h1>
          <Status status={status} stale={stale} word={word} />
        </div>
        <p class="muted facts">
          <span>{value.projectPath}</span>
          {value.groupName && <span>owned by group {value.groupName}</span>}
          <span>
            registered <Ago at={Date.parse(value.registeredAt)} />
          </span>
          {cluster && (
            <span>
              {count(cluster.objects, "object")} of {count(cluster.kinds, "kind")}
            </span>
          )}
        </p>
      </header>
      {value.status && value.status.instances.length === 0 && value.status.goneSince && (
        <Notice tone="warning">
          No instance is connected since <At at={Date.parse(value.status.goneSince)} />: what is shown of its cluster is as it was then. In the cluster,{" "}
          <code>kubectl -n kasbah-agent logs deploy/kasbah-agent</code> says why.
        </Notice>
      )}
      {rejected && (
        <Notice tone="warning">
          Its newest configuration was rejected, and the one before stays in force. <a href="?tab=configuration">What is wrong with it</a>
        </Notice>
      )}
      <Conditions of={value.status?.conditions.filter((one) => one.state !== "IN_SYNC") ?? []} label="What is so" />
      <MissingRights of={value} />
      <Sources of={value} />
      <NowOnly what="The strip of its connections has the last seven days; the rest has no past" />
      <Tabs of={TABS} label="What is shown of it" />
      <div class="page-tab" id="tab" role="tabpanel" aria-labelledby={`tab-${tabOf(TABS)}`} tabIndex={0}>
        {tabOf(TABS) === "connection" && <Connection of={value} />}
        {tabOf(TABS) === "configuration" && <Configured of={configuration} agent={value} />}
        {tabOf(TABS) === "sees" && <Sees cluster={cluster} name={value.name} />}
      </div>
    </section>
  );
}

function MissingRights({ of }: { of: WholeAgent }) {
  const missing = of.status?.missingRights ?? [];
  if (missing.length === 0) return null;
  return (
    <section class="missing" aria-labelledby="missing">
      <h2 id="missing">Missing rights</h2>
      <ul>
        {missing.map((right) => (
          <li key={right}>{right}</li>
        ))}
      </ul>
      <p class="muted">This gives the agent what its configuration needs:</p>
      <Command text={`kasbah agent rights ${of.name} | kubectl apply -f -`} />
    </section>
  );
}

function Sources({ of }: { of: WholeAgent }) {
  const sources = around.state.value.value?.sources.nodes.filter((source) => source.agent === of.id) ?? [];
  if (sources.length === 0) return null;
  return (
    <p class="facts agent-sources">
      {sources.map((source) => (
        <a href={sourcePath(source.id)} key={source.id}>
          <Status status={ofState(source.status.state)} word={source.name} />
        </a>
      ))}
    </p>
  );
}

function Connection({ of }: { of: WholeAgent }) {
  const instances = of.status?.instances ?? [];
  return (
    <>
      <Connections agent={of.id} registered={Date.parse(of.registeredAt)} isConnected={instances.length > 0} />
      {instances.length === 0 ? (
        <Empty title="No instance is connected. In the cluster, this says why:">
          <Command text="kubectl -n kasbah-agent logs deploy/kasbah-agent" />
        </Empty>
      ) : (
        <PlainTable label="Instances" columns={["Instance", "Version", "Connected for", "Role"]}>
          {instances.map((instance) => (
            <tr key={instance.id}>
              <td>
                <code title={instance.id}>{instance.id.slice(0, 8)}</code>
              </td>
              <td>{instance.version}</td>
              <td>
                <For since={Date.parse(instance.since)} />
              </td>
              <td>{instance.applier ? (of.status?.apiServerReachable === false ? "applies, but does not reach its API server" : "applies") : "stands by"}</td>
            </tr>
          ))}
        </PlainTable>
      )}
      <Command text={`kasbah agent show ${of.name}`} />
    </>
  );
}

function Configured({ of, agent }: { of: ReturnType<typeof loader<Configuration | null>>; agent: WholeAgent }) {
  const { value, error, retryAt } = of.state.value;
  if (error && !value) return <Trouble error={error} retryAt={retryAt} retry={() => void of.run()} />;
  if (!value) return <Skeleton rows={6} label="Loading the configuration" />;
  return (
    <>
      <p>
        <code>{value.file}</code> in {agent.projectPath}
        {value.commit && value.since && (
          <>
            , in force at <code>{short(value.commit)}</code> since <At at={Date.parse(value.since)} />
          </>
        )}
      </p>
      {value.rejectedAt && (
        <section aria-label="The rejected configuration">
          <p class="fate">
            <Status status="degraded" word="Rejected" /> <code>{short(value.rejectedCommit)}</code> <Ago at={Date.parse(value.rejectedAt)} />
          </p>
          <Findings findings={value.findings} />
        </section>
      )}
      {value.warnings.length > 0 && (
        <section aria-label="Warnings">
          <p class="fate">
            <Status status="out-of-sync" word={count(value.warnings.length, "warning")} />
          </p>
          <Findings findings={value.warnings} />
        </section>
      )}
      {value.inForce ? (
        <pre class="yaml" tabIndex={0} aria-label="What is in force">
          {yaml(value.inForce)}
        </pre>
      ) : (
        <Empty title={`Nothing is in force: there never was a good ${value.file}.`} />
      )}
      <Command text={`kasbah config check --project ${agent.projectPath}`} />
    </>
  );
}

function Sees({ cluster, name }: { cluster: Cluster | undefined; name: string }) {
  if (!cluster) return <Empty title="What it sees is not known, or you may not use its cluster." />;
  return (
    <>
      <p>
        It observes {count(cluster.objects, "object")} of {count(cluster.kinds, "kind")}
        {Date.parse(cluster.heardAt) > 0 && (
          <>
            ; the last change came <Ago at={Date.parse(cluster.heardAt)} />
          </>
        )}
        . {cluster.blindCount === 0 ? "No kind is hidden from it." : `${count(cluster.blindCount, "kind")} cannot be seen:`}
      </p>
      {cluster.stale && <Notice tone="warning">{readable(cluster.stale, lately.value)}.</Notice>}
      {cluster.blind.length > 0 && (
        <PlainTable label="Kinds that cannot be seen" columns={["Kind", "Namespace", "Missing verb"]} wide="Why">
          {cluster.blind.slice(0, BLIND).map((kind) => (
            <tr key={`${kind.resource} ${kind.namespace}`}>
              <td>{kind.resource}</td>
              <td>{kind.namespace || "all"}</td>
              <td>{kind.missingVerb}</td>
              <td class="wide" title={kind.reason}>
                {kind.reason}
              </td>
            </tr>
          ))}
        </PlainTable>
      )}
      {cluster.blindCount > cluster.blind.length && <Notice>{count(cluster.blindCount - cluster.blind.length, "more kind")} cannot be seen.</Notice>}
      <Command text={cluster.blindCount > 0 ? `kasbah agent rights ${name} | kubectl apply -f -` : `kasbah coverage`} />
    </>
  );
}
