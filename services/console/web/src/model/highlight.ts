/** A part of a line of YAML and what it is. */
export interface Piece {
  kind: "key" | "number" | "word" | null;
  text: string;
}

const KEY = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*"|[^\s"#:][^:]*?)(:)(?= |$)/;

/** What stands in a line of YAML, by its form alone: no state is kept from line to line. */
export function pieces(line: string): Piece[] {
  const found: Piece[] = [];
  const key = KEY.exec(line);
  if (key) {
    found.push({ kind: null, text: key[1] ?? "" }, { kind: "key", text: key[2] ?? "" }, { kind: null, text: ":" });
  }
  const rest = line.slice(key?.[0].length ?? 0);
  const value = rest.trim().replace(/^- /, "");
  const kind = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(value) ? "number" : /^(true|false|null|\{\}|\[\])$/.test(value) ? "word" : null;
  found.push({ kind, text: rest });
  return found.filter(({ text }) => text);
}
