import { useEffect } from "preact/hooks";
import { learnNames } from "../../model/names.ts";
import { Tabs, tabOf } from "../../parts/tabs.tsx";
import { chosen } from "../../router.ts";
import { ChainView } from "./chain.tsx";
import { Compare } from "./compare.tsx";
import { Log } from "./log.tsx";

const TABS = [
  ["log", "Log"],
  ["compare", "Two moments"],
] as const;

/** What happened: the log, what followed from one cause, and two moments compared. */
export default function History() {
  useEffect(learnNames, []);
  const chain = chosen.value.get("chain");
  if (chain) return <ChainView id={chain} key={chain} />;
  return (
    <section class="listing" aria-labelledby="history">
      <header class="section-head">
        <h1 id="history">History</h1>
      </header>
      <Tabs of={TABS} label="What is shown" />
      <div class="page-tab" id="tab" role="tabpanel" aria-labelledby={`tab-${tabOf(TABS)}`}>
        {tabOf(TABS) === "compare" ? <Compare /> : <Log />}
      </div>
    </section>
  );
}
