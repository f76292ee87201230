import { at, compared } from "../model/at.ts";
import { absolute, toTheSecond } from "../model/time.ts";
import { Notice } from "./states.tsx";

const Moment = ({ at: moment }: { at: number }) => <time title={absolute(moment)}>{toTheSecond(moment)}</time>;

/** Beside a heading: which moment is shown, where it is not now. */
export function AsOf() {
  const [moment, earlier] = [at.value, compared.value];
  if (earlier !== null) {
    return (
      <span class="past-word">
        <Moment at={earlier} /> and {moment === null ? "now" : <Moment at={moment} />}
      </span>
    );
  }
  if (moment === null) return null;
  return (
    <span class="past-word">
      as of <Moment at={moment} />
    </span>
  );
}

/** In the place of what has no past, or no difference: says that it is as it is now. */
export function NowOnly({ what }: { what: string }) {
  if (at.value === null && compared.value === null) return null;
  return (
    <p class="now-only">
      <Notice tone="warning">{what}: this is how it is now.</Notice>
    </p>
  );
}
