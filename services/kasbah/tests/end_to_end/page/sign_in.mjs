// Somebody signs in with their company's identity provider, and comes back to where they wanted to go. Others try to end that sign-in, or to be them.

export default async (open, { port, origin, issuer, person, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const look = (page, name) => lookAt(page, name, { axe, pictures, violations, looks: [LOOKS[0], LOOKS[3]], fits: true });
  // The provider's own pages load a font from elsewhere.
  const page = await watched(await browser.newPage(), problems, (text) => text.includes("ERR_NAME_NOT_RESOLVED"));
  let callback = null;
  page.on("request", (request) => {
    if (request.url().startsWith(`${origin}/api/session/callback`)) callback = request.url();
  });

  await page.goto(`${origin}/agents?tab=sees`);
  await untilReads(page, "Sign in with company");
  await look(page, "sign-in-provider");
  await begins(page);
  await agrees(page, issuer, person, origin);
  await untilLive(page);
  const whereTo = page.url().slice(origin.length);
  const user = await page.$eval(".menu summary", (one) => one.innerText);
  const scriptsSee = await page.evaluate(() => document.cookie);
  const kept = (await page.cookies(`${origin}/api/session`)).map(({ name }) => name.replace(/-\d+$/, "")).filter((name) => name.startsWith("kasbah"));

  // The address that ended the sign-in ends nothing again, and nothing in another browser.
  const another = await watched(await (await browser.createBrowserContext()).newPage(), []);
  await another.goto(callback);
  await another.waitForSelector("[role=alert]", soon);
  const elsewhere = await another.$eval("[role=alert]", (alert) => alert.innerText);
  await signOut(page);
  await page.goto(callback);
  await page.waitForSelector("[role=alert]", soon);
  const again = await page.$eval("[role=alert]", (alert) => alert.innerText);
  await look(page, "sign-in-refused");

  // A person without an account here gets a refusal, and so does one who does not agree at the provider.
  const eve = await watched(await (await browser.createBrowserContext()).newPage(), []);
  await eve.goto(origin);
  await untilReads(eve, "Sign in with company");
  await begins(eve);
  await agrees(eve, issuer, "eve@example.org", origin);
  await eve.waitForSelector("[role=alert]", soon);
  const stranger = /^Not signed in: .*company/.test(await eve.$eval("[role=alert]", (alert) => alert.innerText));
  await begins(eve);
  await eve.waitForFunction((issuer) => location.href.startsWith(issuer), soon, issuer);
  const unwilling = await watched(await (await browser.createBrowserContext()).newPage(), []);
  await unwilling.goto(origin);
  await untilReads(unwilling, "Sign in with company");
  await begins(unwilling);
  await unwilling.waitForFunction((issuer) => location.href.startsWith(issuer), soon, issuer);
  await unwilling.goto(`${unwilling.url()}/abort`);
  await unwilling.waitForSelector("[role=alert]", soon);
  const refusal = (await unwilling.$eval("[role=alert]", (alert) => alert.innerText)).startsWith("Not signed in: the identity provider company answered: ");
  return { whereTo, user, scriptsSee, kept, again, elsewhere, stranger, refusal, problems, violations };
};

const begins = (page) => press(page, ".providers button", "Sign in with company");

/** Signs in at the provider and agrees, until it leads back. */
async function agrees(page, issuer, person, origin) {
  await page.waitForFunction((issuer) => location.href.startsWith(issuer) && document.querySelector("input[name=login]"), soon, issuer);
  await page.type("input[name=login]", person);
  await page.type("input[name=password]", "any");
  await page.click("[type=submit]");
  await page.waitForFunction((origin) => location.href.startsWith(origin) || (!document.querySelector("input[name=login]") && document.querySelector("[type=submit]")), soon, origin);
  if (page.url().startsWith(issuer)) await page.click("[type=submit]");
  await page.waitForFunction((origin) => location.href.startsWith(origin), soon, origin);
}
