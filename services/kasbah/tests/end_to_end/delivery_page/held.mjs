// A bundle that would delete much is held: what it would delete is seen before it is confirmed.

export default async (open, given) => {
  const { page, problems, violations, reads, click, look, goes } = await signedIn(open, given);
  const text = (selector) => page.$eval(selector, (one) => one.innerText.trim());
  await goes("/delivery");
  await page.waitForSelector(".source-line", soon);
  await reads("Held");
  const status = await text(".source-line .line-status");
  await page.evaluate(() => document.querySelector(".source-line").click());
  await page.waitForFunction(() => [...document.querySelectorAll(".actions button")].some((one) => one.innerText.startsWith("Confirm ")), soon);
  await look("source-held");
  await page.evaluate(() => [...document.querySelectorAll(".actions button")].find((one) => one.innerText.startsWith("Confirm ")).click());
  await page.waitForSelector("dialog[open] [type=submit]", soon);
  // Nothing can be confirmed that was not seen.
  const waits = await page.$eval("dialog[open]", (one) => one.querySelector("[type=submit]").disabled || Boolean(one.querySelector(".consequence")));
  await page.waitForSelector("dialog[open] .consequence", soon);
  const deletes = await text("dialog[open] .consequence h2");
  const command = await text("dialog[open] .command code");
  await look("confirm-held");
  await page.click("dialog[open] [type=submit]");
  await page.waitForSelector("dialog[open] [role=status]", soon);
  await click("Close", "dialog[open]");
  await page.waitForFunction(() => document.querySelector(".place-head .status")?.innerText.trim() === "In sync", soon);
  const after = await text(".place-head .status");
  await look("source-confirmed");
  return { status, waits, deletes, command, after, problems, violations };
};
