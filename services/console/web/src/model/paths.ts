/** Where an environment is shown. */
export const environmentPath = (id: string) => `/environments/${encodeURIComponent(id)}`;
/** Where a namespace of a cluster is shown; without one, what is in none. */
export const placePath = (agent: string, namespace: string) => `/clusters/${encodeURIComponent(agent)}/namespaces/${encodeURIComponent(namespace)}`;
/** Where a source is shown. */
export const sourcePath = (id: string) => `/delivery/${encodeURIComponent(id)}`;
/** Where a commit of a source is shown, with what became of it. */
export const commitPath = (source: string, commit: string) => `${sourcePath(source)}?commit=${encodeURIComponent(commit)}`;
/** Where an agent is shown. */
export const agentPath = (id: string) => `/agents/${encodeURIComponent(id)}`;
/** Where everything that followed from one cause is shown. */
export const chainPath = (id: string) => `/history?chain=${encodeURIComponent(id)}`;
/** Where a subscription is shown. */
export const subscriptionPath = (name: string) => `/subscriptions/${encodeURIComponent(name)}`;
