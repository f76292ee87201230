// A commit is rejected, the next one breaks what runs: both are found on the page, understood, and the last good commit is put back. Then who did what
// is looked at, with the eyes of others as well.

export default async (open, given) => {
  const { good, hostile, viewer, stranger, source, agent, namespace } = given;
  const { browser, page, problems, violations, reads, click, look, next, goes } = await signedIn(open, given);
  const text = (selector) => page.$eval(selector, (one) => one.innerText.trim());
  const commits = () => page.$$eval(".commit code", (all) => all.map((one) => one.innerText));

  await page.keyboard.press("g");
  await page.keyboard.press("d");
  await page.waitForSelector(".source-line", soon);
  await reads("In sync");
  const before = await text(".source-line .line-status");
  await look("delivery-well");

  // Rejected: the good commit stays, and each finding stands at its line.
  await next("push");
  await page.waitForFunction(() => document.querySelector(".source-line .line-status")?.innerText.includes("Rejected"), soon);
  await look("delivery-rejected");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".findings", soon);
  const findings = (await text(".findings")).includes("manifests/broken.yaml:");
  const rejected = (await text(".commit[aria-pressed=true]")).includes("rejected");
  await look("source-rejected");

  // Applied, and what runs is broken by it.
  await next("repair");
  await page.waitForFunction((hostile) => document.querySelector(".page-tab, .place-reason") && document.body.innerText.includes(hostile), soon, hostile);
  await page.waitForFunction((good) => document.querySelector(".commit code")?.innerText !== good.slice(0, 8) && document.querySelectorAll(".sync-head").length > 0, soon, good);
  const newest = (await commits())[0];
  await look("source-degraded");
  await click("Objects");
  await page.waitForSelector("table.plain tbody tr", soon);
  await look("source-objects");
  await click("Next sync");
  await page.waitForSelector(".differences", soon);
  await look("source-next");

  // The last good commit, and back to it: once with the keyboard's way out, once for good.
  await click("Commit");
  await page.evaluate((good) => [...document.querySelectorAll(".commit")].find((one) => one.innerText.includes(good.slice(0, 8))).click(), good);
  await click("Roll back to it");
  await page.waitForSelector("dialog[open] .command code", soon);
  const command = await text("dialog[open] .command code");
  await look("roll-back");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog[open]"), soon);
  await click("Roll back to it");
  await page.waitForSelector("dialog[open] [type=submit]", soon);
  await page.click("dialog[open] [type=submit]");
  await page.waitForSelector("dialog[open] [role=status]", soon);
  await look("rolled-back-dialog");
  await click("Close", "dialog[open]");
  const isCurrent = (good) => [...document.querySelectorAll(".commit")].some((one) => one.innerText.includes(good.slice(0, 8)) && one.innerText.includes("current") && one.innerText.includes("pinned"));
  await page.waitForFunction(isCurrent, soon, good);
  await reads("Unpin");
  const after = await text(".commit[aria-pressed=true] code");
  await look("source-pinned");
  await click("By people");
  await page.waitForSelector(".deeds li", soon);
  const deeds = (await text(".deeds")).includes("owner pinned it");
  await look("source-people");

  // From the push to the pods.
  await click("Commit");
  await page.evaluate((newest) => [...document.querySelectorAll(".commit")].find((one) => one.innerText.includes(newest)).click(), newest);
  await page.waitForFunction((newest) => document.querySelector(".commit-view h2")?.innerText === newest, soon, newest);
  await click("What followed from it", ".commit-view");
  await page.waitForSelector(".chain-row", soon);
  await page.waitForFunction(() => [...document.querySelectorAll(".chain-what")].some((one) => one.innerText === "pod"), soon);
  const pods = (await page.$$eval(".chain-row", (all) => all.map((one) => one.innerText))).some((row) => row.includes("web-"));
  await look("chain");

  // The log: who pinned it. A refusal is as visible.
  await goes("/history");
  await page.waitForSelector(".event", soon);
  await look("history");
  await page.type("[aria-label=Type]", "source.pinned");
  await page.waitForFunction(() => document.querySelectorAll(".event").length === 1, soon);
  const pinned = await page.$$eval(".event", (all) => all.length);
  await page.click(".event");
  await page.waitForSelector(".drawer .yaml", soon);
  await look("history-event");
  await goes("/history?tab=compare&from=-15m");
  await page.waitForSelector(".differences, .empty", soon);
  await look("compare");

  await goes("/agents");
  await page.waitForSelector(".agent-line", soon);
  await look("agents");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".connections svg", soon);
  await look("agent");
  await click("Configuration");
  await page.waitForSelector(".page-tab .yaml", soon);
  await look("agent-configuration");
  await click("What it sees");
  await look("agent-sees");

  await goes(`/access?verb=list&resource=pods&namespace=${namespace}`);
  await page.waitForSelector(".answer .word", soon);
  const canI = await text(".answer .word");
  await look("can-i");
  await click("People");
  await page.waitForSelector(".person", soon);
  await look("people");
  await click("Sessions and tokens");
  await page.waitForFunction(() => document.body.innerText.includes("repair"), soon);
  await look("tokens");
  await page.evaluate(() => [...document.querySelectorAll(".token")].find((one) => one.innerText.includes("repair")).querySelector("button").click());
  await page.waitForSelector("dialog[open] .danger", soon);
  await page.click("dialog[open] .danger");
  await page.waitForSelector("dialog[open] [role=status]", soon);
  await click("Close", "dialog[open]");
  await page.waitForFunction(() => ![...document.querySelectorAll(".token")].some((one) => one.innerText.includes("repair")), soon);
  const revoked = true;
  await click("Audit");
  await page.waitForFunction(() => document.querySelector(".audit, .empty"), soon);
  await look("audit");
  await goes("/settings");
  await page.waitForFunction(() => document.body.innerText.includes("Root key"), soon);
  await look("settings");

  // Commands by the keyboard.
  await page.keyboard.down("Control");
  await page.keyboard.press("k");
  await page.keyboard.up("Control");
  await page.waitForSelector(".palette input", soon);
  await page.keyboard.type("> suspend");
  await page.waitForFunction(() => document.querySelectorAll(".palette li").length === 1, soon);
  await look("palette");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog.action[open]", soon);
  await page.keyboard.press("Escape");
  const images = await page.evaluate(() => document.images.length);

  const others = { viewer: await asViewer(browser, page.url(), viewer, source), stranger: await asStranger(browser, page.url(), stranger, { source, agent, namespace, good }) };
  return { before, rejected, findings, newest, command, after, deeds, pods, pinned, canI, revoked, ...others, images, problems, violations };
};

/** A viewer sees which actions are not allowed, and which rights are missing. */
async function asViewer(browser, url, token, source) {
  const page = await another(browser, new URL("/", url).href, token);
  await page.goto(new URL(`/delivery/${source}`, url).href);
  await page.waitForSelector(".actions", soon);
  await page.waitForFunction(() => document.querySelector(".missing-rights"), soon);
  const disabled = await page.$$eval(".actions button", (all) => all.every((one) => one.getAttribute("aria-disabled") === "true"));
  await page.evaluate(() => document.querySelector(".actions button").click());
  const opened = await page.$("dialog[open]");
  const says = (await page.$eval(".missing-rights", (one) => one.innerText)).startsWith("Not for you: ");
  return { disabled: disabled && !opened, says };
}

/** No page tells a member of another organization anything. */
async function asStranger(browser, url, token, { source, agent, namespace, good }) {
  const page = await another(browser, new URL("/", url).href, token);
  const told = [];
  for (const path of ["/delivery", `/delivery/${source}`, "/agents", `/agents/${agent}`, "/history", "/history?tab=compare", "/access", "/access?tab=people", "/access?tab=audit"]) {
    await page.goto(new URL(path, url).href);
    await page.waitForFunction(() => !document.querySelector(".skeleton") && document.querySelector("#view")?.innerText.length > 20, soon);
    const text = await page.$eval("#view", (one) => one.innerText);
    for (const secret of ["production/shop", namespace, good.slice(0, 8)]) if (text.includes(secret)) told.push(`${path}: ${secret}`);
  }
  return { told };
}
