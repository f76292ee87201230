import { at as shownMoment } from "../model/at.ts";
import { now } from "../model/now.ts";
import { absolute, ago, moment, span } from "../model/time.ts";

/** How long ago something was; the absolute time is its title. */
export function Ago({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {ago(at, now.value)}
    </time>
  );
}

/** For how long something has been so. */
export function For({ since }: { since: number }) {
  return (
    <time dateTime={new Date(since).toISOString()} title={`since ${absolute(since)}`}>
      {span(now.value - since)}
    </time>
  );
}

/** For how long something has been so; at another moment than now, since when. */
export function ForOrSince({ since }: { since: number }) {
  return shownMoment.value === null ? (
    <>
      for <For since={since} />
    </>
  ) : (
    <>
      since <At at={since} />
    </>
  );
}

/** At what time something was. */
export function At({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {moment(at, now.value)}
    </time>
  );
}
