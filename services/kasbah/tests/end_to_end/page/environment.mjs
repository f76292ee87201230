// Somebody looks at an environment while it changes: as a tree, a board, a table and a timeline, now and before, and restarts a Deployment.

export default async (open, { port, link, environment, hostile, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);
  let wholeTrees = 0;
  page.on("request", (request) => (wholeTrees += (request.postData() ?? "").includes("query Tree")));

  const look = (name) => lookAt(page, name, { axe, pictures, violations });
  const say = (name) => requestNext(page, name);
  const reads = (text) => untilReads(page, text);
  const visit = (rest) => visitIn(page, `/environments/${environment}${rest}`);

  await page.goto(link);
  await reads("Nothing is wrong");
  await visit("");
  const names = () => page.$$eval(".node-name", (all) => all.map((one) => one.innerText));
  await page.waitForFunction(() => ["web", "hostile"].every((name) => [...document.querySelectorAll(".node-name")].some((one) => one.innerText === name)), soon);
  const tree = (await names()).filter((name) => ["web", "hostile"].includes(name));
  await page.focus('.node[tabindex="0"]');
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.activeElement?.querySelector(".node-kind"), soon);
  await page.waitForFunction(() => document.activeElement.querySelector(".node-kind").innerText === "ReplicaSet", soon);
  const keyboard = await page.evaluate(() => document.activeElement.querySelector(".node-kind").innerText);
  await look("tree");

  // What is made by hand stands in the tree, and no tree is loaded again.
  await say("tree seen");
  // With it there are so many ConfigMaps that they are one node.
  const isMade = () => [...document.querySelectorAll(".node-name")].some((one) => ["made-by-hand", "4 × ConfigMap"].includes(one.innerText));
  await page.waitForFunction(isMade, soon);
  const seenTrees = wholeTrees;
  await visit("?view=board");
  await page.waitForFunction(() => document.querySelectorAll(".square").length === 2 && document.querySelector(".share")?.innerText.includes("100 % ready"), soon);
  const board = { squares: (await page.$$(".square")).length, ready: await page.$eval(".share", (share) => share.innerText.split("\n")[0].trim()) };
  await look("board");
  await visit("?view=timeline");
  await page.waitForFunction(() => document.querySelector(".lane-track .stretch"), soon);
  const lane = await page.$$eval(".lane-name", (all) => all.some((one) => one.innerText.includes("web")));
  await look("timeline");

  // One object: what it is, what changed and how.
  await visit("?view=table");
  await untilLists(page, "made-by-hand");
  await press(page, "td a", "made-by-hand");
  await page.waitForSelector(".drawer .fields", soon);
  await say("change seen");
  const drawer = await page.$eval(".drawer h2", (h2) => h2.innerText);
  await page.click("#tab-history");
  await page.waitForFunction(() => [...document.querySelectorAll(".history li")].some((one) => one.innerText.includes("changed data.value")), soon);
  await page.click(".history .values");
  await page.waitForFunction(() => document.querySelector(".differences .is-added"), soon);
  const values = await page.$eval(".differences", (all) => all.innerText.includes("− 1") && all.innerText.includes("+ 2"));
  await look("history");

  // As it was two minutes ago nothing was there.
  const uid = new URL(page.url()).searchParams.get("object");
  await page.click('.drawer header .quiet');
  await page.waitForFunction(() => !document.querySelector(".drawer"), soon);
  const made = (await recentChanges(page)).filter((one) => one.uid === uid).at(-1).recordedAt;
  const before = new Date(Math.floor(Date.parse(made) / 1000) * 1000 - 1000).toISOString().replace(".000Z", "Z");
  await visit(`?view=table&t=${before}`);
  await page.waitForFunction(() => document.querySelector(".frame.is-past .place:not(.is-loading)") && [...document.querySelectorAll("td a")].some((one) => one.innerText === "web"), soon);
  const past = {
    isThere: await page.$$eval("td a", (all) => all.some((one) => one.innerText === "made-by-hand")),
    says: await page.$eval(".past-word", (word) => word.innerText.startsWith("as of")),
  };
  await look("past");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.search.includes("t=") && [...document.querySelectorAll("td a")].some((one) => one.innerText === "made-by-hand"), soon);
  const back = !(await page.$(".frame.is-past"));

  await press(page, "td a", "hostile");
  await page.waitForSelector(".drawer .fields", soon);
  await page.click("#tab-yaml");
  await page.waitForFunction((hostile) => document.querySelector(".yaml")?.innerText.includes(hostile), soon, hostile);
  const yaml = (await page.$$(".yaml img, .yaml script")).length === 0;
  await look("yaml");

  // The Deployment is as Git has it, and is restarted.
  await page.evaluate(() => [...document.querySelectorAll("td a")].find((one) => one.innerText === "web" && one.closest("tr").innerText.includes("Deployment")).click());
  await page.waitForFunction(() => document.querySelector(".drawer h2")?.innerText === "web" && document.querySelector(".drawer .yaml"), soon);
  await page.click("#tab-diff");
  await reads("It is as commit");
  await look("diff");
  const restartable = () => [...document.querySelectorAll(".actions button")].some((one) => one.innerText === "Restart" && !one.disabled);
  await page.waitForFunction(restartable, soon).catch(async (error) => problems.push(`${error.message}: ${await page.$eval(".actions", (all) => all.innerText)}`));
  await press(page, ".actions button", "Restart");
  await page.waitForSelector("dialog[open]", soon);
  await look("restart");
  await press(page, "dialog[open] button", "Restart");
  await reads("Restart: the cluster took it");
  // Once the right is taken away, the page names the one that is missing.
  await say("restarted");
  const missing = await namesMissing(page, page.url(), /missing: patch deployments\.apps in .*limited to the verbs/);
  await look("missing");
  const images = await page.evaluate(() => document.images.length);
  return { tree, keyboard, wholeTrees: seenTrees, board, lane, drawer, values, yaml, past, back, missing, images, problems, violations };
};
