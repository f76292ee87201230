import { useState } from "preact/hooks";
import { command } from "../../api/commands.ts";
import { count, short } from "../../model/news.ts";
import { Action, MissingRights } from "../../parts/action.tsx";
import { choose, chosen } from "../../router.ts";
import { Differences, useDiff } from "./diff.tsx";
import type { ActionName, WholeSource } from "../../api/delivery.ts";
import type { Right } from "../../api/types.ts";

interface Props {
  source: WholeSource;
  /** `agent/source`, as commands name it. */
  name: string;
  done: () => void;
}

const rightTo = (source: WholeSource, action: ActionName): Right | null => source.rights.find((right) => right.action === action) ?? null;
const path = (source: WholeSource, deed: string) => `/sources/${source.id}/${deed}`;

/** What can be done with a source. What a person may not do names what is missing. */
export function Actions({ source, name, done }: Props) {
  const of = (action: ActionName) => rightTo(source, action);
  return (
    <div class="actions" role="group" aria-label="Actions">
      {source.heldCommit && <ConfirmHeld source={source} name={name} done={done} />}
      <Action
        label="Sync"
        doing={`Sync ${name}`}
        command={`kasbah source sync ${name}`}
        right={of("SYNC")}
        run={() => command("POST", path(source, "sync"), {})}
        done={done}
        {...atAddress("sync")}
      >
        <p>
          The repository is polled now, and {count(source.inventory, "object")} of <b>{name}</b> {source.inventory === 1 ? "is" : "are"} checked against{" "}
          {source.desiredCommit ? <code>{short(source.desiredCommit)}</code> : "its next commit"}. What drifted is corrected.
        </p>
      </Action>
      {source.suspended === null ? <Suspend source={source} name={name} done={done} /> : <Resume source={source} name={name} done={done} />}
      {source.pinned && <Unpin source={source} name={name} done={done} />}
      <button type="button" aria-disabled={!of("DIFF")?.allowed} title={`kasbah source diff ${name}`} onClick={() => choose("tab", "next", true)}>
        What the next sync would do
      </button>
      <MissingRights rights={[of("SYNC"), of("SUSPEND"), of("PIN"), source.heldCommit ? of("CONFIRM") : null]} />
    </div>
  );
}

/** An action that the address opens: from the palette, or a link of a colleague. */
function atAddress(name: string) {
  return { startsOpen: chosen.value.get("do") === name, opened: (is: boolean) => choose("do", is ? name : null, true) };
}

function Suspend({ source, name, done }: Props) {
  const [reason, setReason] = useState("");
  const given = reason ? ` --reason ${JSON.stringify(reason)}` : "";
  return (
    <Action
      label="Suspend"
      doing={`Suspend ${name}`}
      command={`kasbah source suspend ${name}${given}`}
      right={rightTo(source, "SUSPEND")}
      run={() => command("POST", path(source, "suspend"), { reason })}
      done={done}
      {...atAddress("suspend")}
    >
      <p>
        Nothing new is applied to <b>{source.defaultNamespace}</b>, and drift of {count(source.inventory, "object")} is not corrected, until somebody resumes it. What runs goes on running.
      </p>
      <label>
        Reason, for the others
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} maxLength={500} />
      </label>
    </Action>
  );
}

function Resume({ source, name, done }: Props) {
  return (
    <Action
      label="Resume"
      doing={`Resume ${name}`}
      command={`kasbah source resume ${name}`}
      right={rightTo(source, "SUSPEND")}
      run={() => command("POST", path(source, "resume"), {})}
      done={done}
      isPrimary
      {...atAddress("resume")}
    >
      <p>
        {source.suspended ? `It was suspended because: ${source.suspended}. ` : ""}The newest good commit
        {source.newestGoodCommit && (
          <>
            {" "}
            <code>{short(source.newestGoodCommit)}</code>
          </>
        )}{" "}
        is applied, and drift is corrected.
      </p>
      <Next source={source} />
    </Action>
  );
}

function Unpin({ source, name, done }: Props) {
  return (
    <Action
      label="Unpin"
      doing={`Unpin ${name}`}
      command={`kasbah source unpin ${name}`}
      right={rightTo(source, "PIN")}
      run={() => command("POST", path(source, "unpin"), {})}
      done={done}
      {...atAddress("unpin")}
    >
      <p>
        It follows <code>{source.reference}</code> again: from <code>{short(source.pinned)}</code> to <code>{short(source.newestGoodCommit)}</code>, the newest good commit.
      </p>
    </Action>
  );
}

/** Pins a source to a commit: rolls it back, where that is not what runs. */
export function Pin({ source, name, commit, done, label }: Props & { commit: string; label: string }) {
  const doing = source.desiredCommit === commit ? `Pin ${name} to ${short(commit)}` : `Roll ${name} back to ${short(commit)}`;
  const objects = source.commits.find((one) => one.commit === commit)?.objects ?? null;
  return (
    <Action
      label={label}
      doing={doing}
      command={`kasbah source pin ${name} ${short(commit)}`}
      right={rightTo(source, "PIN")}
      run={() => command("POST", path(source, "pin"), { commit })}
      done={done}
      {...atAddress(`pin-${short(commit)}`)}
    >
      {source.desiredCommit === commit ? (
        <p>
          It stays at <code>{short(commit)}</code>. Later commits are not applied until somebody unpins it.
        </p>
      ) : (
        <p>
          {objects !== null && `${count(objects, "object")} of `}
          <code>{short(commit)}</code> {objects === 1 ? "is" : "are"} applied instead of those of <code>{short(source.desiredCommit)}</code>. What only the other commit has is
          deleted. Later commits are not applied until somebody unpins it.
        </p>
      )}
    </Action>
  );
}

function ConfirmHeld({ source, name, done }: Props) {
  const [seen, see] = useState(false);
  const held = source.heldCommit ?? "";
  return (
    <Action
      label={`Confirm ${short(held)}`}
      doing={`Apply ${short(held)} with what it deletes`}
      command={`kasbah source confirm ${name} --commit ${short(held)}`}
      right={rightTo(source, "CONFIRM")}
      run={() => command("POST", path(source, "confirm"), { commit: held })}
      done={done}
      isPrimary
      isDangerous
      waits={!seen}
      {...atAddress("confirm")}
    >
      <p>
        <code>{short(held)}</code> is held: {source.heldReason}. This is what it would do now in the cluster:
      </p>
      <Next source={source} seen={() => see(true)} />
    </Action>
  );
}

function Next({ source, seen }: { source: WholeSource; seen?: () => void }) {
  const diff = useDiff(source.id, source.desiredCommit, seen);
  return <Differences of={diff} isBrief />;
}
