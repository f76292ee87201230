// Events of the log as people read them.

/** One event, as `/api/v1/log/events` has it. */
export interface LogEvent {
  id: string;
  type: string;
  subject: string;
  time: string;
  recordedat: string;
  actor?: string | Record<string, string>;
  correlationid?: string;
  causationid?: string;
  position?: string;
  data: Record<string, unknown> | null;
}

/** What ids are called, as far as the viewer may know. */
export type Names = ReadonlyMap<string, string>;

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** A text with names instead of ids; an id without one is shortened. */
export function named(text: string, names: Names): string {
  return text.replace(UUID, (id) => names.get(id) ?? `${id.slice(0, 8)}…`);
}

/** The type without what all types have. */
export const shortType = (type: string) => type.replace(/^kasbah\./, "");

/** Who caused an event. */
export function actorOf(event: LogEvent): string {
  const { actor } = event;
  if (!actor) return event.type.startsWith("kasbah.observed.") ? event.subject : "";
  if (typeof actor === "string") return actor;
  const [kind, id] = Object.entries(actor)[0] ?? ["", ""];
  return `${kind}:${id}`;
}

/** Whether a person, a job or an agent did it, and not a service on its own. */
export const isBySomebody = (event: LogEvent) => /^(user|job)[:/]/.test(actorOf(event));

interface Identity {
  kind?: string;
  namespace?: string;
  name?: string;
}

const text = (value: unknown) => (typeof value === "string" || typeof value === "number" ? String(value) : "");

function objectIn(data: Record<string, unknown>): string {
  const direct = data.identity as Identity | undefined;
  const within = (data.object ?? data.failure) as { identity?: Identity } | undefined;
  const identity = direct ?? within?.identity;
  if (!identity?.name) return "";
  return `${identity.kind} ${[identity.namespace, identity.name].filter(Boolean).join("/")}`;
}

/** What happened, in a few words, from what the event holds. */
export function summary(event: LogEvent): string {
  const data = event.data ?? {};
  const refusal = data.refusal as { message?: string } | undefined;
  const counts = data.counts as Record<string, number> | undefined;
  const failure = data.failure as { message?: string } | undefined;
  const parts = [
    refusal && `refused: ${refusal.message ?? ""}`,
    text(data.name),
    text(data.commit) && `commit ${text(data.commit).slice(0, 8)}`,
    text(data.outcome),
    objectIn(data),
    text(data.write),
    text(data.status),
    typeof data.objects === "number" && `${data.objects} ${data.objects === 1 ? "object" : "objects"}`,
    typeof data.prunes === "number" && data.prunes > 0 && `${data.prunes} to prune`,
    counts &&
      ["created", "changed", "pruned", "failed", "unhealthy"]
        .filter((name) => (counts[name] ?? 0) > 0)
        .map((name) => `${counts[name]} ${name}`)
        .join(", "),
    typeof data.reason === "string" && data.reason,
    text(data.message) || (failure?.message ?? ""),
    Array.isArray(data.findings) && data.findings.length > 0 && `${data.findings.length} ${data.findings.length === 1 ? "finding" : "findings"}: ${text((data.findings[0] as { message?: string }).message)}`,
    text(data.version) && `version ${text(data.version)}`,
    text(data.role),
  ];
  return [...new Set(parts.filter(Boolean))].join(", ");
}

/** The status whose shape and colour each tone has. */
export const TONES = { bad: "degraded", good: "healthy", wait: "held", plain: "none" } as const;

/** How grave an event is: a refusal is as visible as a success. */
export function toneOf(event: LogEvent): "bad" | "good" | "wait" | "plain" {
  const { type, data } = event;
  if (/refused$|rejected$|failed$|lost$/.test(type) || data?.outcome === "failed" || data?.outcome === "unhealthy" || data?.status === "degraded") return "bad";
  if (/held$|suspended$|paused$|waiting$|drift-seen$/.test(type)) return "wait";
  if (data?.outcome === "succeeded" || data?.status === "healthy") return "good";
  return "plain";
}

/** Which events are wanted; a text is looked for in whatever is shown of one. */
export interface Filter {
  text: string;
  type: string;
  actor: string;
  subject: string;
}

export function matches(event: LogEvent, filter: Filter, names: Names): boolean {
  const has = (where: string, what: string) => what === "" || where.toLowerCase().includes(what.toLowerCase());
  const inWords = () => `${shortType(event.type)} ${named(event.subject, names)} ${event.subject} ${named(actorOf(event), names)} ${summary(event)} ${JSON.stringify(event.data)} ${event.correlationid ?? ""}`;
  const isOf = (subject: string) => has(`${named(event.subject, names)} ${event.subject}`, subject) || named(JSON.stringify(event.data ?? {}), names).toLowerCase().includes(subject.toLowerCase());
  return (
    has(shortType(event.type), filter.type) &&
    has(`${named(actorOf(event), names)} ${actorOf(event)}`, filter.actor) &&
    (filter.subject === "" || isOf(filter.subject)) &&
    filter.text
      .split(/\s+/)
      .filter(Boolean)
      .every((word) => has(inWords(), word))
  );
}
