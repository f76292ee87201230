// Everything that somebody else writes is text, in every view and each of its tabs: it is seen, and nothing of it is executed.

export default async (open, { port, link, router, ids, objects, expected }) => {
  const browser = (await open(port)).browser();
  const [problems, wrong, visited] = [[], [], []];
  const page = await watched(await browser.newPage(), problems, isRefusal);
  // What a careless page would put into its title.
  await page.evaluateOnNewDocument(() => (window.name = "stolen"));
  page.on("dialog", (dialog) => (wrong.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
  await page.setViewport(LOOKS[0][1]);
  await page.goto(link);
  await untilLive(page);
  const seen = new Set();
  const look = async (at) => {
    const { found, words } = await page.evaluate((expected) => {
      const all = [...document.querySelectorAll("*")];
      const strange = (one) =>
        ["IMG", "IFRAME", "OBJECT", "EMBED"].includes(one.tagName) ||
        (one.tagName === "SCRIPT" && !(one.src.startsWith(`${location.origin}/`) && one.text === "")) ||
        one.getAttributeNames().some((name) => name.startsWith("on")) ||
        (one.tagName === "A" && one.hasAttribute("href") && !["http:", "https:"].includes(one.protocol));
      const found = all.filter(strange).map((one) => one.outerHTML.slice(0, 200));
      if (!/^(\d+ wrong · )?Kasbah$/.test(document.title)) found.push(`the title is ${document.title}`);
      // Nor does it take more room than there is.
      const wide = document.documentElement.scrollWidth - innerWidth;
      if (wide > 0) found.push(`${wide} px too wide`);
      const text = document.body.innerText;
      return { found, words: expected.filter((word) => text.includes(`<img src=x onerror=document.title=name>${word}`)) };
    }, expected);
    wrong.push(...found.map((one) => `${at}: ${one}`));
    for (const word of words) seen.add(word);
    visited.push(at);
  };
  for (const address of addressesOf(router, ids, objects)) await eachTab(page, address, look);
  // The content of events, as JSON.
  await page.goto(new URL("/history", page.url()).href);
  await page.waitForSelector(".event", soon);
  for (const number of [0, 1, 2, 3, 4, 5]) {
    await page.evaluate((number) => document.querySelectorAll(".event")[number]?.click(), number);
    await page.waitForFunction(() => document.querySelector(".drawer"), soon);
    await isSettled(page);
    await look(`/history, event ${number}`);
  }
  // What is found by its words.
  await page.keyboard.press("/");
  await page.waitForSelector(".palette input", soon);
  await page.keyboard.type("<img");
  await isSettled(page);
  await look("search");
  return { unseen: expected.filter((word) => !seen.has(word)), wrong, visited, problems };
};
