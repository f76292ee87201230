// A pod crashes again and again after a push: from what is wrong to the pod, and from there to the commit that has brought it about.

export default async (open, { port, link, environment, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const [problems, violations] = [[], []];
  const page = await watched(await browser.newPage(), problems);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: [LOOKS[0], LOOKS[3]], fits: true });
  const text = (selector) => page.$eval(selector, (one) => one.innerText.trim());

  await page.goto(link);
  await untilReads(page, "Nothing is wrong");
  await requestNext(page, "push");
  // What is wrong names the pod, in the kubelet's words.
  await page.waitForFunction(() => document.querySelector(".group .culprit")?.innerText.includes("because of Pod") && document.querySelector(".group .why")?.innerText.includes("CrashLoopBackOff"), soon);
  const culprit = (await page.$eval(".group .culprit .muted code", (one) => one.innerText)).trim();
  const why = (await text(".group .why")).includes("CrashLoopBackOff");
  await look("crash");
  await page.click(".group");
  await page.waitForFunction((environment) => location.pathname.endsWith(environment) && document.querySelector(".place-head .facts a code"), soon, environment);
  await page.waitForFunction((pod) => [...document.querySelectorAll(".node-name")].some((one) => one.innerText === pod), soon, culprit);
  const head = await text(".place-head .facts a code");
  await page.evaluate((pod) => [...document.querySelectorAll(".node")].find((one) => one.innerText.includes(pod)).click(), culprit);
  await page.waitForSelector(".drawer .fields", soon);
  const restarts = /Restarts\s*6/.test(await text(".drawer .fields"));
  await look("crash-pod");
  // The commit that is named leads to what became of it, and that to the pod.
  await page.click(".place-head .facts a:has(code)");
  await page.waitForSelector(".commit-view h2", soon);
  const commit = await text(".commit-view h2");
  await clickOn(page, "What followed from it", ".commit-view");
  await page.waitForFunction((pod) => [...document.querySelectorAll(".chain-row")].some((one) => one.innerText.includes(pod)), soon, culprit);
  await look("crash-chain");
  return { culprit, why, head, restarts, commit, chain: culprit, problems, violations };
};
