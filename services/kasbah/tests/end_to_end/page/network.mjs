// Somebody looks at who sends traffic to whom in a namespace: as a drawing and as a table, as it changes, and at another moment.

export default async (open, { port, link, path, enough, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);
  const look = (name, looks) => lookAt(page, name, { axe, pictures, violations, ...(looks ? { looks } : {}) });
  const visit = (rest) => visitIn(page, `${path}${rest}`);
  const meshOf = (name) =>
    page.evaluate((name) => {
      const node = [...document.querySelectorAll(".network-node")].find((one) => one.querySelector(".mtls") && one.querySelector(".node-name").innerText === name);
      return node?.querySelector(".mtls").innerText ?? "";
    }, name);
  const meshBecomes = (text) => page.waitForFunction((text) => [...document.querySelectorAll(".network-node .mtls")].some((one) => one.innerText.includes(text)), soon, text);

  await page.setViewport(LOOKS[0][1]);
  await page.goto(link);
  await page.waitForFunction(() => document.querySelector(".rail"), soon);
  await visit("?view=network");
  await meshBecomes("mTLS strict");
  const columns = await page.$$eval(".network-head", (all) => all.map((one) => one.innerText));
  const mesh = await meshOf("web");
  const missing = await page.$$eval(".network-node", (all) => all.some((one) => one.innerText.includes("gone") && one.innerText.includes("is not there")));
  await look("network");
  // From the Service along the line to its workload, and back.
  await page.evaluate(() => [...document.querySelectorAll(".network-node")].find((one) => /^Service/.test(one.querySelector(".node-kind").innerText) && one.querySelector(".node-name").innerText === "web").focus());
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.activeElement?.querySelector(".mtls"), soon);
  const keyboard = await page.evaluate(() => document.activeElement.querySelector(".node-name").innerText);
  await look("network-lit", LOOKS.slice(0, 2));
  await visit("?view=network&as=table");
  await page.waitForFunction(() => document.querySelector("table.plain tbody tr"), soon);
  const rows = await page.$$eval("table.plain tbody tr", (all) => all.some((one) => /shop[^]*routes to[^]*web/.test(one.innerText)));
  await look("network-table");

  // What changes is seen, and what was is seen at that moment.
  await visit("?view=network");
  await meshBecomes("mTLS strict");
  await requestNext(page, enough);
  await meshBecomes("mTLS off");
  const off = await meshOf("web");
  const changed = (await recentChanges(page)).find(({ kind }) => kind === "PeerAuthentication").recordedAt;
  const then = new Date(Date.parse(changed) - 1).toISOString();
  await visit(`?view=network&t=${then}`);
  await meshBecomes("mTLS strict");
  const before = await meshOf("web");
  await look("network-past", LOOKS.slice(0, 2));
  await visit("?view=network");
  await meshBecomes("mTLS off");
  await page.evaluate(() => [...document.querySelectorAll("a.network-node")].find((one) => one.querySelector(".mtls")).click());
  await page.waitForSelector(".drawer h2", soon);
  const opened = await page.$eval(".drawer h2", (h2) => h2.innerText);
  await look("network-drawer", LOOKS.slice(0, 2));
  const images = await page.evaluate(() => document.images.length);
  return { columns, mesh, missing, keyboard, rows, off, before, opened, images, problems, violations };
};
