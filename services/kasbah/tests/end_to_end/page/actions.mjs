// Somebody does with an object what the agent's configuration declares, and may not any more when rights are taken away.

export default async (open, { port, link, path, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: LOOKS.slice(0, 4) });
  const visit = (rest) => visitIn(page, `${path}${rest}`);
  const buttons = () => page.$$eval(".actions button", (all) => all.map((one) => one.innerText));
  const canPress = (name) => page.waitForFunction((name) => [...document.querySelectorAll(".actions button")].some((one) => one.innerText === name && !one.disabled), soon, name);
  const openObject = async (kind, name) => {
    const find = (kind, name) => [...document.querySelectorAll("td a")].find((one) => one.innerText.startsWith(name) && one.closest("tr").innerText.includes(kind));
    await page.waitForFunction(`(${find})(${JSON.stringify(kind)}, ${JSON.stringify(name)})`, soon);
    await page.evaluate(`(${find})(${JSON.stringify(kind)}, ${JSON.stringify(name)}).click()`);
    await page.waitForSelector(".drawer .fields", soon);
  };

  await page.setViewport(LOOKS[0][1]);
  await page.goto(link);
  await page.waitForFunction(() => document.querySelector(".rail"), soon);
  await visit("?view=table");
  await openObject("Dock", "low");
  await canPress("Close");
  const offered = await buttons();
  await press(page, ".actions button", "Close");
  await page.waitForSelector("dialog[open]", soon);
  const dialog = await page.$eval("dialog[open]", (all) => all.innerText);
  const says = dialog.includes("Closes the dock until somebody opens it.") && dialog.includes("declares this action");
  const command = dialog.includes(`patch docks.harbour.example low --type merge -p '{"spec":{"closed":true,"note":"low is closed"}}'`);
  await look("declared-action");
  await press(page, "dialog[open] button", "Close");
  await untilReads(page, "Close: the cluster took it");
  await canPress("Open");
  const then = await buttons();
  // The command line opens it again; then nobody may change anything.
  await requestNext(page, "closed");
  const isBounded = async () => {
    const { session } = await (await fetch("/api/session")).json();
    const all = await (await fetch("/api/v1/tokens", { headers: { "X-CSRF-Token": session.csrf_token } })).json();
    return all.items.some(({ name }) => name === "bounded");
  };
  await page.waitForFunction(isBounded, { polling: 500, timeout: 120_000 });
  const missing = await namesMissing(page, page.url(), /missing: patch docks\.harbour\.example in .*limited to the verbs/);
  await look("declared-missing");
  await visit("?view=table");
  await page.waitForFunction(() => !document.querySelector(".drawer"), soon);
  await openObject("Pod", "web-");
  await page.click("#tab-shell");
  await page.waitForFunction(() => /missing: create pods\/exec in/.test(document.querySelector("#no-shell")?.innerText ?? ""), soon);
  const noShell = await page.$eval(".shell button.primary", (button) => button.disabled);
  await look("no-shell");
  return { offered, says, command, then, missing, noShell, problems, violations };
};
