// Somebody reads what the pods of a Deployment write, straight from the cluster.

export default async (open, { port, link, path, hostile, enough, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);
  const asked = [];
  page.on("request", (request) => request.url().includes("/log?") && asked.push(new URL(request.url())));
  const shows = (text) => page.waitForFunction((text) => document.querySelector(".log-lines")?.innerText.includes(text), soon, text);

  await page.setViewport(LOOKS[0][1]);
  await page.goto(link);
  await page.waitForSelector(".wrong", soon);
  await visitIn(page, `${path}?view=table`);
  const isThere = () => [...document.querySelectorAll("td a")].some((one) => one.innerText === "web" && one.closest("tr").innerText.includes("Deployment"));
  await page.waitForFunction(isThere, soon);
  await page.evaluate(() => [...document.querySelectorAll("td a")].find((one) => one.innerText === "web" && one.closest("tr").innerText.includes("Deployment")).click());
  await page.waitForSelector("#tab-logs", soon);
  await page.keyboard.press("l");
  await shows(hostile);
  const first = await page.$eval(".log-lines", (all) => all.innerText.trim().split("\n"));
  const escapes = first.filter((line) => /[\u0000-\u001f]/.test(line)).length;
  const linked = [...new Set(first.filter((line) => line.includes("linked")).map((line) => line.replace(/^.*?(?=linked)/, "")))];
  const links = (await page.$$(".log-lines a")).length;
  // No line is longer than what is kept of one, with the pod's name before it.
  const isCut = first.some((line) => line.endsWith("more characters")) && first.every((line) => line.length < 4300);
  const pods = new Set(asked.map(({ pathname }) => pathname)).size;
  await lookAt(page, "logs", { axe, pictures, violations, looks: LOOKS.slice(0, 2) });
  // What is written from here on is followed.
  await requestNext(page, enough);
  await shows("written later");
  await page.type(".logs input[type=search]", "later");
  await page.waitForFunction(() => !document.querySelector(".log-lines").innerText.includes("begun"), soon);
  const filtered = await page.$eval(".log-lines", (all) => all.innerText.trim().split("\n").every((line) => line.includes("written later")));
  await press(page, ".logs button", "Times");
  const times = await page.waitForFunction(() => /^2026-/.test(document.querySelector(".log-lines").innerText.trim()), soon).then(() => true);
  const isStraight = asked.every((url) => url.port !== new URL(page.url()).port && url.pathname.startsWith("/agents/"));
  const images = await page.evaluate(() => document.images.length);
  return { begun: first.filter((line) => line.endsWith("begun")).length, escapes, linked, links, isCut, pods, filtered, times, isStraight, images, problems, violations };
};
