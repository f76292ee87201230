import { useState } from "preact/hooks";
import { command, EVENTS, query, read, readLines } from "../../api/commands.ts";
import { count } from "../../model/news.ts";
import { quoted } from "../../model/quoted.ts";
import { rightTo } from "../../model/rights.ts";
import { before, type DeadLetter, type Subscription } from "../../model/subscriptions.ts";
import { yaml } from "../../model/yaml.ts";
import { Action } from "../../parts/action.tsx";
import { Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { PlainTable } from "../../parts/table.tsx";
import { Ago } from "../../parts/time.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";

interface Kept {
  items: DeadLetter[];
  dropped: number;
}

interface Props {
  of: Subscription;
  path: string;
  done: () => void;
}

/** The events that the receiver refused: why, what each says, and sending them again. */
export function Letters({ of, path, done }: Props) {
  const kept = useLoaded((stop) => read<Kept>(`${path}/dead-letters`, stop), [path, of.dead_letters]);
  const [opened, open] = useState<DeadLetter | null>(null);
  const { value, error, retryAt } = kept.state.value;
  const newestFirst = [...(value?.items ?? [])].reverse();
  return (
    <section aria-labelledby="letters">
      <header class="section-head">
        <h2 id="letters">Dead letters</h2>
        <span class="muted">{of.dead_letters === 0 ? "The receiver refused no event." : count(of.dead_letters, "event that the receiver refused", "events that the receiver refused")}</span>
        {of.dead_letters > 0 && <Resend of={of} path={path} done={done} letters={null} />}
      </header>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void kept.run()} />}
      {!value && !error && of.dead_letters > 0 && <Skeleton rows={3} label="Loading dead letters" />}
      {newestFirst.length > 0 && (
        <PlainTable label="Dead letters, the newest first" columns={["Number", "Type", "Given up", "Send"]} wide="The receiver's answer">
          {newestFirst.map((letter) => (
            <tr key={letter.sequence}>
              <td>
                <button type="button" class="quiet link" aria-expanded={opened?.sequence === letter.sequence} onClick={() => open(opened?.sequence === letter.sequence ? null : letter)}>
                  {letter.sequence}
                </button>
              </td>
              <td>
                <code>{letter.event_type}</code>
              </td>
              <td>
                <Ago at={Date.parse(letter.at)} />
              </td>
              <td>
                <Resend of={of} path={path} done={done} letters={[letter]} />
              </td>
              <td class="wide" title={letter.reason}>
                {letter.reason}
              </td>
            </tr>
          ))}
        </PlainTable>
      )}
      {opened && <Opened letter={opened} key={opened.sequence} />}
      {value && value.dropped > 0 && <Notice>{count(value.dropped, "older one")} were given up for good.</Notice>}
    </section>
  );
}

/** Sends some again, or all. */
function Resend({ of, path, done, letters }: Props & { letters: DeadLetter[] | null }) {
  const numbers = letters?.map(({ sequence }) => sequence) ?? [];
  const what = letters ? `event ${numbers.join(", ")}` : count(of.dead_letters, "dead letter");
  return (
    <Action
      label={letters ? "Send again" : "Send all again"}
      doing={`Send ${what} again`}
      command={`kasbah subscription dead-letters ${quoted(of.name)} --resend${numbers.map((number) => ` --number ${number}`).join("")}`}
      right={rightTo("MANAGE_SUBSCRIPTIONS")}
      run={() => command("POST", `${path}/dead-letters/resend`, { sequences: numbers })}
      done={done}
    >
      <p>It is sent once each. What the receiver refuses again stays a dead letter.</p>
    </Action>
  );
}

/** What the event says, as long as it is kept. */
function Opened({ letter }: { letter: DeadLetter }) {
  const event = useLoaded(async (stop) => {
    const found: { exportsequence?: number }[] = [];
    const from = before(letter.position);
    if (from) {
      await readLines<{ exportsequence?: number }>(EVENTS + query({ from }), stop, (lines) => {
        found.push(...lines);
        return false;
      });
    }
    return { event: found.find((one) => one.exportsequence === letter.sequence) ?? null };
  }, []);
  const { value, error, retryAt } = event.state.value;
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void event.run()} />;
  if (!value) return <Skeleton rows={6} label="Loading the event" />;
  if (!value.event) return <Notice>The event is not kept any more: seven days, or as long as the operator says.</Notice>;
  return (
    <pre class="yaml" tabIndex={0} aria-label={`Event ${letter.sequence}`}>
      {yaml(value.event)}
    </pre>
  );
}
