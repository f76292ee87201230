// What the scripts of this folder share, beside what all scripts of pages do.

/** Looked at in each of them; other views in two, as each look takes its time. */
const MAIN = ["delivery-rejected", "source-degraded", "confirm-held", "chain", "history", "agent", "can-i", "first-run"];

/** A page with what is done to it; `problems` and `violations` are filled as they are found. */
async function signedIn(open, { port, link, axe, pictures }) {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems, isRefusal);
  const reads = (text) => untilReads(page, text);
  const click = (text, within) => clickOn(page, text, within);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: MAIN.includes(name) ? LOOKS : [LOOKS[0], LOOKS[3]], fits: true });
  const next = (name) => requestNext(page, name);
  const goes = async (path) => page.goto(new URL(path, page.url()).href);
  await page.goto(link);
  await reads("live");
  return { browser, page, problems, violations, reads, click, look, next, goes };
}

/** What the server refuses is no complaint of the page. */
const isRefusal = (text) => /^Failed to load resource: .* status of 40[34]/.test(text);

/** Another person's browser, signed in with a token. */
async function another(browser, origin, token) {
  const page = await watched(await (await browser.createBrowserContext()).newPage(), [], isRefusal);
  await page.goto(origin);
  await signInWith(page, token);
  await untilLive(page);
  return page;
}
