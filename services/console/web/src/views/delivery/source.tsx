import { ask } from "../../api/graphql.ts";
import { at } from "../../model/at.ts";
import { saysTheSame, wordOf } from "../../model/delivery.ts";
import { count, short } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import { logOf } from "../../model/past.ts";
import { agentPath, placePath } from "../../model/paths.ts";
import { ofState } from "../../model/status.ts";
import { around } from "../../model/store.ts";
import { sourceThen } from "../../model/then.ts";
import { readable } from "../../model/time.ts";
import { AsOf, NowOnly } from "../../parts/as-of.tsx";
import { Conditions } from "../../parts/conditions.tsx";
import { Glow } from "../../parts/glow.tsx";
import { Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Tabs, tabOf } from "../../parts/tabs.tsx";
import { At, ForOrSince } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { usePast } from "../../parts/use-seen.ts";
import { chosen } from "../../router.ts";
import { Actions } from "./actions.tsx";
import { CommitLine, CommitView } from "./commits.tsx";
import { Deeds } from "./deeds.tsx";
import { NextSync } from "./diff.tsx";
import { Objects } from "./objects.tsx";
import { SOURCE, type WholeSource } from "../../api/delivery.ts";

const EVERY = 2000;
const TABS = [
  ["commit", "Commit"],
  ["objects", "Objects"],
  ["next", "Next sync"],
  ["people", "By people"],
] as const;

/** One source: how it stands and why, its commits, what became of each, and what can be done. */
export default function SourceView({ matched }: { matched: string[] }) {
  const id = matched[0] ?? "";
  const source = usePolled(async (stop) => (await ask<{ source: WholeSource }>(SOURCE, { id }, stop)).source, [id], {
    every: EVERY,
    hears: (changes, known) => changes.some((change) => change.agent === known?.agent),
  });
  const { value: now, error, retryAt } = source.state.value;
  const moment = at.value;
  usePast(moment);
  const value = now && moment !== null ? sourceThen(now, { commits: now.commits, deeds: logOf(id)?.deeds ?? [] }, moment) : now;
  const agent = around.state.value.value?.agents.nodes.find((one) => one.id === value?.agent);
  if (!value) {
    return (
      <section class="listing">
        {error?.kind === "not-found" ? (
          <Empty title="There is no such source, or you may not see it: a maintainer of its agent may." />
        ) : error ? (
          <Trouble error={error} retryAt={retryAt} retry={() => void source.run()} />
        ) : (
          <Skeleton rows={10} label="Loading the source" />
        )}
      </section>
    );
  }
  const name = `${agent?.name ?? value.agent}/${value.name}`;
  return (
    <section class="listing source" aria-labelledby="source">
      <header class="place-head">
        <div class="section-head">
          <h1 id="source">{name}</h1>
          <Glow of={value.status.state}>
            <Status status={ofState(value.status.state)} word={wordOf(value.status.state)} />
          </Glow>
          <AsOf />
          {value.status.since && (
            <span class="muted">
              <ForOrSince since={Date.parse(value.status.since)} />
            </span>
          )}
        </div>
        <p class="place-reason clamped" title={value.status.message}>{readable(value.status.message, lately.value)}</p>
        <Facts source={value} agent={agent?.name ?? null} />
      </header>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void source.run()} />}
      <OtherConditions source={value} />
      {moment === null ? <Actions source={value} name={name} done={() => void source.run()} /> : <Notice>Commands are given now, and not at another moment: its page as it is now has them.</Notice>}
      <CommitLine source={value} />
      <Tabs of={TABS} label="What is shown of it" />
      <div class="page-tab" id="tab" role="tabpanel" aria-labelledby={`tab-${tabOf(TABS)}`} tabIndex={0}>
        {tabOf(TABS) !== "commit" && <NowOnly what={tabOf(TABS) === "people" ? "All that people did is listed" : "This has no past"} />}
        <Shown source={value} name={name} done={() => void source.run()} />
      </div>
    </section>
  );
}

function Shown({ source, name, done }: { source: WholeSource; name: string; done: () => void }) {
  switch (tabOf(TABS)) {
    case "objects":
      return <Objects id={source.id} stamp={`${source.sync?.id} ${source.sync?.finishedAt} ${source.status.message}`} />;
    case "next":
      return <NextSync source={source} name={name} />;
    case "people":
      return <Deeds id={source.id} stamp={`${source.suspended} ${source.pinned} ${source.heldCommit} ${source.sync?.id}`} />;
    default:
      return <CommitView source={source} name={name} wanted={chosen.value.get("commit")} done={done} />;
  }
}

function Facts({ source, agent }: { source: WholeSource; agent: string | null }) {
  return (
    <p class="muted facts">
      <span>
        agent <a href={agentPath(source.agent)}>{agent ?? "that you may not see"}</a>
      </span>
      <span>
        into <a href={placePath(source.agent, source.defaultNamespace)}>{source.defaultNamespace}</a>
      </span>
      <span>
        follows <code>{source.reference}</code> <code>{source.include.join(" ")}</code>
      </span>
      {source.syncedCommit && source.syncedAt && (
        <span>
          at <code>{short(source.syncedCommit)}</code> since <At at={Date.parse(source.syncedAt)} />
        </span>
      )}
      <span>{count(source.inventory, "object")}</span>
    </p>
  );
}

/** What else is so, beside the headline. */
function OtherConditions({ source }: { source: WholeSource }) {
  const { message } = source.status;
  const others = source.status.conditions.filter((one) => one.message !== message && !saysTheSame(message, one.message) && one.state !== "IN_SYNC");
  return (
    <>
      {source.fetchFailure && !source.status.message.includes(source.fetchFailure) && (
        <Notice tone="warning">The repository cannot be read, so there may be newer commits: {source.fetchFailure}.</Notice>
      )}
      <Conditions of={others} label="What else is so" />
    </>
  );
}
