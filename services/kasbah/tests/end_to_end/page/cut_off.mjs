// A cluster's agent reaches the server no more, and comes back: the page says so, shows what was known last as such, and misses nothing.

const LONGER = { ...soon, timeout: 90_000 };

export default async (open, { port, link, environment, unseen, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: [LOOKS[0], LOOKS[3]], fits: true });
  const visit = (to) => visitIn(page, to);
  const lists = (name) => untilLists(page, name, true, LONGER);

  await page.goto(link);
  await untilReads(page, "Nothing is wrong", LONGER);
  await visit(`/environments/${environment}?view=table`);
  await lists("hostile");
  const begun = Date.now();
  await requestNext(page, "cut");
  await page.waitForFunction(() => document.querySelector(".place-head .notice")?.innerText.startsWith("As it was known last"), LONGER);
  const staleAfter = Date.now() - begun;
  const head = await page.$eval(".place-head .notice", (one) => /\d/.test(one.innerText));
  await page.waitForSelector("tbody .shape.is-stale", LONGER);
  const hatched = Boolean(await page.$(".place-head .shape.is-stale"));
  const keeps = !(await page.$$eval("td a", (all, unseen) => all.some((one) => one.innerText === unseen), unseen));
  await look("cut-off");
  await visit("/");
  await untilReads(page, "Its agent lost its connection", LONGER);
  const overview = await page.$eval(".wrong", (one) => one.innerText.includes("Not connected") && one.innerText.includes("are shown as they were then"));
  await look("cut-off-overview");
  await visit("/agents");
  await page.waitForSelector(".agent-line", LONGER);
  const agents = await page.$eval(".agent-line .line-status", (one) => one.innerText.trim());

  await requestNext(page, "join");
  await page.waitForFunction(() => document.querySelector(".agent-line .line-status")?.innerText.trim() === "Connected", LONGER);
  await visit(`/environments/${environment}?view=table`);
  await lists(unseen);
  await page.waitForFunction(() => !document.querySelector(".place-head .notice") && !document.querySelector(".shape.is-stale"), LONGER);
  const back = true;
  return { staleAfter, head, hatched, keeps, overview, agents, back, problems, violations };
};
