// A session is revoked from elsewhere while somebody looks at an object: the page says so, and has nothing of what it showed.

const isExpected = (text) => /^Failed to load resource: .* status of 40[13]/.test(text);

export default async (open, { port, link, environment, enough, secrets, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems, isExpected);
  await page.goto(link);
  await untilReads(page, "Nothing is wrong");
  await page.goto(new URL(`/environments/${environment}?view=table`, page.url()).href);
  await untilLists(page, "hostile");
  await press(page, "td a", "hostile");
  await page.waitForSelector(".drawer .fields", soon);
  await page.click("#tab-yaml");
  await page.waitForSelector(".drawer .yaml", soon);
  /** Which of the secrets are anywhere in the document: in texts, attributes and fields. */
  const readable = () =>
    page.evaluate((secrets) => {
      const fields = [...document.querySelectorAll("input, textarea")].map((one) => one.value).join(" ");
      const all = `${document.documentElement.outerHTML} ${fields} ${document.title}`;
      return secrets.filter((secret) => all.includes(secret));
    }, secrets);
  const before = (await readable()).includes("hostile");
  await requestNext(page, enough);
  await page.waitForSelector(".sign-in", soon);
  const heading = (await page.$eval("h1", (h1) => h1.innerText)).replace(/^K\s*/, "");
  const says = (await page.$eval("[role=alert]", (one) => one.innerText)).startsWith("You were signed out");
  await lookAt(page, "revoked", { axe, pictures, violations, looks: [LOOKS[0], LOOKS[3]], fits: true });
  const title = await page.title();
  const afterwards = await readable();
  // Nor does the browser keep it for the page.
  const kept = await page.evaluate(async (secrets) => {
    const cached = await caches.keys().catch(() => []);
    const all = JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage }) + cached.join(" ") + (await indexedDB.databases()).map(({ name }) => name).join(" ");
    return secrets.filter((secret) => all.includes(secret));
  }, secrets);
  await page.goBack();
  await page.waitForSelector(".sign-in", soon);
  const afterBack = await readable();
  return { before, heading, says, title, readable: afterwards, kept, afterBack, problems, violations };
};
