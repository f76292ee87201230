// Somebody opens a shell in a container, types and pastes, makes the window smaller, and ends it.

export default async (open, { port, link, path, axe, pictures }) => {
  const browser = (await open(port)).browser();
  const problems = [];
  const violations = [];
  const page = await watched(await browser.newPage(), problems);
  const look = (name) => lookAt(page, name, { axe, pictures, violations, looks: LOOKS.slice(0, 4) });
  const shows = (pattern) => page.waitForFunction((pattern) => new RegExp(pattern, "m").test(document.querySelector(".xterm-rows")?.innerText.replaceAll(" ", " ") ?? ""), soon, pattern).then(() => true);
  const type = async (text) => {
    await page.keyboard.type(text);
    await page.keyboard.press("Enter");
  };
  const state = (kind) => page.waitForFunction((kind) => document.querySelector(".terminal-frame")?.dataset.state === kind, soon, kind);

  await page.setViewport(LOOKS[0][1]);
  await page.goto(link);
  await page.waitForFunction(() => document.querySelector(".rail"), soon);
  await visitIn(page, `${path}?view=table`);
  const find = () => [...document.querySelectorAll("td a")].find((one) => one.innerText === "web" && one.closest("tr").innerText.includes("Pod"));
  await page.waitForFunction(find, soon);
  await page.evaluate(`(${find})().click()`);
  await page.waitForSelector("#tab-shell", soon);
  await page.click("#tab-shell");
  await page.waitForFunction(() => document.querySelector(".shell button.primary")?.disabled === false, soon);
  const command = await page.$eval(".shell", (all) => all.innerText.includes("kubectl exec -it") && all.innerText.includes("web -c web -- sh -c"));
  await page.click(".shell button.primary");
  await state("open").catch(async (error) => problems.push(`${error.message}: ${await page.$eval(".shell", (all) => all.innerText)}`));
  await type("echo $((6*7))-answers");
  const answers = await shows("^42-answers");
  // Keys of the page are the shell's in here, and a program cannot name the window.
  await type(String.raw`printf '\033]0;stolen\007g o / y\n'`);
  await shows("^g o / y");
  await page.evaluate(() => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", "echo one-$((1+1))\necho two-$((1+1))\n");
    document.querySelector(".xterm-helper-textarea").dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  });
  // A program that asks for brackets around what is pasted waits for this.
  await page.keyboard.press("Enter");
  const pasted = (await shows("^one-2")) && (await shows("^two-2"));
  await type(String.raw`printf '\033[38;2;0;0;255mblue\033[0m \033[31mred\033[0m\n'`);
  await shows("^blue red");
  const styled = await page.$eval(".xterm-rows span", (span) => getComputedStyle(span).display);
  // A letter may be an element of its own where the machine has no font whose letters are equally wide.
  const coloured = await page.$$eval(".xterm-rows span", (all) => new Set(all.map((one) => getComputedStyle(one).color)).size >= 3);
  await look("shell");
  await type("stty size");
  await shows("^[0-9]+ [0-9]+");
  const size = () => page.$eval(".xterm-rows", (rows) => rows.innerText.match(/^\d+ \d+/gm).at(-1));
  const before = await size();
  await page.setViewport({ width: 900, height: 600 });
  const within = String.raw`until [ "$(stty size)" != "${before}" ]; do :; done; echo; echo now-$(stty size | wc -w)`;
  await type(within);
  const resized = await shows("^now-2");
  await page.keyboard.press("F6");
  await page.waitForFunction(() => document.activeElement?.classList.contains("primary"), soon);
  const left = await page.evaluate(() => document.activeElement.innerText === "Open another shell");
  await page.focus(".xterm-helper-textarea");
  await type("exit 3");
  await state("ended");
  const ended = await page.$eval(".shell [role=status]", (said) => said.innerText);
  await look("shell-ended");
  return { answers, pasted, resized, styled, coloured, ended, left, command, title: !(await page.title()).includes("stolen"), problems, violations };
};
