import type { From } from "../../model/subscriptions.ts";
import { ofField, toField } from "../../model/time.ts";

/** From where on events are sent: `here` says what no choice means, where there may be none. */
export function FromFields({ of, here, choose }: { of: From; here?: string; choose: (from: From) => void }) {
  return (
    <>
      <label>
        From where on
        <select value={of.how} onChange={(event) => choose({ how: event.currentTarget.value as From["how"], text: "" })}>
          {here && <option value="here">{here}</option>}
          <option value="time">from a time</option>
          <option value="position">behind an event</option>
          <option value="start">from the oldest that is kept</option>
        </select>
      </label>
      {of.how === "time" && (
        <label>
          Time
          <input type="datetime-local" step={1} required value={toField(of.text)} onInput={(event) => choose({ how: "time", text: ofField(event.currentTarget.value) ?? "" })} />
        </label>
      )}
      {of.how === "position" && (
        <label>
          Position of the event
          <input required spellcheck={false} value={of.text} onInput={(event) => choose({ how: "position", text: event.currentTarget.value })} />
        </label>
      )}
    </>
  );
}
