// The way to the server is slow, loses what it carries, and breaks again and again: the page goes on by itself, and ends where the cluster is.

import { writeFile } from "node:fs/promises";

const LONGER = { ...soon, timeout: 120_000 };
/** As over a poor mobile connection: bytes a second, and milliseconds. */
const SLOW = { download: 60_000, upload: 30_000, latency: 200 };

export default async (open, { port, link, path, enough, noticed, expected, gone }) => {
  const page = await (await open(port)).browser().newPage();
  const isLive = () => document.querySelector(".live:not(.is-broken)")?.innerText.startsWith("live");
  await page.goto(link);
  await page.waitForFunction(isLive, LONGER);
  await visitIn(page, `${path}?view=table`);
  await page.waitForFunction(() => document.querySelector("td a"), LONGER);
  await page.evaluate(() => Object.assign(window, { isTheSame: true }));
  await page.emulateNetworkConditions(SLOW);
  await requestNext(page, enough);
  // At last no connection comes about at all, and it says since when it is not live.
  await page.waitForFunction(() => /^not live for \d+/.test(document.querySelector(".live.is-broken")?.innerText ?? ""), LONGER);
  const saysSince = true;
  const keeps = (await page.$$("td a")).length > 0;
  await writeFile(noticed, "");
  const isAll = (expected, gone) => {
    const names = [...document.querySelectorAll("td a")].map((one) => one.innerText);
    return expected.every((name) => names.includes(name)) && !names.includes(gone);
  };
  await page.waitForFunction(isAll, LONGER, expected, gone);
  await page.waitForFunction(isLive, LONGER);
  return { isTheSame: await page.evaluate(() => window.isTheSame === true), saysSince, keeps, all: true, isLive: await page.evaluate(isLive) };
};
