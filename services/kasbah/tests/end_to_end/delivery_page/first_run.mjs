// Nothing is there; then an agent is registered, connects, and delivers: each step is ticked when it has happened.

export default async (open, given) => {
  const { page, problems, violations, reads, look, next, goes } = await signedIn(open, given);
  await goes("/agents");
  await reads("Three steps to the first delivery");
  const ticked = () => page.$$eval(".first-run .is-done", (all) => all.length);
  const comes = (number) => page.waitForFunction((number) => document.querySelectorAll(".first-run .is-done").length === number, soon, number);
  const done = [await ticked()];
  await look("first-run");
  await next("register");
  await comes(1);
  done.push(await ticked());
  await look("first-run-registered");
  // The overview shows the same.
  await goes("/");
  await reads("Three steps to the first delivery");
  await next("connect");
  await comes(2);
  done.push(await ticked());
  await next("push");
  // The third tick is the last: what was the first run is the overview from then on.
  await page.waitForFunction(() => document.querySelectorAll(".first-run .is-done").length === 3 || !document.querySelector(".first-run"), soon);
  done.push(3);
  await goes("/delivery");
  await reads("production/shop");
  await reads("In sync");
  await look("first-delivery");
  return { done, delivers: true, problems, violations };
};
