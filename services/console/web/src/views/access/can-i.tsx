import { command } from "../../api/commands.ts";
import { session } from "../../api/session.ts";
import { users } from "../../model/names.ts";
import { around } from "../../model/store.ts";
import { Command, Empty, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { useLoaded } from "../../parts/use-loaded.ts";
import { choose, chosen } from "../../router.ts";

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const COMMON = ["pods", "pods/log", "pods/exec", "deployments.apps", "deployments.apps/scale", "secrets", "configmaps", "services", "namespaces"];

interface Decision {
  allowed: boolean;
  reason: string;
  access_as?: "agent" | { impersonated: { username: string; groups?: string[] } };
}

interface Question {
  agent: string;
  verb: string;
  resource: string;
  namespace: string;
  user: string;
}

function targetOf({ resource, namespace }: Question): object {
  if (resource.startsWith("/")) return { path: resource };
  const [whole = "", subresource = ""] = resource.split("/");
  const dot = whole.indexOf(".");
  const [name, group] = dot < 0 ? [whole, ""] : [whole.slice(0, dot), whole.slice(dot + 1)];
  return { resource: { group, resource: name, subresource, namespace } };
}

/** May somebody do this with the API of a cluster, and by which entry of which file? */
export function CanI() {
  const wanted = chosen.value;
  const agents = around.state.value.value?.agents.nodes ?? [];
  const question: Question = {
    agent: wanted.get("agent") ?? agents[0]?.id ?? "",
    verb: wanted.get("verb") ?? "get",
    resource: wanted.get("resource") ?? "pods",
    namespace: wanted.get("namespace") ?? "",
    user: wanted.get("user") ?? "",
  };
  const people = users.state.value.value?.items ?? [];
  if (!around.state.value.value) return <Skeleton rows={3} label="Loading agents" />;
  if (agents.length === 0) return <Empty title="There is no agent that you may see, so there is no cluster to ask about." />;
  const text = (name: keyof Question, label: string, list: string) => (
    <label class="field">
      {label}
      <input value={question[name]} list={list} spellcheck={false} onChange={(event) => choose(name, event.currentTarget.value.trim() || null, true)} />
    </label>
  );
  const name = agents.find((agent) => agent.id === question.agent)?.name ?? question.agent;
  const namespace = question.namespace ? ` -n ${question.namespace}` : "";
  const as = question.user ? ` --as user:${question.user}` : "";
  const [resource, subresource] = question.resource.split("/");
  return (
    <>
      <form class="filters question" onSubmit={(event) => event.preventDefault()} aria-label="The question">
        {people.length > 0 ? (
          <label class="field">
            Can
            <select value={question.user} onChange={(event) => choose("user", event.currentTarget.value || null, true)}>
              <option value="">I ({session.value?.user ?? "you"})</option>
              {people
                .filter((user) => user.name && user.name !== session.value?.user)
                .map((user) => (
                  <option value={user.name ?? ""} key={user.id}>
                    {user.name}
                  </option>
                ))}
            </select>
          </label>
        ) : (
          <span class="field">Can I</span>
        )}
        <label class="field">
          Verb
          <select value={question.verb} onChange={(event) => choose("verb", event.currentTarget.value, true)}>
            {VERBS.map((verb) => (
              <option key={verb}>{verb}</option>
            ))}
          </select>
        </label>
        {text("resource", "Resource", "resources")}
        {text("namespace", "Namespace (all if empty)", "namespaces")}
        <label class="field">
          Agent
          <select value={question.agent} onChange={(event) => choose("agent", event.currentTarget.value, true)}>
            {agents.map((agent) => (
              <option value={agent.id} key={agent.id}>
                {agent.name}
              </option>
            ))}
          </select>
        </label>
        <datalist id="resources">
          {COMMON.map((one) => (
            <option value={one} key={one} />
          ))}
        </datalist>
        <datalist id="namespaces">
          {[...new Set((around.state.value.value?.sources.nodes ?? []).map((source) => source.defaultNamespace))].map((one) => (
            <option value={one} key={one} />
          ))}
        </datalist>
      </form>
      <Answer question={question} key={JSON.stringify(question)} />
      <Command text={`kasbah access can-i ${question.verb} ${question.resource} --agent ${name}${namespace}${as}`} />
      {!question.user && !question.resource.startsWith("/") && (
        <Command text={`kubectl auth can-i ${question.verb} ${resource}${subresource ? ` --subresource=${subresource}` : ""}${namespace || " -A"}`} />
      )}
    </>
  );
}

function Answer({ question }: { question: Question }) {
  const decision = useLoaded(async (stop) => {
    const body = { user: question.user || undefined, attributes: { verb: question.verb, target: targetOf(question) } };
    return (await command<Decision>("POST", `/agents/${encodeURIComponent(question.agent)}/access-reviews`, body, stop)).value;
  }, []);
  const { value, error, retryAt } = decision.state.value;
  if (error) return <Trouble error={error} retryAt={retryAt} retry={() => void decision.run()} />;
  if (!value) return <Skeleton rows={2} label="Asking" />;
  const as = value.access_as;
  const impersonated = typeof as === "object" ? as.impersonated : null;
  return (
    <section class="answer" aria-label="The answer" aria-live="polite">
      <p class="fate">
        <Status status={value.allowed ? "healthy" : "degraded"} word={value.allowed ? "Yes" : "No"} /> <span>{value.reason}</span>
      </p>
      {value.allowed && (
        <dl class="fields">
          <div>
            <dt>The cluster sees</dt>
            <dd>{impersonated ? <code>{impersonated.username}</code> : "the agent's own service account"}</dd>
          </div>
          {impersonated?.groups && impersonated.groups.length > 0 && (
            <div>
              <dt>in groups</dt>
              <dd>
                {impersonated.groups.map((group) => (
                  <code class="group-name-of" key={group}>
                    {group}
                  </code>
                ))}
              </dd>
            </div>
          )}
        </dl>
      )}
      <p class="muted">{value.allowed ? "Kasbah lets it through; the cluster's own authorization has the last word." : "Kasbah does not let it through to the cluster."}</p>
    </section>
  );
}
