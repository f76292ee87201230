// Somebody compares an environment with what it was some moments ago: what came, what went, and which values changed.

export default async (open, { port, link, environment, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: [LOOKS[0], LOOKS[3]], fits: true });
  const compares = async (more) => {
    const address = new URL(`/history?${new URLSearchParams({ tab: "compare", environment, ...more })}`, page.url()).href;
    await page.goto(address);
    await page.waitForFunction(() => document.querySelector(".differences, .empty") && !document.querySelector(".skeleton"), soon);
  };
  const named = (title) =>
    page.$$eval(`section[aria-label="${title}"] li > span > code`, (all) => all.map((one) => one.innerText.split("/").at(-1)).sort());

  await page.goto(link);
  await untilReads(page, "Nothing is wrong");
  await page.goto(new URL(`/environments/${environment}?view=table`, page.url()).href);
  await untilLists(page, "goes");
  // Moments are whole seconds: the next one that begins is behind all that was made so far.
  const before = new Date(Math.ceil(Date.now() / 1000) * 1000).toISOString().replace(".000Z", "Z");
  await page.waitForFunction((at) => Date.now() > at + 500, soon, Date.parse(before));
  await requestNext(page, "change");
  await untilLists(page, "comes");
  await untilLists(page, "goes", false);
  await compares({ from: before });
  const summary = await page.$eval(".differences p", (one) => one.innerText);
  const [came, went, changed] = [await named("Came"), await named("Went"), await named("Changed")];
  const values = await page.$eval('section[aria-label="Changed"]', (one) => one.innerText.includes("data.value") && one.innerText.includes("1") && one.innerText.includes("2"));
  await look("moments");
  await compares({ from: before, to: before });
  const same = await page.evaluate(() => document.body.innerText.includes("Nothing differs between these two moments"));
  // A copied address shows the same.
  await compares({ from: before });
  const again = summary === (await page.$eval(".differences p", (one) => one.innerText));
  return { summary, came, went, changed, values, same, again, problems, violations };
};
