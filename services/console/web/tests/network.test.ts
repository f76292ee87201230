import assert from "node:assert/strict";
import { test } from "node:test";
import type { Network, NetworkNode, Role } from "../src/api/network.ts";
import type { Line } from "../src/api/place.ts";
import { offeredActions } from "../src/model/actions.ts";
import { endInWords, execCommand, execPath, message, pasted, STDIN } from "../src/model/exec.ts";
import { layout, meshInFull, meshInWords, next, WIDTH } from "../src/model/network.ts";
import { runningIn } from "../src/model/pods.ts";

function node(role: Role, name: string, more: Partial<NetworkNode> = {}): NetworkNode {
  return { agent: "a", group: "", kind: role, namespace: "shop", name, role, resource: null, missing: false, beside: false, pods: null, mesh: null, ...more };
}

function network(nodes: NetworkNode[], edges: [from: string, to: string][]): Pick<Network, "nodes" | "edges"> {
  const number = (name: string) => nodes.findIndex((one) => one.name === name);
  return { nodes, edges: edges.map(([from, to]) => ({ from: number(from), to: number(to), relation: "routes-to" })) };
}

const shop = () =>
  network(
    [node("ENTRY", "gateway"), node("ROUTE", "api"), node("ROUTE", "web"), node("SERVICE", "web-svc"), node("SERVICE", "api-svc"), node("WORKLOAD", "api-deploy"), node("WORKLOAD", "web-deploy"), node("WORKLOAD", "alone")],
    [["gateway", "web"], ["gateway", "api"], ["web", "web-svc"], ["api", "api-svc"], ["web-svc", "web-deploy"], ["api-svc", "api-deploy"]],
  );

test("a network has a column for each role, nothing is drawn upon anything else, and lines do not cross where they need not", () => {
  const { placed, columns, nodeHeight, width, height } = layout(shop());
  assert.deepEqual(columns.map(({ role }) => role), ["ENTRY", "ROUTE", "SERVICE", "WORKLOAD"]);
  const of = (name: string) => placed.find((one) => one.node.name === name) ?? assert.fail(name);
  for (const one of placed) {
    assert.ok(one.x + WIDTH <= width && one.y + nodeHeight <= height && one.y >= 0, one.node.name);
    for (const other of placed) assert.ok(one === other || one.x !== other.x || Math.abs(one.y - other.y) > nodeHeight, `${one.node.name} ${other.node.name}`);
  }
  assert.equal(Math.sign(of("web").y - of("api").y), Math.sign(of("web-svc").y - of("api-svc").y));
  assert.equal(Math.sign(of("web-svc").y - of("api-svc").y), Math.sign(of("web-deploy").y - of("api-deploy").y));
  assert.ok(of("alone").y > of("web-deploy").y && of("alone").y > of("api-deploy").y, "what has no line stands below");
});

test("arrows lead within a column and along the lines", () => {
  const drawing = layout(shop());
  const number = (name: string) => drawing.placed.findIndex((one) => one.node.name === name);
  assert.equal(next(drawing, number("web-svc"), "ArrowRight"), number("web-deploy"));
  assert.equal(next(drawing, number("web-svc"), "ArrowLeft"), number("web"));
  assert.equal(next(drawing, number("gateway"), "ArrowUp"), number("gateway"), "there is none");
  assert.notEqual(next(drawing, number("web"), "ArrowDown"), next(drawing, number("web"), "ArrowUp"));
});

test("as much as the server answers is laid out at once", () => {
  const nodes = Array.from({ length: 400 }, (_, number) => node((["ENTRY", "ROUTE", "SERVICE", "WORKLOAD"] as const)[number % 4] ?? "ROUTE", `n${number}`));
  const edges = Array.from({ length: 2000 }, (_, number): [string, string] => [`n${(number * 7) % 400}`, `n${(number * 13 + 1) % 400}`]);
  const { placed, nodeHeight } = layout(network(nodes, edges));
  assert.equal(placed.length, 400);
  for (const x of new Set(placed.map((one) => one.x))) {
    const column = placed.filter((one) => one.x === x).map(({ y }) => y).sort((one, other) => one - other);
    assert.ok(column.every((y, row) => row === 0 || y - (column[row - 1] ?? 0) > nodeHeight));
  }
});

test("what a mesh does is said in words", () => {
  const mesh = { mesh: "istio", mtls: "strict" as const, reason: "PeerAuthentication shop/all", ports: [{ port: 9090, mtls: "off" }] };
  assert.equal(meshInWords(node("WORKLOAD", "a", { mesh })), "mTLS strict *");
  assert.equal(meshInFull(node("WORKLOAD", "a", { mesh })), "istio, mTLS strict: PeerAuthentication shop/all, port 9090: off");
  assert.equal(meshInWords(node("WORKLOAD", "a", { mesh: { ...mesh, mesh: "none", ports: [] } })), "no mesh");
  assert.equal(meshInWords(node("WORKLOAD", "a")), null);
});

test("a shell's messages begin with their channel, and its command is the one that is shown", () => {
  assert.deepEqual([...message(STDIN, "é")], [0, 0xc3, 0xa9]);
  const url = new URL(execPath("shop", "web-1", "main"), "http://x");
  assert.deepEqual(url.searchParams.getAll("command"), ["sh", "-c", "exec $(command -v bash || echo sh)"]);
  assert.equal(url.searchParams.get("tty"), "true");
  assert.equal(execCommand("shop", "web-1", "main"), "kubectl exec -it -n shop web-1 -c main -- sh -c 'exec $(command -v bash || echo sh)'");
});

test("how a shell ended is said in words", () => {
  assert.equal(endInWords('{"status":"Success"}'), "The shell ended with exit code 0.");
  const failed = (code: string) => JSON.stringify({ status: "Failure", reason: "NonZeroExitCode", message: "command terminated", details: { causes: [{ reason: "ExitCode", message: code }] } });
  assert.equal(endInWords(failed("3")), "The shell ended with exit code 3.");
  assert.match(endInWords(failed("137")), /it was killed, or the container ended/);
  assert.match(endInWords(JSON.stringify({ status: "Failure", message: 'exec: "sh": executable file not found' })), /could not be opened: exec: "sh"/);
  assert.match(endInWords("no json"), /does not say how/);
});

test("what is pasted is sent as it is, and cannot leave the brackets that a program asked for", () => {
  assert.equal(pasted("a\r\n\tb  ", false), "a\r\n\tb  ");
  assert.equal(pasted("a\x1b[201~rm -r\n", true), "\x1b[200~arm -r\n\x1b[201~");
});

test("containers that do not run are known", () => {
  const status = { containerStatuses: [{ name: "a", state: { running: {} } }, { name: "b", state: { waiting: {} } }], ephemeralContainerStatuses: [{ name: "c", state: { running: {} } }] };
  assert.deepEqual(runningIn({ status }), ["a", "c"]);
});

test("an action that the server offers is a patch of this object, and a command that a shell takes", () => {
  const of = { agent: "a", group: "batch", version: "v1", kind: "CronJob", namespace: "shop", name: "nightly", uid: "1" } as Line;
  const offered = { name: "set-note", text: "Notes.", resource: "cronjobs", subresource: "status", mediaType: "application/merge-patch+json", patch: { spec: { note: "it's" } }, declared: true };
  const [action] = offeredActions(of, [offered]);
  assert.ok(action);
  assert.equal(action.name, "Set note");
  assert.equal(action.path, "/apis/batch/v1/namespaces/shop/cronjobs/nightly/status");
  assert.deepEqual(action.doing, { verb: "patch", group: "batch", resource: "cronjobs", subresource: "status", namespace: "shop", name: "nightly" });
  assert.equal(action.kubectl, `kubectl -n shop patch cronjobs.batch nightly --subresource status --type merge -p '{"spec":{"note":"it'\\''s"}}'`);
});
