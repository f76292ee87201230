// A page that is not let in, in the browser of somebody who has a session with one that is.
export default async (open, { port, otherPort, script, token, agent, clusters, maps, smuggled, made }) => {
  const page = await open(port);
  const other = await open(otherPort);
  const codes = {};
  other.on("response", (response) => { codes[response.url().split("?what=")[1]] = response.status(); });
  await page.evaluate(`(async (token, agent) => {
    ${script}
    window.ask = ask;
    window.word = csrf_token;
  })(${JSON.stringify(token)}, ${JSON.stringify(agent)})`);
  const ticket = (target) => page.evaluate(async (target) => {
    const answer = await ask("/tickets", { method: "POST", body: JSON.stringify({ target }) });
    return (await answer.json()).protocol;
  }, target);
  // Whether a page's WebSocket opens; then it stays, and its messages are in window.heard.
  const opens = (page, target, ...protocols) => page.evaluate((url, protocols) => {
    window.heard = "";
    const socket = new WebSocket(url, protocols);
    socket.onmessage = async ({ data }) => { window.heard += typeof data === "string" ? data : await data.text(); };
    return new Promise((ended) => { socket.onopen = () => ended(true); socket.onclose = () => ended(false); });
  }, clusters.replace("https", "wss") + target, protocols);

  const word = await page.evaluate(() => word);
  const tried = await other.evaluate(async (url, word, smuggled) => {
    const outcome = (asking) => asking.then(async (answer) => `read ${answer.status}: ${await answer.text()}`, () => "not told");
    const options = { credentials: "include" };
    const image = new Image();
    const shown = new Promise((end) => { image.onload = () => end("shown"); image.onerror = () => end("not told"); });
    image.src = url + "?what=image";
    const frame = Object.assign(document.createElement("iframe"), { name: "frame" });
    const form = Object.assign(document.createElement("form"), {
      action: url + "?what=form", method: "post", enctype: "text/plain", target: "frame",
    });
    document.body.append(frame, form);
    // What a form sends as plain text is a name, an equals sign and a value, which together may be JSON.
    form.append(Object.assign(document.createElement("input"), { name: smuggled.replace(/}$/, ',"kept":"'), value: '"}' }));
    const submitted = new Promise((loaded) => { frame.onload = loaded; });
    form.submit();
    await submitted;
    return {
      reads: await outcome(fetch(url + "?what=reads", options)),
      readsWithTheWord: await outcome(fetch(url + "?what=word", { ...options, headers: { "X-CSRF-Token": word } })),
      writes: await outcome(fetch(url + "?what=writes", { ...options, method: "POST", body: smuggled })),
      writesBlindly: await outcome(fetch(url + "?what=blind", { ...options, method: "POST", mode: "no-cors", body: smuggled })),
      beginsASession: await outcome(fetch(new URL("/sessions?what=session", url), { ...options, method: "POST" })),
      image: await shown,
    };
  }, clusters + maps, word, JSON.stringify(smuggled));
  const watch = maps + "?watch=true";
  const stolen = await ticket(watch);
  const sockets = {
    otherWithTheCookie: await opens(other, watch, "base64.binary.k8s.io"),
    otherWithATicket: await opens(other, watch, stolen),
    withTheTicket: await opens(page, watch, stolen),
    withTheTicketAgain: await opens(page, watch, stolen),
    withAnother: await opens(page, watch, await ticket(watch)),
  };
  const written = await page.evaluate(async (maps, made) =>
    (await ask(maps, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(made),
    })).status, maps, made);
  await page.waitForFunction((name) => heard.includes(`"name":"${name}"`), { polling: 20 }, made.metadata.name);
  const ended = await page.evaluate(async (maps) => [
    (await ask("/sessions", { method: "DELETE" })).status,
    (await ask(maps)).status,
  ], maps);
  return { tried, codes, sockets, written, ended, cookies: (await page.browser().cookies()).length };
};
