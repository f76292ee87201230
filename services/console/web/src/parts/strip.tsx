import type { Stretch } from "../model/overview.ts";
import { type Status, WORDS, worst } from "../model/status.ts";
import { moment } from "../model/time.ts";

const WIDTH = 96;
const HEIGHT = 16;
const PIECES = 48;

/** How tall a status stands: height shows it as well as colour. */
function height(status: Status): number {
  switch (status) {
    case "none":
      return 1;
    case "healthy":
      return 4;
    case "progressing":
    case "suspended":
      return 8;
    default:
      return HEIGHT;
  }
}

function worstIn(stretches: Stretch[], from: number, until: number): Status {
  return worst(stretches.filter((one) => one.from < until && one.until > from).map(({ status }) => status));
}

/** How something was over a day, in half hours. */
export function Strip({ stretches, from, until }: { stretches: Stretch[]; from: number; until: number }) {
  const step = (until - from) / PIECES;
  const pieces = Array.from({ length: PIECES }, (_, piece) => worstIn(stretches, from + piece * step, from + (piece + 1) * step));
  const bad = pieces.filter((status) => height(status) === HEIGHT).length / 2;
  const width = WIDTH / PIECES;
  return (
    <svg class="strip" height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Last 24 hours: not well for about ${bad} h`}>
      {pieces.map((status, piece) => (
        <rect class={`is-${status}`} x={piece * width} y={HEIGHT - height(status)} width={width - 0.5} height={height(status)}>
          <title>{`${WORDS[status]}, ${moment(from + piece * step, until)}`}</title>
        </rect>
      ))}
    </svg>
  );
}
