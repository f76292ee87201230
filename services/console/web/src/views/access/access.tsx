import { useEffect } from "preact/hooks";
import { learnNames } from "../../model/names.ts";
import { Tabs, tabOf } from "../../parts/tabs.tsx";
import { Audit } from "./audit.tsx";
import { CanI } from "./can-i.tsx";
import { People } from "./people.tsx";
import { Tokens } from "./tokens.tsx";

const TABS = [
  ["can-i", "Can somebody"],
  ["people", "People"],
  ["tokens", "Sessions and tokens"],
  ["audit", "Audit"],
] as const;
const VIEWS = { "can-i": CanI, people: People, tokens: Tokens, audit: Audit };

/** Who may do what and by which entry, who did it, and with what. */
export default function Access() {
  useEffect(learnNames, []);
  const tab = tabOf(TABS) as keyof typeof VIEWS;
  const View = VIEWS[tab];
  return (
    <section class="listing" aria-labelledby="access">
      <header class="section-head">
        <h1 id="access">Access</h1>
      </header>
      <Tabs of={TABS} label="What is shown" />
      <div class="page-tab" id="tab" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        <View />
      </div>
    </section>
  );
}
