import type { AroundAnswer } from "../api/queries.ts";
import { Shape } from "../parts/status.tsx";
import { Command } from "../parts/states.tsx";

const CONFIGURATION = `# .kasbah/agents/production/config.yaml in the repository of shop/deploy
sources:
  - name: shop
    include: ["manifests/**"]
    namespace: shop
    environment:
      name: production`;

/** Whether nothing was ever delivered: one agent at most, and no source of which a commit was read. */
export function isFirstRun(around: AroundAnswer): boolean {
  const [agent, ...others] = around.agents.nodes;
  const isLost = agent?.status?.goneSince && agent.status.instances.length === 0;
  return others.length === 0 && !isLost && around.sources.nodes.every((source) => !source.newestCommit);
}

/** From nothing to the first delivery. Each step is ticked when it has happened. */
export function FirstRun({ around }: { around: AroundAnswer }) {
  const agents = around.agents.nodes;
  const isRegistered = agents.length > 0;
  const isConnected = agents.some((agent) => agent.status?.instances.length);
  const isDelivered = around.sources.nodes.some((source) => source.syncedCommit);
  const steps = [
    {
      done: isRegistered,
      title: "Name a repository and register an agent",
      body: (
        <>
          <Command text="kasbah project create shop/deploy --repository https://git.example.com/shop/deploy.git" />
          <Command text="kasbah agent register production --project shop/deploy --manifests > agent.yaml" />
        </>
      ),
    },
    {
      done: isConnected,
      title: "Run the agent in the cluster",
      body: <Command text="kubectl apply -f agent.yaml" />,
    },
    {
      done: isDelivered,
      title: "Say what it keeps applied, and push",
      body: <Command text={CONFIGURATION} />,
    },
  ];
  const next = steps.findIndex(({ done }) => !done);
  return (
    <section class="first-run" aria-labelledby="first-run">
      <h1 id="first-run">Nothing runs here yet</h1>
      <p class="muted">
        Three steps to the first delivery. Each is ticked when it has happened. If something runs already, you may not see it: a
        maintainer of its project gives you a role there.
      </p>
      <ol>
        {steps.map(({ done, title, body }, number) => (
          <li class={done ? "is-done" : number === next ? "is-next" : ""} key={title}>
            <Shape status={done ? "healthy" : number === next ? "progressing" : "missing"} />
            <div>
              <h2>
                {title}
                {done && <span class="word is-healthy"> Done</span>}
                {number === next && isRegistered && <span class="muted"> Waiting for it</span>}
              </h2>
              {!done && body}
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}
