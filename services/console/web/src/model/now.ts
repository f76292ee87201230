import { computed, signal } from "@preact/signals";

/** The time that is shown, by the second. It stands still while nobody sees the page. */
export const now = signal(Date.now());

/** The same by the half minute, for what is drawn anew with it. */
export const lately = computed(() => Math.floor(now.value / 30_000) * 30_000);

setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => {
  now.value = Date.now();
});
