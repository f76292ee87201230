import type { Group } from "../model/overview.ts";
import type { Seen } from "../model/seen.ts";
import { WORDS } from "../model/status.ts";
import { turnedBetween } from "../model/turned.ts";
import { AsOf } from "../parts/as-of.tsx";
import { Empty, Skeleton, Trouble } from "../parts/states.tsx";
import { Shape, Status } from "../parts/status.tsx";
import { useSeen } from "../parts/use-seen.ts";
import { Name, pathOf, Reason } from "./overview.tsx";

/** What of a place is shown. */
const TROUBLES = 2;

/** What was wrong at one of two moments alone, or in another way. */
export default function Differs({ seen: later, earlier: moment }: { seen: Seen; earlier: number }) {
  const earlier = useSeen(moment);
  const failing = earlier.failing ?? later.failing;
  const turned = earlier.groups && later.groups && turnedBetween(earlier.groups, later.groups);
  const isSame = turned && [turned.came, turned.went, turned.turned].every(({ length }) => length === 0);
  return (
    <section class="wrong" aria-labelledby="wrong">
      <header class="section-head">
        <h1 id="wrong">What differs</h1>
        <AsOf />
      </header>
      {failing && <Trouble {...failing} />}
      {!turned && !failing && <Skeleton rows={5} label="Loading what differs" />}
      {isSame && <Empty title={turned.stayed.length === 0 ? "Nothing was wrong at either moment." : "The same was wrong at both moments."} />}
      {turned && (
        <>
          <Some title="Went wrong" of={turned.came} until={later.until} />
          <Some title="Got well" of={turned.went} until={earlier.until} isOver />
          {turned.turned.length > 0 && (
            <section class="differing" aria-label="Wrong in another way">
              <h2>Wrong in another way</h2>
              <ul class="groups">
                {turned.turned.map(([was, is]) => (
                  <li key={is.key}>
                    <Place of={is} />
                    <p class="muted">before</p>
                    <Reasons of={was} until={earlier.until} />
                    <p class="muted">after</p>
                    <Reasons of={is} until={later.until} />
                  </li>
                ))}
              </ul>
            </section>
          )}
          {!isSame && turned.stayed.length > 0 && <p class="muted pad">Wrong in the same way at both: {turned.stayed.map(({ title }) => title).join(", ")}.</p>}
        </>
      )}
    </section>
  );
}

function Some({ title, of, until, isOver = false }: { title: string; of: Group[]; until: number; isOver?: boolean }) {
  if (of.length === 0) return null;
  return (
    <section class={`differing${isOver ? " is-over" : ""}`} aria-label={title}>
      <h2>{title}</h2>
      <ul class="groups">
        {of.map((group) => (
          <li key={group.key}>
            <Place of={group} />
            <Reasons of={group} until={until} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Place({ of }: { of: Group }) {
  return (
    <a class="differing-place" href={pathOf(of)} data-row>
      <Shape status={of.word ? "healthy" : of.status} stale={of.stale !== null} />
      <Name group={of} />
      <Status status={of.status} word={of.word ?? WORDS[of.status]} />
    </a>
  );
}

function Reasons({ of, until }: { of: Group; until: number }) {
  return (
    <div class="group-reasons">
      {of.remarks.map(({ text }) => (
        <span class="reason" key={text}>
          <span class="why">{text}</span>
        </span>
      ))}
      {of.troubles.slice(0, TROUBLES).map((trouble) => (
        <Reason trouble={trouble} until={until} key={trouble.root.uid} />
      ))}
    </div>
  );
}
