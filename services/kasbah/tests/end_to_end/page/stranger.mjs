// Somebody from another organization, who has every address, learns nothing: neither from what the page shows nor from what the server answers.

export default async (open, { port, link, router, ids, objects, stranger, secrets }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const names = [...secrets, ids.namespace];
  const owner = await browser.newPage();
  await owner.goto(link);
  await untilReads(owner, "Nothing is wrong");
  const address = `/environments/${ids.environment}`;
  await owner.goto(new URL(address, owner.url()).href);
  await owner.waitForFunction(() => document.querySelector(".node-name"), soon);
  // What the stranger must not see is there to be seen.
  const ownerSees = await owner.evaluate((name) => document.body.innerText.includes(name), ids.namespace);

  const page = await watched(await (await browser.createBrowserContext()).newPage(), problems, isRefusal);
  const [told, answered, visited] = [[], [], []];
  page.on("response", async (response) => {
    const isStream = (response.headers()["content-type"] ?? "").includes("event-stream");
    if (isStream || !response.url().includes("/api/")) return;
    const text = await response.text().catch(() => "");
    // A refusal names what was asked for.
    const asked = `${decodeURIComponent(response.url())} ${response.request().postData() ?? ""}`;
    for (const name of names) if (text.includes(name) && !asked.includes(name)) answered.push(`${asked.slice(0, 160)}: ${name}`);
  });
  await page.goto(new URL("/", owner.url()).href);
  await signInWith(page, stranger);
  await untilLive(page);
  const look = async (at) => {
    const text = await page.evaluate(() => `${document.title} ${document.body.innerText}`);
    // A namespace stands in the address that the stranger has typed.
    const typed = decodeURIComponent(at);
    for (const name of names) if (text.includes(name) && !typed.includes(name)) told.push(`${at}: ${name}`);
    visited.push(at);
  };
  for (const one of addressesOf(router, ids, objects)) await eachTab(page, one, look);
  return { ownerSees, told, answered: [...new Set(answered)], visited: visited.length > 20, problems };
};
