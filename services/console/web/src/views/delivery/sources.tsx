import { useState } from "preact/hooks";
import { ask } from "../../api/graphql.ts";
import { at } from "../../model/at.ts";
import { countsInWords, inOrder, wordOf } from "../../model/delivery.ts";
import { count, short } from "../../model/news.ts";
import { lately } from "../../model/now.ts";
import { sourcesThen } from "../../model/past.ts";
import { sourcePath } from "../../model/paths.ts";
import { ofState } from "../../model/status.ts";
import { around } from "../../model/store.ts";
import { readable } from "../../model/time.ts";
import { AsOf } from "../../parts/as-of.tsx";
import { useCalmOrder } from "../../parts/calm.ts";
import { Glow } from "../../parts/glow.tsx";
import { Command, Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago, ForOrSince } from "../../parts/time.tsx";
import { usePolled } from "../../parts/use-loaded.ts";
import { usePast } from "../../parts/use-seen.ts";
import { choose, chosen } from "../../router.ts";
import { SOURCES, type SourceLine, type SourcesAnswer } from "../../api/delivery.ts";

const EVERY = 3000;

/** All sources, each with one sentence about how it stands. */
export default function Delivery() {
  const sources = usePolled((stop) => ask<SourcesAnswer>(SOURCES, {}, stop), [], { every: EVERY, hears: () => true });
  const { value, error, retryAt } = sources.state.value;
  const moment = at.value;
  const isUnknown = usePast(moment);
  const all = value?.sources.nodes ?? null;
  const nodes = all && !isUnknown ? (moment === null ? all : sourcesThen(all, moment)) : null;
  const wrong = nodes?.filter((one) => !["IN_SYNC", "PROGRESSING", "SUSPENDED"].includes(one.status.state)).length ?? 0;
  return (
    <section class="listing" aria-labelledby="delivery">
      <header class="section-head">
        <h1 id="delivery">Delivery</h1>
        <AsOf />
        {nodes && (
          <span class="muted">
            {count(nodes.length, "source")}
            {wrong > 0 && `, ${wrong} not as ${wrong === 1 ? "it" : "they"} should ${moment === null ? "be" : "have been"}`}
          </span>
        )}
      </header>
      {moment !== null && <Notice>By what the log has of commits, syncs and commands. How objects were stands on the pages of environments.</Notice>}
      {all && nodes && nodes.length < all.length && <Notice>{count(all.length - nodes.length, "source")} whose past is not known here {all.length - nodes.length === 1 ? "is" : "are"} left out.</Notice>}
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void sources.run()} />}
      {!nodes && !error && <Skeleton rows={8} label="Loading sources" />}
      {all?.length === 0 && (
        <Empty title="No source is configured, or you may see none. An agent's configuration names what it keeps applied:">
          <Command text="kasbah config check --project group/project" />
        </Empty>
      )}
      {value?.sources.pageInfo.hasNextPage && <Notice>There are more than 200 sources; the first 200 are shown: kasbah source list.</Notice>}
      {nodes && nodes.length > 0 && <Table sources={nodes} />}
    </section>
  );
}

const agentOf = (source: SourceLine) => around.state.value.value?.agents.nodes.find((one) => one.id === source.agent)?.name ?? "an agent";

function Table({ sources }: { sources: SourceLine[] }) {
  const [text, setText] = useState(chosen.peek().get("text") ?? "");
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const words = (source: SourceLine) => `${agentOf(source)}/${source.name} ${source.defaultNamespace} ${wordOf(source.status.state)} ${source.status.message}`.toLowerCase();
  const matching = inOrder(sources.filter((source) => wanted.every((word) => words(source).includes(word))));
  const { shown, moved, reorder, hands } = useCalmOrder(matching, (source) => source.id);
  const filter = (value: string) => {
    setText(value);
    choose("text", value || null, true);
  };
  return (
    <>
      <div class="filters">
        <input type="search" aria-label="Filter sources" placeholder="Filter" value={text} onInput={(event) => filter(event.currentTarget.value)} />
        {moved > 0 && (
          <button type="button" class="chip" onClick={reorder}>
            {count(moved, "change")}, reorder
          </button>
        )}
      </div>
      <ul class="lines" {...hands}>
        {shown.map((source) => (
          <Row source={source} key={source.id} />
        ))}
      </ul>
      {shown.length === 0 && <Empty title="No source matches the filter." />}
    </>
  );
}

function Row({ source }: { source: SourceLine }) {
  const { status, sync } = source;
  const isBehind = source.newestCommit !== source.syncedCommit;
  return (
    <li>
      <a class="line source-line" href={sourcePath(source.id)} data-row>
        <span class="line-status">
          <Glow of={status.state}>
            <Status status={ofState(status.state)} word={wordOf(status.state)} />
          </Glow>
        </span>
        <span class="line-name">
          <b>
            {agentOf(source)}/{source.name}
          </b>
          <span class="muted"> into {source.defaultNamespace}</span>
        </span>
        <span class="line-what" title={status.message}>
          {status.state === "IN_SYNC" && at.value === null && sync?.commit === source.syncedCommit ? `${count(source.inventory, "object")}; the last sync: ${countsInWords(sync.counts)}` : readable(status.message, lately.value)}
        </span>
        <span class="line-commit">
          <code>{short(source.syncedCommit) || "nothing yet"}</code>
          {isBehind && source.newestCommit && (
            <>
              {" "}
              <span class="muted">newest</span> <code>{short(source.newestCommit)}</code>
            </>
          )}
          {source.pinned && <span class="tier">pinned</span>}
        </span>
        <span class="line-when muted">
          {status.since ? (
            <ForOrSince since={Date.parse(status.since)} />
          ) : sync?.finishedAt ? (
            <>
              synced <Ago at={Date.parse(sync.finishedAt)} />
            </>
          ) : null}
        </span>
      </a>
    </li>
  );
}
