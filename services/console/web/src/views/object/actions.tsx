import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { askCluster, clustersUrl, mayDo } from "../../api/clusters.ts";
import { QueryError } from "../../api/graphql.ts";
import type { Right } from "../../api/types.ts";
import { type Action, actionsOf, offeredActions } from "../../model/actions.ts";
import { at } from "../../model/at.ts";
import { around } from "../../model/store.ts";
import { family } from "../../model/tree.ts";
import { Command, Notice } from "../../parts/states.tsx";
import { At } from "../../parts/time.tsx";
import type { Shown } from "../drawer.tsx";

/** What can be done with an object. What may not be done says which right is missing. */
export default function Actions({ of, answer, forest }: Shown) {
  const rights = useSignal<ReadonlyMap<string, Right>>(new Map());
  const asked = useSignal<string | null>(null);
  const number = useSignal<number | null>(null);
  const done = useSignal<{ text: string; at: number } | null>(null);
  const pods = [...family(of, forest).values()].filter(({ kind }) => kind === "Pod").length;
  const body = answer.resource?.body ?? null;
  const actions = [...actionsOf(of, body, pods, number.value), ...offeredActions(of, answer.resource?.actions ?? [])];
  const names = actions.map(({ name }) => name).join(" ");
  const isPast = at.value !== null;
  useEffect(() => {
    if (isPast || !clustersUrl()) return;
    let isWanted = true;
    for (const { name, doing } of actions) {
      const refused = (error: Error): Right => ({ allowed: false, reason: error.message });
      void mayDo(of.agent, doing)
        .catch(refused)
        .then((right) => isWanted && (rights.value = new Map(rights.value).set(name, right)));
    }
    return () => {
      isWanted = false;
    };
  }, [of.uid, isPast, names]);
  if (actions.length === 0) return null;
  const open = actions.find(({ name }) => name === asked.value);
  const whyNot = (name: string): string | null => {
    if (isPast) return "this is a past moment: go back to now";
    if (!clustersUrl()) return "this server does not say where clusters' APIs are: --clusters-url";
    const right = rights.value.get(name);
    return right ? (right.allowed ? null : right.reason) : "asking whether you may";
  };
  const missing = actions.map(({ name }) => ({ name, why: rights.value.get(name)?.allowed === false ? whyNot(name) : null })).filter(({ why }) => why !== null);
  return (
    <footer class="actions">
      <div class="action-buttons">
        {actions.map(({ name }) => (
          <button type="button" key={name} disabled={whyNot(name) !== null} title={whyNot(name) ?? undefined} aria-describedby={missing.length > 0 ? "missing-rights" : undefined} onClick={() => (asked.value = name)}>
            {name}
          </button>
        ))}
      </div>
      {missing.length > 0 && (
        <p class="muted missing" id="missing-rights">
          {missing.length === actions.length ? missing[0]?.why : missing.map(({ name, why }) => `${name}: ${why}`).join("; ")}
        </p>
      )}
      {done.value && (
        <p class="muted" role="status">
          {done.value.text} <At at={done.value.at} />
        </p>
      )}
      {open && (
        <Confirm
          action={open}
          of={of}
          key={open.name}
          setNumber={(value) => (number.value = value)}
          close={(text) => {
            asked.value = null;
            number.value = null;
            if (text) done.value = { text, at: Date.now() };
          }}
        />
      )}
    </footer>
  );
}

/** What will be done, in numbers and as commands; done on one confirmation. */
function Confirm({ action, of, setNumber, close }: { action: Action; of: Shown["of"]; setNumber: (value: number) => void; close: (done: string | null) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const failure = useSignal<string | null>(null);
  const isSending = useSignal(false);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const agent = around.state.value.value?.agents.nodes.find((one) => one.id === of.agent);
  const context = agent ? `${agent.projectPath}:${agent.name}` : of.agentName;
  const source = of.owners.find(({ kind }) => kind === "source");
  const send = async () => {
    isSending.value = true;
    failure.value = null;
    try {
      const sent = action.method === "PATCH" ? { headers: { "Content-Type": action.media }, body: JSON.stringify(action.body) } : {};
      await askCluster(of.agent, `${action.path}${action.method === "PATCH" ? "?fieldManager=kasbah-page" : ""}`, { method: action.method, ...sent });
      close(`${action.name}: the cluster took it`);
    } catch (error) {
      failure.value = error instanceof QueryError ? error.message : String(error);
      isSending.value = false;
    }
  };
  return (
    <dialog class="dialog" ref={dialog} aria-labelledby="action-name" onClose={() => close(null)}>
      <h2 id="action-name">{action.name}</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        {action.number && (
          <label class="number">
            {action.number.name}{" "}
            <input type="number" min="0" max="1000" required value={action.number.value} onInput={(event) => Number.isInteger(event.currentTarget.valueAsNumber) && setNumber(event.currentTarget.valueAsNumber)} />
          </label>
        )}
        <p>{action.says}</p>
        {action.declared && <p class="muted">The agent's configuration declares this action.</p>}
        {source && action.name !== "Restart" && action.method === "PATCH" && (
          <Notice>Source {source.name} puts this object there: if Git states the field, the agent sets it back.</Notice>
        )}
        <p class="muted">The same from a terminal:</p>
        <Command text={`kasbah kubeconfig --agent ${context} --use`} />
        <Command text={action.kubectl} />
        {failure.value && (
          <p class="notice is-warning" role="alert">
            The cluster did not take it: {failure.value}.
          </p>
        )}
        <div class="action-buttons">
          <button type="submit" class="primary" disabled={isSending.value || action.changesNothing}>
            {action.name}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}
