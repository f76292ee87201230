import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Answered } from "../api/commands.ts";
import { QueryError } from "../api/graphql.ts";
import type { Right } from "../api/types.ts";
import { chainPath } from "../model/paths.ts";
import { Command } from "./states.tsx";

interface Props {
  /** On the button: what it does. */
  label: string;
  /** On the button that does it: the same with its object. */
  doing: string;
  /** The equal command. */
  command: string;
  right: Right | null;
  /** What it does now, in numbers. */
  children: ComponentChildren;
  run: () => Promise<Answered<unknown>>;
  /** What is shown of the answer, once. */
  shows?: ((value: unknown) => ComponentChildren) | undefined;
  /** After it was done. */
  done: () => void;
  isPrimary?: boolean;
  isDangerous?: boolean;
  /** Not yet: what is missing to be confirmed. */
  waits?: boolean;
  /** Open from the start, as the address says. */
  opened?: (isOpen: boolean) => void;
  startsOpen?: boolean;
}

/** The action that is asked about. It stays until it is closed: once it is done, its button may be gone. */
const asked = signal<(ConfirmProps & { number: number }) | null>(null);
let actions = 0;

/** A button, what it will do, the command that does the same, and what came of it. */
export function Action({ label, doing, command, right, children, run, shows, done, isPrimary, isDangerous, waits, opened, startsOpen }: Props) {
  const [number, setNumber] = useState<number | null>(null);
  const open = () => {
    setNumber(++actions);
    opened?.(true);
  };
  const close = () => {
    asked.value = null;
    setNumber(null);
    opened?.(false);
  };
  // What it says may change while it is open.
  useEffect(() => {
    if (number !== null) asked.value = { number, doing, command, run, shows, done, close, children, isDangerous: isDangerous ?? false, waits: waits ?? false };
  });
  const allowed = right?.allowed ?? false;
  useEffect(() => {
    if (startsOpen && allowed && number === null) open();
  }, [startsOpen, allowed]);
  const missing = right && !right.allowed ? right.reason : null;
  return (
    <button type="button" class={isPrimary ? "primary" : ""} aria-disabled={!allowed} title={missing ? `Not for you: ${missing}` : command} onClick={() => allowed && open()}>
      {label}
    </button>
  );
}

/** Where the action is asked about: once, for the whole page. */
export function AskedAction() {
  const of = asked.value;
  return of && <Confirm {...of} key={of.number} />;
}

interface ConfirmProps extends Pick<Props, "doing" | "command" | "run" | "shows" | "done" | "children"> {
  close: () => void;
  isDangerous: boolean;
  waits: boolean;
}

function Confirm({ doing, command, run, shows, done, children, close, isDangerous, waits }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [state, setState] = useState<"asks" | "runs" | Answered<unknown> | QueryError>("asks");
  useLayoutEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector<HTMLElement>("input, [type=submit]:enabled, .action-buttons button:last-child")?.focus();
  }, []);
  const confirm = async (event: Event) => {
    event.preventDefault();
    setState("runs");
    try {
      setState(await run());
      done();
    } catch (error) {
      setState(error instanceof QueryError ? error : new QueryError(String(error), "internal"));
    }
  };
  const isDone = typeof state === "object" && !(state instanceof QueryError);
  return (
    <dialog class="dialog action" ref={dialog} onClose={close} aria-label={doing}>
      <h2>{doing}</h2>
      <form onSubmit={confirm}>
        {!isDone && <div class="action-what">{children}</div>}
        {state instanceof QueryError && (
          <p class="notice is-warning" role="alert">
            Not done: {state.message}. Nothing was changed.
          </p>
        )}
        {isDone && (
          <p class="notice" role="status">
            Done.{" "}
            {state.chain && (
              <a href={chainPath(state.chain)} onClick={() => dialog.current?.close()}>
                What followed from it
              </a>
            )}
          </p>
        )}
        {isDone && shows?.(state.value)}
        <Command text={command} />
        <p class="action-buttons">
          {!isDone && (
            <button type="submit" class={isDangerous ? "danger" : "primary"} disabled={state === "runs" || waits}>
              {state === "runs" ? "Doing it" : doing}
            </button>
          )}
          <button type="button" onClick={() => dialog.current?.close()}>
            {isDone ? "Close" : "Cancel"}
          </button>
        </p>
      </form>
    </dialog>
  );
}

/** Why some buttons are disabled, in words: a title alone is found by nobody who has no pointer. */
export function MissingRights({ rights }: { rights: (Right | null)[] }) {
  const reasons = [...new Set(rights.filter((right) => right && !right.allowed).map((right) => right?.reason))];
  if (reasons.length === 0) return null;
  return <p class="muted missing-rights">Not for you: {reasons.join("; ")}.</p>;
}
