// The protocol of `exec` over a WebSocket (v5.channel.k8s.io): each message begins with the number of its channel.

import { valueAt } from "./facts.ts";

export const [STDIN, STDOUT, STDERR, STATUS, RESIZE] = [0, 1, 2, 3, 4];
/** `v5` ends the input when it is closed; servers before Kubernetes 1.30 know `v4` alone. */
export const PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/** Bash where there is one, else sh. */
export const SHELL = ["sh", "-c", "exec $(command -v bash || echo sh)"];

const encoder = new TextEncoder();

/** A message to a channel. */
export function message(channel: number, content: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = typeof content === "string" ? encoder.encode(content) : content;
  const framed = new Uint8Array(bytes.length + 1);
  framed[0] = channel;
  framed.set(bytes, 1);
  return framed;
}

/** The path of a shell in a container. */
export function execPath(namespace: string, pod: string, container: string): string {
  const params = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
  for (const word of SHELL) params.append("command", word);
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}/exec?${params}`;
}

/** The command that opens the same shell. */
export function execCommand(namespace: string, pod: string, container: string): string {
  return `kubectl exec -it -n ${namespace} ${pod} -c ${container} -- ${SHELL.slice(0, 2).join(" ")} '${SHELL[2]}'`;
}

/** How a shell ended, in words: what stands in the channel of the status. */
export function endInWords(text: string): string {
  let status: Record<string, unknown>;
  try {
    status = JSON.parse(text) as Record<string, unknown>;
  } catch {
    return "The shell ended, and the cluster does not say how.";
  }
  if (status.status === "Success") return "The shell ended with exit code 0.";
  const causes = valueAt(status, "details", "causes");
  const all = Array.isArray(causes) ? (causes as { reason?: string; message?: string }[]) : [];
  const code = all.find(({ reason }) => reason === "ExitCode")?.message;
  const said = typeof status.message === "string" ? status.message : "";
  if (code === undefined) return `The shell could not be opened: ${said || "the cluster does not say why"}.`;
  const known: Record<string, string> = {
    "126": ": what was called cannot be executed",
    "127": ": a command was not found",
    "130": ": it was interrupted",
    "137": ": it was killed, or the container ended",
    "143": ": it was asked to end",
  };
  return `The shell ended with exit code ${code}${known[code] ?? ""}.`;
}

/** What is sent for a text that somebody pastes: the text as it is, in the brackets that a program asked for. The end of the brackets is
 * taken out of it, as it would let the rest be typed. */
export function pasted(text: string, isBracketed: boolean): string {
  return isBracketed ? `\x1b[200~${text.replaceAll("\x1b[201~", "")}\x1b[201~` : text;
}
