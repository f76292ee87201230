// All is well, then something breaks. Every page is looked at as it was, what happened is played until now, and the two moments are compared.

const LONGER = { ...soon, timeout: 90_000 };

export default async (open, { port, link, hostile, enough, first, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems);
  const look = (name, looks = [LOOKS[0], LOOKS[3]]) => lookAt(page, name, { axe, pictures, violations, looks, fits: true });
  const heading = () => page.$eval("h1", (h1) => h1.innerText);
  const key = async (...keys) => {
    for (const one of keys) await page.keyboard.press(one);
  };

  await page.goto(link);
  await untilReads(page, "Nothing is wrong");
  await untilReads(page, "live");
  const calm = new Date(Math.floor(Date.now() / 1000) * 1000).toISOString().replace(".000Z", "Z");
  await requestNext(page, enough);
  await untilReads(page, `ErrImagePull: ${hostile}`, LONGER);

  // As it was before. The moment goes along to every view.
  const visit = (to) => visitIn(page, to);
  await visit(`/?t=${calm}`);
  await untilReads(page, "Nothing was wrong");
  const then = await heading();
  await look("overview-past", LOOKS);
  await key("g", "e");
  await page.waitForSelector("tbody tr .status", soon);
  await untilReads(page, "Healthy");
  await key("g", "d");
  await untilReads(page, "By what the log has of commits");
  await page.waitForSelector(".source-line", soon);
  const source = await page.$eval(".source-line .line-commit code", (code) => code.innerText);
  await look("delivery-past");
  await page.click(".source-line");
  // The commit that broke it came later.
  await page.waitForFunction((source) => document.querySelector(".commit")?.innerText.includes(source), soon, source);
  await look("source-past");
  await key("g", "a");
  await page.waitForSelector(".agent-line", soon);
  const agent = await page.$eval(".agent-line .line-status", (one) => one.innerText.trim());
  await look("agents-past");
  await key("g", "c");
  await untilReads(page, "This view has no past");
  const noPast = true;
  const keeps = new URL(page.url()).searchParams.get("t") === calm;

  // Played until now: a moment is asked for once the one before it is there.
  await key("g", "o");
  await untilReads(page, "Nothing was wrong");
  let [asked, most] = [0, 0];
  const isOfMoment = (request) => (request.postData() ?? "").includes("query Unwell") && /"at":"20/.test(request.postData() ?? "");
  page.on("request", (request) => isOfMoment(request) && (most = Math.max(most, ++asked)));
  for (const event of ["requestfinished", "requestfailed"]) page.on(event, (request) => isOfMoment(request) && asked--);
  await page.select("[aria-label='How fast it is played']", "10");
  await page.evaluate(() => document.activeElement.blur());
  await key(" ");
  await page.waitForFunction(() => document.querySelector(".play[aria-pressed=true]"), soon);
  await page.waitForFunction((calm) => !new URLSearchParams(location.search).get("t")?.startsWith(calm), soon, calm);
  await look("playing", [LOOKS[0]]);
  await page.waitForFunction(() => !location.search.includes("t=") && document.querySelector(".play[aria-pressed=false]") && document.querySelector("h1").innerText === "What is wrong", LONGER);
  const played = true;

  // Both moments at once.
  await visit(`/?with=${calm}`);
  await page.waitForFunction(() => document.querySelector(".differing h2"), soon);
  const differs = [await heading(), await page.$eval(".differing h2", (h2) => h2.innerText)];
  await look("overview-compared", LOOKS);
  await page.evaluate(() => document.querySelector(".differing-place").click());
  await page.waitForSelector(".compared .consequence", soon);
  const environment = (await page.$eval(".compared", (all) => all.innerText)).includes("changed");
  await look("environment-compared");
  await page.focus(".handle.is-earlier");
  await key("ArrowLeft");
  await page.waitForFunction((calm) => !location.search.includes(encodeURIComponent(calm)), soon, calm);
  await page.evaluate(() => document.activeElement.blur());
  await key("Escape", "Escape");
  await page.waitForFunction(() => !location.search.includes("with=") && !document.querySelector(".frame.is-past"), soon);
  const back = true;
  return { then, keeps, source, agent, noPast, played, most, differs, environment, back, problems, violations };
};
