import { type LogEvent, toneOf } from "../../model/log.ts";
import { count } from "../../model/news.ts";
import { moment } from "../../model/time.ts";

const PIECES = 120;
const HEIGHT = 28;

/** How many events there were when, and when something of it was wrong. */
export function Density({ events, from, until }: { events: LogEvent[]; from: number; until: number }) {
  const all = new Array<number>(PIECES).fill(0);
  const bad = new Array<boolean>(PIECES).fill(false);
  for (const event of events) {
    const piece = Math.floor(((Date.parse(event.recordedat) - from) / (until - from)) * PIECES);
    if (piece < 0 || piece >= PIECES) continue;
    all[piece] = (all[piece] ?? 0) + 1;
    if (toneOf(event) === "bad") bad[piece] = true;
  }
  const most = Math.max(1, ...all);
  const wrong = events.filter((event) => toneOf(event) === "bad").length;
  return (
    <figure class="density-strip">
      <svg viewBox={`0 0 ${PIECES} ${HEIGHT}`} preserveAspectRatio="none" height={HEIGHT} role="img" aria-label={`${count(events.length, "event")}, of which ${wrong} went wrong`}>
        {all.map((number, piece) => {
          const height = number === 0 ? 0 : 3 + (number / most) * (HEIGHT - 8);
          return number > 0 && <rect class="density" key={piece} x={piece + 0.1} width="0.8" y={HEIGHT - height} height={height} />;
        })}
        {bad.map((is, piece) => is && <rect class="turned" key={piece} x={piece + 0.1} width="0.8" y="0" height="4" />)}
      </svg>
      <figcaption class="muted">
        <span>{moment(from, until)}</span>
        <span>
          {count(events.length, "event")}
          {wrong > 0 && `, ${wrong} went wrong`}
        </span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}
