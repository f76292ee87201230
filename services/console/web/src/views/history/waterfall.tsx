import { after, type Row } from "../../model/chain.ts";

const HEIGHT = 28;
const WIDTH = 600;
const PAD = 4;
const TICKS = [100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000];

/** The rows of a chain over time: each bar goes from its cause to itself, and hangs from it. */
export function Waterfall({ rows, begun }: { rows: Row[]; begun: number }) {
  const last = Math.max(begun + 1, ...rows.map((row) => row.node.at));
  const first = Math.min(begun, ...rows.map((row) => row.node.at));
  const whole = last - first;
  const x = (at: number) => PAD + ((Math.max(first, at) - first) / whole) * (WIDTH - 2 * PAD);
  const y = (row: number) => row * HEIGHT + HEIGHT / 2;
  const tick = TICKS.find((one) => whole / one <= 6) ?? whole / 4;
  const ticks = Array.from({ length: Math.floor(whole / tick) + 1 }, (_, number) => number * tick);
  const bad = rows.filter((row) => row.node.tone === "bad").length;
  return (
    <svg
      class="waterfall"
      viewBox={`0 0 ${WIDTH} ${rows.length * HEIGHT}`}
      height={rows.length * HEIGHT}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${rows.length} steps in ${after(whole).slice(1)}${bad > 0 ? `, ${bad} of them went wrong` : ""}`}
    >
      {ticks.map((at) => (
        <line class="tick" key={at} x1={x(first + at)} x2={x(first + at)} y1="0" y2={rows.length * HEIGHT}>
          <title>{after(at)}</title>
        </line>
      ))}
      {rows.map((row, place) => {
        const parent = row.parent;
        return parent !== null && <path class="edge" key={`edge ${row.node.key}`} d={`M${x(row.node.from)} ${y(parent)}V${y(place)}`} />;
      })}
      {rows.map((row, place) => {
        const [from, to] = [x(Math.min(row.node.from, row.node.at)), x(Math.max(row.node.from, row.node.at))];
        return (
          <rect class={`bar is-${row.node.tone}`} key={row.node.key} x={from} y={y(place) - 3} width={Math.max(3, to - from)} height="6">
            <title>{`${row.node.what} ${row.node.text}: ${after(row.node.at - row.node.from)} after its cause, ${after(row.node.at - begun)} after the beginning`}</title>
          </rect>
        );
      })}
    </svg>
  );
}
