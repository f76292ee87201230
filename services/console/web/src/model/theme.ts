import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "kasbah-theme";
const kept = localStorage.getItem(KEY);

/** What a person chose. */
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");

effect(() => {
  if (theme.value === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEY);
  } else {
    document.documentElement.dataset.theme = theme.value;
    localStorage.setItem(KEY, theme.value);
  }
});
