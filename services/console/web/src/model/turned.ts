// Two moments compared.

import type { Group } from "./overview.ts";

/** What differs between two moments, by what was wrong. */
export interface Turned {
  /** Wrong at the later moment alone. */
  came: Group[];
  /** Wrong at the earlier moment alone. */
  went: Group[];
  /** Wrong at both, in another way. */
  turned: [before: Group, after: Group][];
  /** Wrong at both, in the same way. */
  stayed: Group[];
}

/** The parts of a group that make it another one for a reader. */
const saying = (group: Group) => JSON.stringify([group.status, group.troubles.map(({ root, guilty }) => [root.uid, guilty.uid, guilty.health.message]), group.remarks.map(({ text }) => text)]);

export function turnedBetween(before: Group[], after: Group[]): Turned {
  const earlier = new Map(before.map((group) => [group.key, group]));
  const later = new Set(after.map(({ key }) => key));
  const both = after.flatMap((group): [Group, Group][] => {
    const was = earlier.get(group.key);
    return was ? [[was, group]] : [];
  });
  return {
    came: after.filter(({ key }) => !earlier.has(key)),
    went: before.filter(({ key }) => !later.has(key)),
    turned: both.filter(([was, is]) => saying(was) !== saying(is)),
    stayed: both.filter(([was, is]) => saying(was) === saying(is)).map(([, is]) => is),
  };
}
