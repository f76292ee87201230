// Lines of pods' logs: whatever a program writes is shown as text, and nothing that it writes moves or hides other text.

/** A longer line is cut. */
export const LONGEST = 4096;

// biome-ignore lint: these are the characters that are taken out.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[PX^_][^\u001b]*\u001b\\|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
/** Characters that change the direction or the place of other text, or are nothing at all. */
const UNSEEN = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** A line without colours and what else steers a terminal; other control characters are shown as what they are. */
export function plain(line: string): string {
  const cut = line.length > LONGEST ? `${line.slice(0, LONGEST)} … ${line.length - LONGEST} more characters` : line;
  return cut
    .replace(ESCAPES, "")
    .replace(CONTROLS, (control) => (control < " " ? String.fromCharCode(0x2400 + control.charCodeAt(0)) : "\u2421"))
    .replace(UNSEEN, "\u00b7");
}

export interface Said {
  /** Which stream it came by. */
  from: number;
  /** When, as the kubelet says; empty where it does not. */
  at: string;
  text: string;
}

/** A line with the time that the kubelet has put before it. */
export function parsed(from: number, line: string): Said {
  const space = line.indexOf(" ");
  const at = space > 0 ? line.slice(0, space) : "";
  const isTime = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(at);
  return isTime ? { from, at, text: plain(line.slice(space + 1)) } : { from, at: "", text: plain(line) };
}

/** Puts lines of several streams behind what is there, in the order of their times; the oldest go when there are too many. */
export function appended(known: Said[], more: Said[], limit: number): Said[] {
  const sorted = [...more].sort((one, other) => (one.at && other.at ? one.at.localeCompare(other.at) : 0));
  const all = known.concat(sorted);
  return all.length > limit ? all.slice(all.length - limit) : all;
}
