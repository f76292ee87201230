import type { Cluster, Tier } from "../api/types.ts";
import { count, type News, news, short } from "../model/news.ts";
import { agentOf, type Group, lastMade, notWellSince, placed, stretches, type Trouble as WrongObject } from "../model/overview.ts";
import { environmentPath, placePath } from "../model/paths.ts";
import { isBad, ofHealth, ofState, type Status as Kind, WORDS } from "../model/status.ts";
import { at, compared } from "../model/at.ts";
import type { Seen } from "../model/seen.ts";
import { around } from "../model/store.ts";
import { absolute, moment, readable, span } from "../model/time.ts";
import { useCalmOrder } from "../parts/calm.ts";
import { AsOf } from "../parts/as-of.tsx";
import { Glow } from "../parts/glow.tsx";
import { Later } from "../parts/later.tsx";
import { Notice, Skeleton, Trouble } from "../parts/states.tsx";
import { Shape, Status } from "../parts/status.tsx";
import { Strip } from "../parts/strip.tsx";
import { Ago, At, For } from "../parts/time.tsx";
import { useSeen } from "../parts/use-seen.ts";
import { FirstRun, isFirstRun } from "./first-run.tsx";

const DAY = 86_400_000;
/** What is shown of one place; the rest is counted. */
const TROUBLES = 3;
const NEWS = 14;
const TIERS: Tier[] = ["PRODUCTION", "STAGING", "TESTING", "DEVELOPMENT", "OTHER"];

const loadTurned = () => import("./turned.tsx");

/** What is wrong, since when, because of what, and what changed: now, or at a moment. */
export function Overview() {
  const seen = useSeen(at.value);
  const rest = around.state.value.value;
  if (rest && isFirstRun(rest) && seen.groups?.length === 0) return <FirstRun around={rest} />;
  return (
    <div class={`overview${at.value !== seen.at ? " is-loading" : ""}`} aria-busy={at.value !== seen.at}>
      {compared.value !== null ? <Later load={loadTurned} shown={{ seen, earlier: compared.value }} waiting={<Skeleton rows={5} label="Loading what differs" />} /> : <Wrong seen={seen} />}
      <div class="aside">
        <Changed seen={seen} />
        <Clusters seen={seen} />
      </div>
    </div>
  );
}

function Wrong({ seen }: { seen: Seen }) {
  const { groups: all, failing } = seen;
  const is = verb(seen, 1);
  return (
    <section class="wrong" aria-labelledby="wrong">
      <header class="section-head">
        <h1 id="wrong">{all?.length === 0 ? `Nothing ${is} wrong` : `What ${is} wrong`}</h1>
        <AsOf />
        <span class="muted" aria-live="polite">
          {all && all.length > 0 && summary(all)}
        </span>
      </header>
      {failing && <Trouble {...failing} />}
      {!all && !failing && <Skeleton rows={5} label="Loading what is wrong" />}
      {all?.length === 0 && <AllWell seen={seen} />}
      {all && all.length > 0 && <Groups all={all} seen={seen} />}
      <Missing seen={seen} />
    </section>
  );
}

/** How many of what: `2 degraded, 1 not connected`. */
function summary(all: Group[]): string {
  const words = all.map((group) => (group.word ?? WORDS[group.status]).toLowerCase());
  return [...Map.groupBy(words, (word) => word)].map(([word, { length }]) => `${length} ${word}`).join(", ");
}

function Groups({ all, seen }: { all: Group[]; seen: Seen }) {
  const { shown, moved, reorder, hands } = useCalmOrder(all, (group) => group.key);
  return (
    <>
      {moved > 0 && (
        <button type="button" class="chip" onClick={reorder}>
          {count(moved, "change")}, reorder
        </button>
      )}
      <ul class="groups" {...hands}>
        {shown.map((group) => (
          <Row group={group} seen={seen} key={group.key} />
        ))}
        <Others all={all} seen={seen} />
      </ul>
    </>
  );
}

const verb = ({ at }: Seen, number: number) => (at === null ? (number === 1 ? "is" : "are") : number === 1 ? "was" : "were");

/** What is well is counted. */
function Others({ all, seen }: { all: Group[]; seen: Seen }) {
  const environments = placed(seen.around?.environments.nodes ?? []);
  const wrong = new Set(all.map((group) => group.environment?.id));
  const others = environments.filter((one) => !wrong.has(one.id));
  if (others.length === 0) return null;
  // How a cluster is without its agent is not known.
  const gone = new Set(all.filter(({ key }) => key.startsWith("agent:")).map(({ agent }) => agent));
  const known = others.filter((one) => !gone.has(agentOf(one)?.id ?? ""));
  const unsure = others.length - known.length;
  const tiers = TIERS.map((tier) => [known.filter((one) => one.tier === tier).length, tier.toLowerCase()] as const);
  const parts = tiers.filter(([number]) => number > 0).map(([number, tier]) => `${number} ${tier}`);
  return (
    <li>
      <a class="others" href="/environments" data-row>
        <Shape status="healthy" stale={known.length === 0} />
        {known.length > 0 && `${count(known.length, "other environment")} ${verb(seen, known.length)} healthy: ${parts.join(", ")}`}
        {known.length > 0 && unsure > 0 && "; "}
        {unsure > 0 && `${count(unsure, "environment")} ${unsure === 1 ? "was" : "were"} healthy when last known`}
      </a>
    </li>
  );
}

/** The name of a place first where it tells more than others of its kind do. */
export function Name({ group }: { group: Group }) {
  const { environment, title, where, tier } = group;
  if (!environment) {
    return (
      <>
        <b>{title}</b>
        <span class="muted">{where}</span>
      </>
    );
  }
  return (
    <>
      <b>{environment.projectPath}</b>
      <b>{title}</b>
      {tier && tier.toLowerCase() !== title && <span class="tier">{tier.toLowerCase()}</span>}
    </>
  );
}

export function pathOf(group: Group): string {
  if (group.environment) return environmentPath(group.environment.id);
  return placePath(group.agent, group.namespace);
}

function Row({ group, seen }: { group: Group; seen: Seen }) {
  const { days, until } = seen;
  const uids = new Set(group.troubles.flatMap(({ root, guilty }) => [root.uid, guilty.uid]));
  const histories = [...uids].map((uid) => days.get(uid) ?? []);
  const starts = [...histories.map(notWellSince), ...group.remarks.map(({ since }) => since)].filter((at) => at !== null);
  const since = starts.length > 0 ? Math.min(...starts) : null;
  const day = histories.flatMap((past) => stretches(past, until - DAY, until));
  const more = group.troubles.length - TROUBLES;
  return (
    <li>
      <a class={`group is-${group.status}`} href={pathOf(group)} data-row>
        <span class="group-status">
          <Shape status={group.word ? "healthy" : group.status} stale={group.stale !== null} />
        </span>
        <span class="group-name">
          <Name group={group} />
        </span>
        <span class="group-since">
          <Glow of={group.status}>
            <Status status={group.status} stale={group.stale !== null} word={group.word ?? WORDS[group.status]} />
          </Glow>
          {since !== null && (
            <span class="muted">
              {seen.at === null ? <For since={since} /> : span(until - since)}
            </span>
          )}
        </span>
        <span class="group-reasons">
          {group.remarks.map((remark) => (
            <span class="reason" key={remark.text}>
              <span class="why">{readable(remark.text, until)}</span>
            </span>
          ))}
          {group.troubles.slice(0, TROUBLES).map((trouble) => (
            <Reason trouble={trouble} until={until} key={trouble.root.uid} />
          ))}
          {more > 0 && <span class="muted">and {count(more, "more object", "more objects")}</span>}
          {group.stale && !group.word && <span class="muted">As it was known last: {readable(group.stale, until)}</span>}
        </span>
        <span class="group-last">
          <LastChange group={group} seen={seen} />
        </span>
        <span class="group-day">{day.length > 0 && <Strip stretches={day} from={until - DAY} until={until} />}</span>
      </a>
    </li>
  );
}

export function Reason({ trouble, until }: { trouble: WrongObject; until: number }) {
  const { root, guilty } = trouble;
  const message = guilty.health.message || root.health.message || "says nothing about why";
  return (
    <span class="reason">
      <span class="culprit">
        {root.kind} <code>{root.name}</code>
        {guilty.uid !== root.uid && (
          <span class="muted">
            {" "}
            because of {guilty.kind} <code>{guilty.name}</code>
          </span>
        )}
      </span>
      <span class="why" title={message}>
        {readable(message, until)}
      </span>
    </span>
  );
}

/** Who changed it last, and what: a deployment, or somebody by hand. */
function LastChange({ group, seen: { days, around } }: { group: Group; seen: Seen }) {
  const made = group.troubles
    .map(({ root }) => lastMade(days.get(root.uid) ?? []))
    .filter((change) => change !== null)
    .sort((one, other) => other.recordedAt.localeCompare(one.recordedAt))[0];
  const deployment = group.environment?.lastDeployment;
  const source = around?.sources.nodes.find((one) => one.agent === group.agent && one.defaultNamespace === group.namespace);
  const commit = deployment?.sha ?? source?.sync?.commit ?? null;
  const at = made ? Date.parse(made.recordedAt) : deployment ? Date.parse(deployment.createdAt) : null;
  if (at === null && !commit) return null;
  return (
    <>
      <span>
        {made ? `by ${made.writer?.manager}` : "deployed"} {commit && (made?.writer?.manager ?? "kasbah") === "kasbah" && <code>{short(commit)}</code>}
      </span>
      {at !== null && (
        <span class="muted">
          <Ago at={at} />
        </span>
      )}
    </>
  );
}

function AllWell({ seen }: { seen: Seen }) {
  const { around: rest, until } = seen;
  if (!rest) return null;
  const environments = placed(rest.environments.nodes).length;
  const unsure = rest.coverage.agents.filter((cluster) => cluster.stale || cluster.blindCount > 0).length;
  const objects = rest.coverage.agents.reduce((sum, cluster) => sum + cluster.objects, 0);
  const turned = (seen.changes ?? []).find((change) => change.healthBefore && isBad(ofHealth(change.healthBefore)) && !isBad(ofHealth(change.health)));
  const at = turned ? Date.parse(turned.recordedAt) : null;
  const is = verb(seen, 1);
  const what = environments > 0 ? `All ${count(environments, "environment")} healthy` : `Everything ${is} healthy`;
  return (
    <div class="all-well">
      <Shape status="healthy" />
      <p>
        {environments === 1 ? `The only environment ${is} healthy` : what}{" "}
        {at === null ? "for more than an hour" : <span title={absolute(at)}>since {moment(at, until)}</span>}
      </p>
      {seen.at === null && (
        <p class="muted">
          {count(objects, "object")} in {count(rest.coverage.agents.length, "cluster")} {objects === 1 ? "is" : "are"} observed
          {unsure > 0 ? `; not everything is seen in ${unsure === rest.coverage.agents.length ? "these" : count(unsure, "cluster")}.` : "."}
        </p>
      )}
    </div>
  );
}

/** What is not shown, and why. */
function Missing({ seen: { unwell: known } }: { seen: Seen }) {
  if (!known) return null;
  return (
    <>
      {known.further > 0 && (
        <Notice>
          {count(known.further, "further place")} with objects that are not well {known.further === 1 ? "is" : "are"} not shown here:{" "}
          <code>kasbah get --health degraded,missing,unknown,progressing</code>
        </Notice>
      )}
      {known.isCut && <Notice>More than 500 objects are not well; the first 500 are looked at.</Notice>}
    </>
  );
}

function Changed({ seen: { around, changes, failing, at, until } }: { seen: Seen }) {
  const all = around && changes && news(changes, around, until);
  const hour = at === null ? "last hour" : "the hour before";
  return (
    <section aria-labelledby="changed">
      <header class="section-head">
        <h2 id="changed">What changed</h2>
        <span class="muted">{hour}</span>
      </header>
      {!all && !failing && <Skeleton rows={6} label="Loading what changed" />}
      {all?.length === 0 && <p class="muted pad">Nobody changed anything in {at === null ? "the last hour" : hour}.</p>}
      {all && all.length > 0 && (
        <ol class="news">
          {all.slice(0, NEWS).map((one) => (
            <NewsRow one={one} key={one.key} />
          ))}
        </ol>
      )}
      {all && all.length > NEWS && <p class="muted pad">{count(all.length - NEWS, "earlier one")}: kasbah log tail</p>}
    </section>
  );
}

function NewsRow({ one }: { one: News }) {
  return (
    <li>
      <span class="muted">
        <At at={one.at} />
      </span>
      <span>{one.status ? <Shape status={one.status} /> : null}</span>
      <span>
        <b>{one.who}</b> {one.what}
        {one.where && <span class="muted"> in {one.where}</span>}
      </span>
    </li>
  );
}

function Clusters({ seen }: { seen: Seen }) {
  const { around: value, failing, until } = seen;
  const covered = new Map(value?.coverage.agents.map((cluster) => [cluster.agent, cluster]));
  return (
    <section aria-labelledby="clusters">
      <header class="section-head">
        <h2 id="clusters">Clusters</h2>
        {value && <span class="muted">{count(value.agents.nodes.length, "agent")}</span>}
      </header>
      {!value && !failing && <Skeleton rows={2} label="Loading clusters" />}
      <ul class="clusters">
        {value?.agents.nodes.map((agent) => {
          const instances = agent.status?.instances ?? [];
          const gone = agent.status?.goneSince ? Date.parse(agent.status.goneSince) : null;
          const isConnected = instances.length > 0;
          const known: Kind = agent.status && isConnected ? ofState(agent.status.state) : "unknown";
          // What was well is drawn as that, and hatched.
          const state = agent.status && !isConnected ? "healthy" : known;
          const version = instances.find((instance) => instance.applier)?.version ?? instances[0]?.version;
          return (
            <li key={agent.id}>
              <Shape status={state} stale={!isConnected} />
              <span>
                <span class="cluster-name">
                  <b>{agent.name}</b> <span class="muted">{agent.projectPath}</span>
                </span>
                {isConnected && seen.at === null && covered.get(agent.id)?.stale && <span class="cluster-line">{readable(covered.get(agent.id)?.stale ?? "", until)}</span>}
                {seen.at === null ? (
                  <Freshness cluster={covered.get(agent.id)} gone={gone} isConnected={isConnected} />
                ) : (
                  <span class="cluster-line muted">{!agent.status ? "whether it was connected is not known" : isConnected ? "was connected" : "was not connected"}</span>
                )}
                {agent.status?.conditions
                  .filter((condition) => isConnected && condition.state !== "IN_SYNC")
                  .map((condition) => (
                    <span class="cluster-line" key={condition.reason}>
                      {condition.message}
                    </span>
                  ))}
              </span>
              <span class="muted cluster-version">{version}</span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Freshness({ cluster, gone, isConnected }: { cluster: Cluster | undefined; gone: number | null; isConnected: boolean }) {
  const blind = cluster?.blind.map((kind) => `${kind.resource}: ${kind.reason}`).join("\n");
  return (
    <span class="cluster-line muted">
      {isConnected && cluster && Date.parse(cluster.heardAt) > 0 && (
        <>
          connected, last change <Ago at={Date.parse(cluster.heardAt)} />
        </>
      )}
      {isConnected && !(cluster && Date.parse(cluster.heardAt) > 0) && "connected"}
      {!isConnected && gone !== null && (
        <>
          gone since <At at={gone} />: shown as then
        </>
      )}
      {!isConnected && gone === null && "never connected"}
      {cluster && ` · ${count(cluster.objects, "object")}`}
      {cluster && cluster.blindCount > 0 && (
        <span class="is-out-of-sync word" title={blind}>
          {" "}
          · {count(cluster.blindCount, "kind")} cannot be seen
        </span>
      )}
    </span>
  );
}
