// A page that is let in does what the documentation says, until its token is revoked.

// A page that nobody looks at draws no frames, for which it would wait otherwise.
const soon = { polling: 20 };

export default async (open, { port, script, token, agent, write }) => {
  const page = await open(port);
  await page.evaluate(`(async (token, agent) => {
    ${script}
    Object.assign(window, { ask, pods, shell, heard: "" });
    shell.binaryType = "arraybuffer";
    shell.onmessage = ({ data }) => { heard += new TextDecoder().decode(new Uint8Array(data).slice(1)); };
  })(${JSON.stringify(token)}, ${JSON.stringify(agent)})`);
  await page.waitForFunction(() => shell.readyState === WebSocket.OPEN, soon);
  await page.evaluate(() => shell.send(new TextEncoder().encode("\0echo he''llo\n")));
  await page.waitForFunction(() => heard.includes("hello"), soon);
  const seen = await page.evaluate(async (write) => ({
    pods: pods.items.map((pod) => pod.metadata.name),
    protocol: shell.protocol,
    // The token is revoked when this is in the cluster.
    written: (await ask(write.path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(write.object),
    })).status,
    scriptsSee: document.cookie,
  }), write);
  const [cookie] = await page.browser().cookies();
  await page.waitForFunction(() => shell.readyState === WebSocket.CLOSED, soon);
  const afterwards = await page.evaluate(async ({ path }) => (await ask(path)).status, write);
  return { ...seen, cookie, afterwards };
};
