// Addresses of all views that the router knows: one for each id where a view takes one.

/** What the server refuses is no complaint of the page. */
const isRefusal = (text) => /^Failed to load resource: .* status of 4\d\d/.test(text);

/** The parts of an address that a view takes, as patterns in the router have them. */
const PART = /\(\[\^\/\][+*]\)/g;

function addressesOf(router, ids, objects) {
  const patterns = [...router.matchAll(/\[\/\^(.+)\$\/, \(\) => import/g)].map(([, pattern]) => pattern.replaceAll("\\/", "/"));
  if (patterns.length < 8) throw new Error(`the router is written in another way: ${patterns}`);
  const all = ["/", "/style"];
  for (const pattern of patterns) {
    const parts = pattern.match(PART)?.length ?? 0;
    const fill = (...values) => values.reduce((path, value) => path.replace(/\(\[\^\/\][+*]\)/, encodeURIComponent(value)), pattern);
    if (parts === 0) all.push(pattern);
    if (parts === 1) all.push(...Object.values(ids).map((id) => fill(id)));
    if (parts === 2) all.push(fill(ids.agent, ids.namespace));
  }
  const place = `/environments/${ids.environment}`;
  return [...all, ...objects.map((uid) => `${place}?view=table&object=${uid}`), `${place}?view=table&q=event`, `/history?tab=compare&from=-15m&environment=${ids.environment}`];
}

/** Waits until a view has all that it asked for. The view of all parts has them without a frame, with those that wait. */
const isSettled = (page) =>
  page.waitForFunction(() => {
    const view = document.querySelector("#view");
    return !view?.querySelector(".skeleton") && (view ?? document.body).innerText.length > 20;
  }, soon).catch((error) => Promise.reject(new Error(`${page.url()}: ${error.message}`)));

/** Opens an address and each tab that stands there, one after the other; `look` is called at each. */
async function eachTab(page, address, look) {
  await page.goto(new URL(address, page.url()).href);
  await isSettled(page);
  await look(address);
  const tabs = await page.$$eval("[role=tab]", (all) => all.map((one) => one.id));
  for (const id of tabs) {
    await page.evaluate((id) => document.getElementById(id)?.click(), id);
    await isSettled(page);
    await look(`${address} ${id}`);
  }
}
