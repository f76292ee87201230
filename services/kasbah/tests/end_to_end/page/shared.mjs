// What all scripts of pages share: looking at a view in each size and theme, and asking the test for what is to happen next.

// A page that nobody looks at draws no frames, for which it would wait otherwise.
const soon = { polling: 50, timeout: 60_000 };

const LOOKS = [
  ["1280", { width: 1280, height: 800 }, "light"],
  ["1280-dark", { width: 1280, height: 800 }, "dark"],
  ["390", { width: 390, height: 844 }, "light"],
  ["390-dark", { width: 390, height: 844 }, "dark"],
  ["1920", { width: 1920, height: 1080 }, "light"],
];

/** Looks at a view in each of `looks`: takes a picture, and adds to `violations` what axe finds, and with `fits` what is wider than the window. */
async function lookAt(page, name, { axe, pictures, violations, looks = LOOKS, fits = false }) {
  for (const [size, viewport, theme] of looks) {
    await page.setViewport(viewport);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }, { name: "prefers-reduced-motion", value: "reduce" }]);
    await page.screenshot({ path: `${pictures}/${name}-${size}.png` });
    const wide = fits ? await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) : 0;
    if (wide > 0) violations.push(`${name} ${size}: ${wide} px too wide`);
    await page.evaluate(axe);
    const found = await page.evaluate(async () => (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0].target} ${nodes[0].failureSummary}`));
    violations.push(...found.map((one) => `${name} ${size}: ${one}`));
  }
  await page.setViewport(LOOKS[0][1]);
}

/** Asks the test for the next thing: it waits for a token of this name. */
const requestNext = (page, name) =>
  page.evaluate(async (name) => {
    const { session } = await (await fetch("/api/session")).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": session.csrf_token };
    await fetch("/api/v1/tokens", { method: "POST", headers, body: JSON.stringify({ name }) });
  }, name);

/** Shows another address without loading the page again. */
const visitIn = (page, to) => page.evaluate((to) => (history.pushState(null, "", to), dispatchEvent(new PopStateEvent("popstate"))), to);

/** Clicks at the element of a selector that has this text. */
const press = (page, selector, text) =>
  page.evaluate((selector, text) => [...document.querySelectorAll(selector)].find((one) => one.innerText.trim() === text).click(), selector, text);

/** Clicks at the button or link that has this text, once it is there. */
const clickOn = (page, text, within = "body") =>
  page
    .waitForFunction((text, within) => [...document.querySelectorAll(`${within} :is(button, a)`)].find((one) => one.innerText.trim() === text), soon, text, within)
    .then((found) => found.evaluate((one) => one.click()));

/** Signs in with a token that is typed in. */
async function signInWith(page, token) {
  await page.waitForSelector("#token", soon);
  await page.type("#token", token);
  await page.click(".primary");
}

async function signOut(page, wait = soon) {
  await page.bringToFront();
  await page.click(".menu summary");
  await press(page, ".menu button", "Sign out");
  await page.waitForSelector(".sign-in", wait);
}

const untilLive = (page) => page.waitForFunction(() => document.querySelector(".live")?.innerText.startsWith("live"), soon);

/** Waits until a table has an object of this name, or has it no more. */
const untilLists = (page, name, isThere = true, wait = soon) =>
  page.waitForFunction((name, isThere) => [...document.querySelectorAll("td a")].some((one) => one.innerText === name) === isThere, wait, name, isThere);

/** Changes of the last ten minutes, the newest first. */
const recentChanges = (page) =>
  page.evaluate(async () => {
    const { session } = await (await fetch("/api/session")).json();
    const query = `{ changes(from: "-10m", first: 500) { nodes { uid kind recordedAt } } }`;
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": session.csrf_token };
    const { data } = await (await fetch("/api/graphql", { method: "POST", headers, body: JSON.stringify({ query }) })).json();
    return data.changes.nodes;
  });

/** Opens the object of an address again and again, for a minute, until it names the missing right; whether it does. */
async function namesMissing(page, address, right) {
  const { pathname, search } = new URL(address);
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    await visitIn(page, `${pathname}?view=table`);
    await page.waitForFunction(() => !document.querySelector(".drawer"), soon);
    await visitIn(page, pathname + search);
    await page.waitForFunction(() => document.querySelector(".missing") || [...document.querySelectorAll(".actions button")].some((one) => !one.disabled), soon);
    if (right.test(await page.evaluate(() => document.querySelector(".missing")?.innerText ?? ""))) return true;
  }
  return false;
}

/** Waits until the page has a text; says what it has instead, where that never comes. */
const untilReads = (page, text, wait = soon) =>
  page
    .waitForFunction((text) => document.body.innerText.includes(text), wait, text)
    .catch(async (error) => Promise.reject(new Error(`${text}: ${error.message}: ${await page.evaluate(() => document.body.innerText)}`)));

/** Notes what the browser complains about, but for what is `expected`, and each violation of the page's policy. */
async function watched(page, problems, expected = () => false) {
  await page.evaluateOnNewDocument(() =>
    addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => console.error(`the policy forbids it: ${violatedDirective} ${blockedURI}`)),
  );
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && !expected(message.text()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(error.message));
  return page;
}
