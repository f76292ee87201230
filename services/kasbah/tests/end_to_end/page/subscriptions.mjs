// An owner subscribes two webhooks: one is gone, one refuses an event. Both are found, understood and put right; somebody who is no owner sees why not.

const LONGER = { ...soon, timeout: 150_000 };

export default async (open, { port, link, receiver, maintainer, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems);
  const look = (name, looks = [LOOKS[0], LOOKS[3]]) => lookAt(page, name, { axe, pictures, violations, looks, fits: true });
  const text = (selector) => page.$eval(selector, (one) => one.innerText.trim());
  const has = (selector, text, wait = soon) => page.waitForFunction((selector, text) => [...document.querySelectorAll(selector)].some((one) => one.innerText.includes(text)), wait, selector, text);
  const click = (text, within) => clickOn(page, text, within);
  const done = async () => {
    await page.click("dialog[open] [type=submit]");
    await page.waitForSelector("dialog[open] [role=status]", soon);
  };

  await page.goto(link);
  await untilReads(page, "live");
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await untilReads(page, "Exported events are sent nowhere");
  await look("subscriptions-none");

  const subscribe = async (name) => {
    await click("Subscribe");
    await page.waitForSelector("dialog[open] input[type=url]", soon);
    await page.type("dialog[open] input[pattern]", name);
    await page.type("dialog[open] input[type=url]", `${receiver}/${name}`);
    await page.type("dialog[open] input[placeholder=all]", "kasbah.user.*");
  };
  await subscribe("gone");
  await has("dialog[open] form > .command code", "kasbah.user.*");
  const command = await text("dialog[open] form > .command code");
  await look("subscription-create");
  await done();
  const secret = (await text(".secret code")).startsWith("whsec_");
  await look("subscription-secret", [LOOKS[0]]);
  await click("Close", "dialog[open]");
  // The dialog closes first, and is gone a moment later.
  await page.waitForFunction(() => !document.querySelector("dialog.action"), soon);
  const isShownOnce = !(await page.content()).includes("whsec_");
  await subscribe("refuses");
  await done();
  await click("Close", "dialog[open]");

  await requestNext(page, "one event");
  await has(".subscription-line", "Parked", LONGER);
  await has(".subscription-line", "Retrying", LONGER);
  await look("subscriptions", LOOKS);
  await has(".subscription-line", "1 dead letter", LONGER);
  await requestNext(page, "take all");
  const takesAll = async () => (await fetch(`${receiver}/gone`, { method: "POST", body: "{}" })).status === 204;
  for (const end = Date.now() + 60_000; !(await takesAll()); await new Promise((done) => setTimeout(done, 100))) {
    if (Date.now() > end) throw new Error("the receiver refuses still");
  }

  // The one that is gone says why, and goes on.
  await page.evaluate(() => [...document.querySelectorAll(".subscription-line")].find((one) => one.innerText.includes("gone")).click());
  await has(".place-reason", "410");
  const parked = (await text(".section-head .status")) === "Parked";
  await look("subscription-parked");
  const act = async (name) => {
    await click(name);
    await page.waitForSelector("dialog[open]", soon);
    const command = await text("dialog[open] form > .command code");
    await done();
    await click("Close", "dialog[open]");
    return command;
  };
  const commands = [await act("Resume")];
  await has(".section-head .status", "Active");
  const resumed = (await text("dl.fields")).includes("ago");
  // Somebody pauses it for a while.
  commands.push(await act("Pause"));
  await has(".section-head .status", "Paused");
  await has(".place-reason", "paused by");
  await look("subscription-paused", [LOOKS[0], LOOKS[3]]);
  commands.push(await act("Resume"));
  await has(".section-head .status", "Active");
  await click("Rotate the secret");
  await page.waitForSelector("dialog[open]", soon);
  await done();
  const rotated = (await text(".secret code")).startsWith("whsec_");
  await click("Close", "dialog[open]");
  await click("Delete");
  await page.waitForSelector("dialog[open] .danger", soon);
  await look("subscription-delete", [LOOKS[0]]);
  await done();
  await click("Close", "dialog[open]");
  await page.waitForFunction(() => location.pathname === "/subscriptions" && document.querySelectorAll(".subscription-line").length === 1, soon);
  const deleted = true;

  // What the other one refused is looked at, and sent again.
  await page.evaluate(() => document.querySelector(".subscription-line").click());
  await page.waitForSelector("table.plain tbody tr", soon);
  const letter = await text("table.plain tbody code");
  const answer = (await text("table.plain tbody td.wide")).includes("422");
  await page.click("table.plain tbody .link");
  await page.waitForSelector("pre.yaml", soon);
  const event = (await text("pre.yaml")).includes("type: kasbah.user.created");
  await look("dead-letters", LOOKS);
  await click("Send again");
  await page.waitForSelector("dialog[open]", soon);
  await done();
  await click("Close", "dialog[open]");
  await page.waitForFunction(() => !document.querySelector("table.plain"), soon);
  const resent = (await text("section[aria-labelledby=letters]")).includes("refused no event");
  await click("Replay");
  await page.waitForSelector("dialog[open] select", soon);
  await page.select("dialog[open] select", "time");
  await page.waitForSelector("dialog[open] input[type=datetime-local]", soon);
  await look("subscription-replay", [LOOKS[0]]);
  await page.keyboard.press("Escape");

  const others = await asMaintainer(browser, page.url(), maintainer, { axe, pictures, violations });
  return { command, secret, isShownOnce, parked, letter, answer, event, resumed, commands, resent, rotated, deleted, others, problems, violations };
};

/** A maintainer may read the log, but manages no subscriptions: the page says which role is missing. */
async function asMaintainer(browser, url, token, given) {
  const page = await watched(await (await browser.createBrowserContext()).newPage(), []);
  await page.goto(new URL("/subscriptions", url).href);
  await signInWith(page, token);
  await untilReads(page, "You may not see subscriptions");
  await page.waitForFunction(() => document.querySelector(".section-actions button[aria-disabled=true]")?.title.startsWith("Not for you"), soon);
  await lookAt(page, "subscriptions-forbidden", { ...given, looks: [LOOKS[0], LOOKS[3]], fits: true });
  return (await page.$eval(".section-actions button", (one) => one.title)).slice(0, 13);
}
