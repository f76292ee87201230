import { canPin, countsInWords, fateOf, isPast, marksOf, outcomeOf, placeOf, progressOf, saysTheSame, statusOf, wordOf } from "../../model/delivery.ts";
import { at } from "../../model/at.ts";
import { count, short } from "../../model/news.ts";
import { lately, now } from "../../model/now.ts";
import { chainPath } from "../../model/paths.ts";
import { ofState } from "../../model/status.ts";
import { readable, span } from "../../model/time.ts";
import { Command, Empty, Notice } from "../../parts/states.tsx";
import { Shape, Status } from "../../parts/status.tsx";
import { Ago, At } from "../../parts/time.tsx";
import { choose, chosen } from "../../router.ts";
import { Pin } from "./actions.tsx";
import type { Commit, CommitSync, Failure, Finding, WholeSource } from "../../api/delivery.ts";

/** The commit that the address names, or else the one that matters now. */
export function commitOf(source: WholeSource, wanted: string | null): Commit | null {
  const named = wanted && source.commits.find((one) => one.commit.startsWith(wanted));
  const of = (commit: string | null) => source.commits.find((one) => one.commit === commit);
  return named || of(source.heldCommit) || of(source.rejectedCommit) || of(source.desiredCommit) || source.commits[0] || null;
}

/** The commits of a source in a line, the newest first. */
export function CommitLine({ source }: { source: WholeSource }) {
  const shown = commitOf(source, chosen.value.get("commit"));
  if (source.commits.length === 0) return null;
  return (
    <ol class="commits" aria-label="Commits, the newest first" tabIndex={0}>
      {source.commits.map((commit) => (
        <li key={commit.commit}>
          <button type="button" class="commit" aria-pressed={commit === shown} data-row onClick={() => choose("commit", short(commit.commit), true)}>
            <span class="commit-head">
              <Shape status={statusOf(commit, source)} />
              <code>{short(commit.commit)}</code>
            </span>
            <span class="muted">
              <Ago at={Date.parse(commit.at)} />
            </span>
            <span class="commit-marks">{marksOf(commit, source).join(", ")}</span>
          </button>
        </li>
      ))}
    </ol>
  );
}

/** One commit: what became of it, and how each of its syncs went. */
export function CommitView({ source, name, wanted, done }: { source: WholeSource; name: string; wanted: string | null; done: () => void }) {
  const commit = commitOf(source, wanted);
  if (!commit) return <Empty title="No commit was read yet. The next push to its ref is shown here." />;
  const marks = marksOf(commit, source);
  return (
    <article class="commit-view" aria-label={`Commit ${short(commit.commit)}`}>
      <div class="section-head">
        <h2>
          <code>{short(commit.commit)}</code>
        </h2>
        {marks.map((mark) => (
          <span class="tier" key={mark}>
            {mark}
          </span>
        ))}
        <span class="muted">
          read <Ago at={Date.parse(commit.at)} />
        </span>
        <a href={chainPath(commit.chain)}>What followed from it</a>
        {at.value === null && canPin(commit, source) && <Pin source={source} name={name} commit={commit.commit} done={done} label={isPast(commit, source) ? "Roll back to it" : "Pin to it"} />}
      </div>
      {wanted && !commit.commit.startsWith(wanted) && <Notice>The commit that the address names is not among the newest 40; this one is shown instead.</Notice>}
      <p class="fate">{fateOf(commit, source)}</p>
      <Findings findings={commit.findings} more={commit.moreFindings} />
      {commit.confirmedAt && (
        <p class="muted">
          Confirmed by {commit.confirmedBy} at <At at={Date.parse(commit.confirmedAt)} />.
        </p>
      )}
      {commit.pinnedAt && (
        <p class="muted">
          Pinned by {commit.pinnedBy} at <At at={Date.parse(commit.pinnedAt)} />.
        </p>
      )}
      {commit.syncs.length > 0 && (
        <ul class="syncs" aria-label="Its syncs, the newest first">
          {commit.syncs.map((sync) => (
            <SyncRow sync={sync} source={source} key={sync.id} />
          ))}
        </ul>
      )}
      {source.desiredCommit === commit.commit && <NotWell source={source} />}
      <Command text={`kasbah log trace ${commit.commit.slice(0, 10)}`} />
    </article>
  );
}

/** What of a source is not well, the worst first. */
function NotWell({ source }: { source: WholeSource }) {
  const bad = source.notWell.filter((one) => one.state !== "IN_SYNC");
  if (bad.length === 0) return null;
  return (
    <section aria-labelledby="not-well">
      <h3 id="not-well" class="small-head">
        {count(bad.length, "object")} not as {bad.length === 1 ? "it" : "they"} should be
      </h3>
      <ul class="findings">
        {bad.map((one) => (
          <li key={`${one.kind} ${one.namespace}/${one.name}`}>
            <span>
              <Status status={ofState(one.state)} word={one.kind} /> <code>{one.name}</code>
            </span>
            <span>
              {readable(one.message ?? (one.drift.length > 0 ? `changed by somebody else: ${one.drift.join(", ")}` : wordOf(one.state)), lately.value)}
              {one.since && (
                <span class="muted">
                  {" "}
                  since <At at={Date.parse(one.since)} />
                </span>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What is wrong in files, each at its line. */
export function Findings({ findings, more = 0 }: { findings: Finding[]; more?: number }) {
  if (findings.length === 0) return null;
  return (
    <ul class="findings" aria-label="What is wrong, by file and line">
      {findings.map((finding) => (
        <li key={`${placeOf(finding)} ${finding.field} ${finding.message}`}>
          <code>{placeOf(finding) || "the repository"}</code>
          <span>
            {finding.field && <code>{finding.field}: </code>}
            {finding.message}
          </span>
        </li>
      ))}
      {more > 0 && <li class="muted">and {count(more, "more finding")}</li>}
    </ul>
  );
}

function SyncRow({ sync, source }: { sync: CommitSync; source: WholeSource }) {
  const { status, word } = outcomeOf(sync, source);
  const runs = status === "progressing" && sync.startedAt !== null;
  // What is known of the one that runs comes from its source: the log has it once it ended.
  const live = source.sync?.id === sync.id ? source.sync : null;
  const counts = live?.counts ?? sync.counts;
  const failures = live && live.failures.length > 0 ? live.failures : sync.failures;
  const from = sync.startedAt && Date.parse(sync.startedAt);
  const until = sync.finishedAt ? Date.parse(sync.finishedAt) : runs ? now.value : null;
  const { well, all } = progressOf(source);
  return (
    <li>
      <p class="sync-head">
        <Status status={status} word={word} />
        <span>{runs ? `${well} of ${count(all, "object")} as they should be` : countsInWords(counts)}</span>
        {from && until !== null && (
          <span class="muted">
            {runs ? "for" : "in"} {until - from < 10_000 ? `${((until - from) / 1000).toFixed(1)} s` : span(until - from)}, begun <Ago at={from} />
            {sync.run > 1 && `, run ${sync.run}`}
          </span>
        )}
      </p>
      {runs && (
        <progress value={well} max={Math.max(1, all)} aria-label="Objects that are as they should be">
          {well} of {all}
        </progress>
      )}
      {live?.waiting && (
        <p class="waiting">Waits for {saysTheSame(live.waiting, source.status.message) ? live.waiting.split(": ")[0] : readable(live.waiting, lately.value)}</p>
      )}
      {live?.retryAt && Date.parse(live.retryAt) > now.value && <p class="muted">It is tried again in {span(Date.parse(live.retryAt) - now.value)}.</p>}
      <Failures failures={failures} />
    </li>
  );
}

function Failures({ failures }: { failures: Failure[] }) {
  if (failures.length === 0) return null;
  return (
    <ul class="findings" aria-label="What failed">
      {failures.map((failure) => (
        <li key={`${failure.kind} ${failure.namespace} ${failure.name}`}>
          <span>
            {failure.kind} <code>{[failure.namespace, failure.name].filter(Boolean).join("/")}</code>
          </span>
          <span>
            {failure.message}
            {failure.file && <code class="at"> {placeOf({ ...failure, column: 0 })}</code>}
          </span>
        </li>
      ))}
    </ul>
  );
}
