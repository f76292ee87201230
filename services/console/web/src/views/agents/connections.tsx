import { useEffect, useMemo } from "preact/hooks";
import { type Connected, connections } from "../../model/connections.ts";
import { loader } from "../../model/loaded.ts";
import { lately } from "../../model/now.ts";
import { readTunnels, WEEK } from "../../model/past.ts";
import { absolute, moment, span } from "../../model/time.ts";
import { Notice, Skeleton } from "../../parts/states.tsx";

const DAY = 86_400_000;
const WIDTH = 700;
const HEIGHT = 24;

/** When an agent was connected in the last seven days, or since it is registered. */
export function Connections({ agent, registered, isConnected }: { agent: string; registered: number; isConnected: boolean }) {
  const events = useMemo(() => loader((stop) => readTunnels((event) => event.data?.agent === agent, stop)), [agent]);
  useEffect(() => void events.run(), [events, isConnected]);
  useEffect(() => events.stop, [events]);
  const { value, error } = events.state.value;
  if (error) {
    // It needs a right of its own, and the rest of the page does not.
    return <p class="muted">When it was connected before stands in the log: {error.message}.</p>;
  }
  if (!value) return <Skeleton rows={1} label="Loading when it was connected" />;
  const until = Math.max(lately.value, registered + 60_000);
  const from = Math.max(until - WEEK, registered);
  const stretches = connections(value.found, from, until, { isConnected });
  const total = stretches.reduce((sum, one) => sum + one.until - one.from, 0);
  return (
    <figure class="connections">
      <Picture stretches={stretches} from={from} until={until} />
      <figcaption class="muted">
        <span>{moment(from, until)}</span>
        <span>
          connected for {span(total)} of {span(until - from)}
          {stretches.length > 1 && `, in ${stretches.length} stretches`}
        </span>
        <span>now</span>
      </figcaption>
      {!value.isWhole && <Notice>The log has more events of these days than are read here; only the oldest are shown.</Notice>}
    </figure>
  );
}

function Picture({ stretches, from, until }: { stretches: Connected[]; from: number; until: number }) {
  const x = (at: number) => ((Math.max(from, at) - from) / (until - from)) * WIDTH;
  const days = Array.from({ length: Math.floor((until - from - 1) / DAY) }, (_, day) => from + (day + 1) * DAY);
  const told = stretches.map((one) => `${absolute(one.from)} to ${absolute(one.until)}`).join("; ");
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" height={HEIGHT} role="img" aria-label={`Connected: ${told || "at no time"}`}>
      <rect class="gap" x="0" y="0" width={WIDTH} height={HEIGHT} />
      {stretches.map((one) => (
        <rect class="connected" key={one.from} x={Math.min(x(one.from), WIDTH - 2)} y="0" width={Math.max(2, x(one.until) - x(one.from))} height={HEIGHT}>
          <title>{`connected ${moment(one.from, until)} to ${moment(one.until, until)}, ${span(one.until - one.from)}${one.version ? `, ${one.version}` : ""}`}</title>
        </rect>
      ))}
      {days.map((at) => (
        <line class="tick" key={at} x1={x(at)} x2={x(at)} y1="0" y2={HEIGHT} />
      ))}
    </svg>
  );
}
