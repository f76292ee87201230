// Looks at the page of a large environment while it changes. Each figure comes beside that of a page which receives the same bytes and does
// nothing with them.

const soon = { polling: 50, timeout: 90_000 };
const VIEWS = ["tree", "table", "board", "timeline"];
/** How long each view is watched, once it is shown. */
const WATCHED = 6_000;
const SETTLES = 3_000;
const SLOWER = 4;
/** The browser reports no shorter tasks. */
const SHORTEST = 50;
const PAUSE = 250;
/** Fields that a request has of the page, not of the browser. */
const OWN = ["accept", "content-type", "x-csrf-token"];
const SUBSCRIPTION = `subscription { resourceChanges { position change {
  agent agentName group kind namespace name uid recordedAt what writer { manager subresource } fields fieldCount health healthBefore } } }`;

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const median = (values) => [...values].sort((one, other) => one - other)[Math.floor((values.length - 1) / 2)];

export default async (open, { port, link, environment, runs, memory }) => {
  const browser = (await open(port)).browser();
  const first = await browser.newPage();
  await first.goto(link);
  await first.waitForFunction(() => document.querySelector(".live")?.innerText.startsWith("live"), soon);
  const origin = new URL(first.url()).origin;
  await first.close();
  const to = { browser, origin, path: `/environments/${environment}` };
  const seen = { firstPaint: [], longestTask: [], slowKey: [], remarks: [] };
  for (let run = 0; run < runs; run++) {
    seen.firstPaint.push(await firstPaint(to, seen.remarks));
    seen.longestTask.push([await longestTask(to, seen.remarks), await bareTask(to, seen.remarks)]);
    seen.slowKey.push([await slowKey(to, seen.remarks), await bareKey(to)]);
  }
  return { ...seen, ...(await held(to, memory, seen.remarks)) };
};

/** A page that notes when the first object was drawn, its longest task, and how long each key took until the next frame. */
async function prepared(browser) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 800 });
  await page.bringToFront();
  await page.evaluateOnNewDocument(() => {
    Object.assign(window, { painted: 0, longest: 0, keys: [] });
    const afterFrame = (call) =>
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = call;
        port2.postMessage(0);
      });
    const drawn = new MutationObserver(() => {
      if (!document.querySelector(".node")) return;
      drawn.disconnect();
      afterFrame(() => (window.painted = performance.now()));
    });
    drawn.observe(document, { childList: true, subtree: true });
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
    }).observe({ type: "longtask" });
    addEventListener("keydown", ({ timeStamp }) => afterFrame(() => window.keys.push(performance.now() - timeStamp)), true);
  });
  return page;
}

/** From the address until objects are drawn, with nothing in the cache; and until all that was asked for meanwhile is there. */
async function firstPaint({ browser, origin, path }, remarks) {
  const page = await prepared(browser);
  await page.setCacheEnabled(false);
  const asked = [];
  page.on("request", (request) => {
    const headers = Object.fromEntries(Object.entries(request.headers()).filter(([name]) => OWN.includes(name)));
    if (headers.accept !== "text/event-stream") asked.push({ url: request.url(), method: request.method(), body: request.postData() ?? null, headers });
  });
  await page.goto(origin + path);
  await page.waitForFunction(() => window.painted > 0, soon);
  const painted = await page.evaluate(() => window.painted);
  const same = [...asked];
  await page.close();
  const bare = await bareAt(browser, origin);
  await bare.setCacheEnabled(false);
  const [took, bytes] = await bare.evaluate(async (asked) => {
    const begun = performance.now();
    const sizes = asked.map(async ({ url, ...request }) => (await (await fetch(url, request)).arrayBuffer()).byteLength);
    const all = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    return [performance.now() - begun, all];
  }, same);
  await bare.close();
  remarks.push(`first paint: ${same.length} requests, ${Math.round(bytes / 1000)} kB unpacked`);
  return [painted, took];
}

/** An empty document of the same origin: the browser itself answers for the server. */
async function bareAt(browser, origin) {
  const page = await prepared(browser);
  await page.setRequestInterception(true);
  const answer = (request) => request.respond({ contentType: "text/html", body: "<!doctype html><title>Nothing</title>" });
  page.on("request", answer);
  await page.goto(`${origin}/nothing`);
  page.off("request", answer);
  await page.setRequestInterception(false);
  return page;
}

/** Reads the feed and forgets it. */
async function receive(page) {
  await page.evaluate(async (query) => {
    const { session } = await (await fetch("/api/session")).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": session.csrf_token, Accept: "text/event-stream" };
    const response = await fetch("/api/graphql", { method: "POST", headers, body: JSON.stringify({ query }) });
    if (!response.ok) throw new Error(`the feed answers ${response.status}`);
    window.received = 0;
    const reader = response.body.getReader();
    const read = () => reader.read().then(({ done, value }) => !done && ((window.received += value.length), read()));
    void read();
  }, SUBSCRIPTION);
}

async function opened({ browser, origin, path }) {
  const page = await prepared(browser);
  await page.goto(origin + path);
  await page.waitForFunction(() => window.painted > 0, soon);
  return page;
}

async function show(page, { path }, view) {
  const address = view === "tree" ? path : `${path}?view=${view}`;
  await page.evaluate((to) => (history.pushState(null, "", to), dispatchEvent(new PopStateEvent("popstate"))), address);
  const shown = { tree: ".node", table: "tbody td a", board: ".square", timeline: ".lane, .empty" }[view];
  // Not a handle of the element, which would keep it and all around it.
  await page.waitForFunction((shown) => document.querySelector(shown) !== null, soon, shown);
}

async function longestTask(to, remarks) {
  const page = await opened(to);
  const client = await page.createCDPSession();
  let received = 0;
  client.on("Network.dataReceived", ({ dataLength }) => (received += dataLength));
  await client.send("Network.enable");
  const all = {};
  const [begun, before] = [Date.now(), await page.metrics()];
  for (const view of VIEWS) {
    await show(page, to, view);
    await pause(SETTLES);
    await page.evaluate(() => (window.longest = 0));
    await pause(WATCHED);
    all[view] = Math.max(SHORTEST, await page.evaluate(() => window.longest));
  }
  const [took, after] = [Date.now() - begun, await page.metrics()];
  const share = (of) => `${Math.round(((after[of] - before[of]) * 1e5) / took)} %`;
  remarks.push(`longest task: ${VIEWS.map((view) => `${view} ${Math.round(all[view])} ms`).join(", ")}; ${Math.round(received / took)} kB/s received`);
  remarks.push(`its main thread is busy for ${share("TaskDuration")} of the time, with scripts for ${share("ScriptDuration")}`);
  await page.close();
  return Math.max(...Object.values(all));
}

async function bareTask({ browser, origin }, remarks) {
  const page = await bareAt(browser, origin);
  await receive(page);
  await pause(SETTLES);
  const [before] = await page.evaluate(() => [window.received, (window.longest = 0)]);
  await pause(WATCHED);
  const [after, longest] = await page.evaluate(() => [window.received, window.longest]);
  remarks.push(`beside it: ${Math.round((after - before) / WATCHED)} kB/s of the feed`);
  await page.close();
  return Math.max(SHORTEST, longest);
}

/** The slowest of some keys, from the press to the next frame, at a fourth of the processor's speed. */
async function slowKey(to, remarks) {
  const page = await opened(to);
  const press = async (...keys) => {
    for (const key of keys) {
      await page.keyboard.press(key);
      await pause(PAUSE);
    }
  };
  const measured = {};
  const measure = async (name, keys) => {
    await page.evaluate(() => (window.keys = []));
    await keys();
    await page.waitForFunction(() => window.keys.length > 0, soon);
    measured[name] = Math.max(...(await page.evaluate(() => window.keys)));
  };
  await page.emulateCPUThrottling(SLOWER);
  await pause(SETTLES);
  await page.focus('.node[tabindex="0"]');
  await measure("arrows in the tree", () => press("ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "End", "Home"));
  await measure("commands", async () => {
    await page.keyboard.down("Control");
    await page.keyboard.press("k");
    await page.keyboard.up("Control");
    await pause(2 * PAUSE);
    await press("a", "p", "p");
    await page.keyboard.press("Escape");
    await pause(PAUSE);
  });
  await show(page, to, "table");
  await page.focus(".filters input");
  await measure("a filter", () => press("a", "p", "p", "-", "0"));
  await page.emulateCPUThrottling(null);
  remarks.push(`slowest keys: ${Object.entries(measured).map(([name, took]) => `${name} ${Math.round(took)} ms`).join(", ")}`);
  await page.close();
  return Math.max(...Object.values(measured));
}

async function bareKey({ browser, origin }) {
  const page = await bareAt(browser, origin);
  await receive(page);
  await page.emulateCPUThrottling(SLOWER);
  await pause(SETTLES);
  for (let number = 0; number < 8; number++) {
    await page.keyboard.press("a");
    await pause(PAUSE);
  }
  const keys = await page.evaluate(() => window.keys);
  await page.close();
  return Math.max(...keys);
}

/** What the page holds after a collection, at the end beside the beginning: somebody goes through its views all the time. */
async function held(to, { seconds, every }, remarks) {
  const page = await opened(to);
  const client = await page.createCDPSession();
  const samples = [];
  const end = Date.now() + seconds * 1000;
  do {
    const next = Date.now() + every * 1000;
    for (const view of ["table", "board", "timeline", "tree"]) {
      await show(page, to, view);
      await pause(PAUSE);
    }
    await pause(Math.max(0, next - Date.now()));
    // Twice, as what the first one finds may hold something else.
    for (let round = 0; round < 2; round++) await client.send("HeapProfiler.collectGarbage");
    const [{ usedSize }, { nodes }] = [await client.send("Runtime.getHeapUsage"), await client.send("Memory.getDOMCounters")];
    samples.push([usedSize, nodes]);
  } while (Date.now() < end);
  // The first one is before everything was shown once.
  const counted = samples.slice(1);
  const some = Math.max(1, Math.floor(counted.length / 4));
  const ends = (of) => [median(counted.slice(-some).map((one) => one[of])), median(counted.slice(0, some).map((one) => one[of]))];
  remarks.push(`heap every ${every} s: ${samples.map(([size]) => (size / 1e6).toFixed(1)).join(" ")} MB; nodes: ${samples.map(([, nodes]) => nodes).join(" ")}`);
  await page.close();
  return { heap: ends(0), nodes: ends(1) };
}
