import type { Owner } from "../../api/place.ts";
import { environmentPath } from "../../model/paths.ts";
import { conditions, facts } from "../../model/facts.ts";
import { lately } from "../../model/now.ts";
import { ofHealth } from "../../model/status.ts";
import { readable } from "../../model/time.ts";
import { Command, Notice } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { withChosen } from "../../router.ts";
import type { Shown } from "../drawer.tsx";

const LABELS = 12;

/** How an object is and why, who owns it, and what matters of it. */
export function Summary({ of, answer, forest }: Shown) {
  const body = answer.resource?.body ?? null;
  const writer = answer.resource?.writer;
  const place = of.namespace ? ` -n ${of.namespace}` : "";
  const labels = Object.entries(((body?.metadata as { labels?: Record<string, string> } | undefined)?.labels ?? {}) as Record<string, string>);
  return (
    <>
      {of.stale && <Notice tone="warning">As it was known last: {readable(of.stale, lately.value)}.</Notice>}
      {of.health.message && !isSaidBelow(of, answer) && <p class="drawer-reason">{readable(of.health.message, lately.value)}</p>}
      <Chain {...{ of, answer, forest }} />
      <dl class="fields">
        {facts(of.kind, body).map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="value">{value}</dd>
          </div>
        ))}
        <div>
          <dt>Put there by</dt>
          <dd>
            <Owners owners={of.owners} />
          </dd>
        </div>
        {answer.resource && answer.resource.environments.length > 1 && (
          <div>
            <dt>Belongs to</dt>
            <dd>
              {answer.resource.environments.map((one) => (
                <a class="listed" href={environmentPath(one.id)} key={one.id}>{`${one.projectPath} ${one.name}`}</a>
              ))}
            </dd>
          </div>
        )}
        {of.createdAt && (
          <div>
            <dt>Created</dt>
            <dd>
              <Ago at={Date.parse(of.createdAt)} />
            </dd>
          </div>
        )}
        <div>
          <dt>Changed</dt>
          <dd>
            <Ago at={Date.parse(of.changedAt)} />
            {writer && <span class="muted"> by {writer.manager}</span>}
          </dd>
        </div>
        {labels.length > 0 && (
          <div>
            <dt>Labels</dt>
            <dd>
              {labels.slice(0, LABELS).map(([name, value]) => (
                <code class="listed" key={name}>
                  {name}={value}
                </code>
              ))}
              {labels.length > LABELS && <span class="muted">and {labels.length - LABELS} more</span>}
            </dd>
          </div>
        )}
      </dl>
      <Conditions {...{ body }} />
      <Command text={`kasbah why ${of.kind.toLowerCase()}/${of.name}${place}`} />
    </>
  );
}

/** The chain has the same words, by the object that is to blame. */
function isSaidBelow(of: Shown["of"], answer: Shown["answer"]): boolean {
  const chain = answer.why?.chains[0]?.resources ?? [];
  const cause = chain.at(-1)?.health.message ?? "";
  return chain.length > 1 && cause !== "" && of.health.message.includes(cause);
}

/** From the object down to what is to blame. */
function Chain({ of, answer, forest }: Pick<Shown, "of" | "answer" | "forest">) {
  const chain = answer.why?.chains[0]?.resources ?? [];
  if (chain.length < 2) return null;
  // What only repeats the cause is said once, by the object that is to blame.
  const cause = chain.at(-1)?.health.message ?? "";
  return (
    <ol class="chain" aria-label="Why it is so">
      {chain.map((link, at) => {
        const word = `${link.kind} ${link.name}`;
        return (
          <li key={link.uid}>
            {link.uid !== of.uid && forest.has(link.uid) ? (
              <a href={withChosen("object", link.uid)}>
                <Status status={ofHealth(link.health.state)} word={word} />
              </a>
            ) : (
              <Status status={ofHealth(link.health.state)} word={word} />
            )}
            {link.health.message && (at === chain.length - 1 || !link.health.message.includes(cause)) && (
              <span class="muted">{readable(link.health.message, lately.value)}</span>
            )}
          </li>
        );
      })}
    </ol>
  );
}

const KINDS: Record<string, string> = {
  source: "source",
  helm: "Helm release",
  flux: "Flux",
  "argo-cd": "Argo CD application",
  "managed-by": "managed by",
  "field-manager": "written by",
};

function Owners({ owners }: { owners: Owner[] }) {
  if (owners.length === 0) return <span class="muted">nobody that is known</span>;
  return (
    <>
      {owners.map((owner) => (
        <span class="listed" key={`${owner.kind} ${owner.name}`}>
          {KINDS[owner.kind] ?? owner.kind} <b>{owner.name}</b>
          {owner.through && <span class="muted"> through {owner.through}</span>}
        </span>
      ))}
    </>
  );
}

function Conditions({ body }: { body: Record<string, unknown> | null }) {
  const all = conditions(body);
  if (all.length === 0) return null;
  return (
    <>
      <h3>Conditions</h3>
      <dl class="fields">
        {all.map((condition) => (
          <div key={condition.type}>
            <dt title={condition.type}>{condition.type}</dt>
            <dd>
              {condition.status}
              {condition.reason && <span class="muted"> {condition.reason}</span>}
              {condition.message && <span class="condition-message">{condition.message}</span>}
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}
