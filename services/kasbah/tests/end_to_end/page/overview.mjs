// Somebody signs in by a link, sees a Deployment become degraded with its reason, looks at it, and signs out.

const LONGER = { ...soon, timeout: 90_000 };

export default async (open, { port, link, token, hostile, enough, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);

  const look = (name) => lookAt(page, name, { axe, pictures, violations });
  const reads = (text) => untilReads(page, text, LONGER);
  const heading = () => page.$eval("h1", (h1) => h1.innerText);

  await page.goto(link);
  await reads("Nothing is wrong");
  await reads("live");
  const first = await heading();
  const isTokenInAddress = page.url().includes("kasbah_");
  const scriptsSee = await page.evaluate(() => document.cookie);
  await look("well");

  // Another tab hears of everything by the first one's connection.
  const second = await watched(await browser.newPage(), []);
  let streams = 0;
  second.on("request", (request) => (streams += request.headers().accept === "text/event-stream"));
  await second.goto(page.url());
  const isLive = () => document.querySelector(".live")?.innerText.startsWith("live") && document.body.innerText.includes("Nothing is wrong");
  await second.waitForFunction(isLive, LONGER);
  const sharesTheFeed = streams === 0;
  await page.bringToFront();

  // It is broken from here on, and nothing is loaded again.
  await requestNext(page, enough);
  await page.evaluate(() => Object.assign(window, { isTheSame: true }));
  await reads(`ErrImagePull: ${hostile}`);
  if (!(await page.evaluate(() => window.isTheSame))) problems.push("the page was loaded again");
  await page.waitForFunction(() => document.querySelector(".group .strip"), LONGER);
  const then = await heading();
  await look("wrong");

  // From the keyboard: the first row, and what is in it.
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#view-table", LONGER);
  await page.$eval("#view-table", (tab) => tab.click());
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length > 3, LONGER);
  const tables = (await page.$$eval("tbody tr", (rows) => rows.map((row) => row.innerText))).some((row) => row.includes("ErrImagePull"));
  await look("environment");
  await press(page, "td a", "web");
  await page.waitForFunction(() => document.querySelector(".drawer .chain"), LONGER);
  const drawer = await page.$eval(".drawer h2", (h2) => h2.innerText);
  await look("object");
  for (const tab of ["yaml", "relations", "history"]) {
    await page.click(`#tab-${tab}`);
    await page.screenshot({ path: `${pictures}/object-${tab}-1280.png` });
  }
  const images = await page.evaluate(() => document.images.length);
  await page.keyboard.press("Escape");
  await page.goto(new URL("/style", page.url()).href);
  await reads("Forbidden");
  await look("style");
  await page.goto(new URL("/", page.url()).href);
  await reads("What is wrong");

  // The link is good for nothing any more, and its page says so.
  const stranger = await watched(await (await browser.createBrowserContext()).newPage(), []);
  await stranger.goto(link);
  await stranger.waitForFunction(() => document.querySelector("[role=alert]"), LONGER);
  const again = (await stranger.$eval("[role=alert]", (alert) => alert.innerText)).startsWith("Not signed in");
  // A token that is typed in signs in as well.
  await signInWith(stranger, token);
  await stranger.waitForSelector(".group", LONGER);
  const typed = await stranger.$eval("h1", (h1) => h1.innerText);
  await signOut(stranger, LONGER);

  await signOut(page, LONGER);
  // The other tab takes over the connection, and hears that the session has ended.
  await second.bringToFront();
  await second.waitForSelector(".sign-in", LONGER);
  await page.bringToFront();
  const out = (await heading()).replace(/^K\s*/, "");
  await look("sign-in");
  return { first, then, sharesTheFeed, isTokenInAddress, scriptsSee, tables, drawer, images, again, typed, out, problems, violations };
};
