// Uses a cluster as a program does that has the JavaScript client library: arguments are a kubeconfig and a namespace with the pod `web`.
// Prints in one document what it was told.
import net from "node:net";
import { PassThrough, Readable } from "node:stream";
import { text } from "node:stream/consumers";
import * as k8s from "@kubernetes/client-node";

const [kubeconfig, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(k8s.CoreV1Api);
const told = {};

const pods = await core.listNamespacedPod({ namespace });
told.pods = pods.items.map((pod) => pod.metadata.name);

// An informer hears of what is made, changed and deleted.
const name = "from-a-library";
const heard = [];
let deleted;
const gone = new Promise((resolve) => (deleted = resolve));
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
  core.listNamespacedConfigMap({ namespace }),
);
for (const event of ["add", "update", "delete"]) {
  informer.on(event, (object) => {
    if (object.metadata.name !== name) return;
    heard.push(`${event} ${object.data.word}`);
    if (event === "delete") deleted();
  });
}
await informer.start();
const body = { metadata: { name }, data: { word: "first" } };
await core.createNamespacedConfigMap({ namespace, body });
const applied = { apiVersion: "v1", kind: "ConfigMap", ...body, data: { word: "second" } };
await core.patchNamespacedConfigMap(
  { namespace, name, body: applied, fieldManager: "library", force: true },
  k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.ServerSideApply),
);
await core.deleteNamespacedConfigMap({ namespace, name });
await gone;
await informer.stop();
told.heard = heard;

told.log = await core.readNamespacedPodLog({ namespace, name: "web" });

// A command gets its input and its end, and says its code.
const [output, errors] = [new PassThrough(), new PassThrough()];
const said = Promise.all([text(output), text(errors)]);
const command = ["sh", "-c", "read word; echo heard $word; echo not well >&2; exit 7"];
told.outcome = await new Promise((resolve, reject) => {
  const input = Readable.from(["sesame\n"]);
  new k8s.Exec(config)
    .exec(namespace, "web", "web", command, output, errors, input, false, resolve)
    .catch(reject);
});
output.end();
errors.end();
told.said = await said;

// A forwarded port.
const server = net.createServer((socket) => {
  new k8s.PortForward(config).portForward(namespace, "web", [8080], socket, null, socket);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
told.fetched = await fetch(`http://127.0.0.1:${server.address().port}/`).then((answer) => answer.text());
server.close();

told.missing = await core.readNamespacedPod({ namespace, name: "nobody" }).catch((error) => error.code);

process.stdout.write(JSON.stringify(told) + "\n");
process.exit(0);
