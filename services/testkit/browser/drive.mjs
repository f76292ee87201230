// A headless Chromium, driven by script.mjs beside this file. Its default export is called with a function that opens an empty page
// of the origin http://localhost:<port> in the one browser, and with what given.json holds; what it returns is written to result.json.
// Arguments: the folder with Chromium and its libraries.
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

const unpacked = process.argv[2];
const here = import.meta.dirname;
const { default: script } = await import("./script.mjs");
const given = JSON.parse(await readFile(join(here, "given.json"), "utf8"));
// What comes with it looks for its fonts in a fixed place.
await writeFile(
  join(here, "fonts.conf"),
  `<fontconfig><dir>${join(unpacked, "fonts")}</dir><cachedir>${join(here, "fonts")}</cachedir></fontconfig>`,
);
const browser = await puppeteer.launch({
  executablePath: join(unpacked, "chromium"),
  headless: "shell",
  // It ends when the other side of the pipe does, however that ends.
  pipe: true,
  acceptInsecureCerts: true,
  userDataDir: join(here, "profile"),
  args: ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"],
  env: {
    ...process.env,
    HOME: here,
    LD_LIBRARY_PATH: join(unpacked, "al2023", "lib"),
    FONTCONFIG_FILE: join(here, "fonts.conf"),
  },
});
const open = async (port) => {
  const server = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html><title>A page</title>"));
  await new Promise((listening) => server.listen(port, "localhost", listening));
  const page = await browser.newPage();
  await page.goto(`http://localhost:${port}/`);
  return page;
};
try {
  const result = await script(open, given);
  await writeFile(join(here, "result.json"), JSON.stringify(result));
} finally {
  await browser.close();
}
// A socket that a page left open is no reason to wait.
process.exit(0);
