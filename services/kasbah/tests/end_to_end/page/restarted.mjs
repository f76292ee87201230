// The server ends and starts again under open pages, which say so, go on without being loaded again, and miss nothing.

import { writeFile } from "node:fs/promises";

const LONGER = { ...soon, timeout: 90_000 };

export default async (open, { port, link, path, enough, noticed, change, deleted }) => {
  const browser = (await open(port)).browser();
  const page = await browser.newPage();
  const reads = (text) => untilReads(page, text, LONGER);
  const isLive = () => document.querySelector(".live:not(.is-broken)")?.innerText.startsWith("live");
  await page.goto(link);
  await reads("What changed");
  await page.waitForFunction(isLive, LONGER);
  // Another tab shows the objects themselves.
  const objects = await browser.newPage();
  const lists = (name, isThere) => untilLists(objects, name, isThere, LONGER);
  await objects.goto(new URL(`${path}?view=table`, page.url()).href);
  await lists(deleted, true);
  for (const one of [page, objects]) await one.evaluate(() => Object.assign(window, { isTheSame: true }));
  await page.bringToFront();
  await requestNext(page, enough);
  await page.waitForSelector(".live.is-broken", LONGER);
  await writeFile(noticed, "");
  const whileBroken = await page.evaluate(() => document.body.innerText.includes("What changed"));
  const stays = await objects.$$eval("td a", (all, name) => all.some((one) => one.innerText === name), deleted);
  await reads(change);
  await reads(`ConfigMap ${deleted} was deleted`);
  await page.waitForFunction(isLive, LONGER);
  await lists(change, true);
  await lists(deleted, false);
  const same = await Promise.all([page, objects].map((one) => one.evaluate(() => window.isTheSame === true)));
  return { isTheSame: same.every(Boolean), isLive: await page.evaluate(isLive), whileBroken, stays };
};
