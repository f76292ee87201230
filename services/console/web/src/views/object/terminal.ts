// A terminal under the page's policy, which lets in no style that a script writes into the document. The library writes some: what they say
// goes into a stylesheet of the document's own, and a style of an element is set by its properties.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { pasted } from "../../model/exec.ts";

/** Lines that are kept above the window. */
const SCROLLBACK = 5_000;
const CONTRAST = 4.5;

/** An element that stands for a style element: its text becomes a stylesheet of the document while it is in there. */
function styleElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = document.createElement("span");
  element.hidden = true;
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text), get: () => "" });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

/** The library makes elements of the letters that have colours of their own, and sets their styles as attributes. */
HTMLSpanElement.prototype.setAttribute = function (this: HTMLSpanElement, name: string, value: string) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

const created = (name: string): HTMLElement => (name === "style" ? styleElement() : Document.prototype.createElement.call(document, name));

/** The document as most of the library is to see it. */
function documentForIt(): Document {
  return new Proxy(document, {
    get: (target, key) => {
      if (key === "createElement") return created;
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** What is done while the rest of the library, which takes the document itself, begins. */
function withStyles(begin: () => void): void {
  document.createElement = created as Document["createElement"];
  try {
    begin();
  } finally {
    Reflect.deleteProperty(document, "createElement");
  }
}

function coloursOf(element: HTMLElement) {
  const probe = document.createElement("span");
  element.append(probe);
  const colour = (name: string) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = { background: colour("ground"), foreground: colour("text"), cursor: colour("accent"), cursorAccent: colour("on-accent"), selectionBackground: colour("faint") };
  probe.remove();
  return colours;
}

export interface Hearing {
  data: (text: string) => void;
  resized: (columns: number, rows: number) => void;
  /** The key that leads out of it. */
  left: () => void;
}

/** A terminal in an element. */
export function terminalIn(element: HTMLElement, { data, resized, left }: Hearing) {
  const style = getComputedStyle(element);
  const terminal = new Terminal({
    documentOverride: documentForIt(),
    fontFamily: style.getPropertyValue("--mono"),
    fontSize: 13,
    scrollback: SCROLLBACK,
    // The library's colours are made for a dark ground.
    minimumContrastRatio: CONTRAST,
    screenReaderMode: true,
    theme: coloursOf(element),
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  withStyles(() => terminal.open(element));
  terminal.onData(data);
  terminal.onResize(({ cols, rows }) => resized(cols, rows));
  // The page's own keys are the shell's here, but for the one that leads out.
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "F6") return true;
    if (event.type === "keydown") left();
    return false;
  });
  const paste = (event: ClipboardEvent) => {
    event.preventDefault();
    event.stopPropagation();
    const text = event.clipboardData?.getData("text/plain");
    if (text) data(pasted(text, terminal.modes.bracketedPasteMode));
  };
  element.addEventListener("paste", paste, true);
  const watch = new ResizeObserver(() => fit.fit());
  watch.observe(element);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => (terminal.options.theme = coloursOf(element));
  dark.addEventListener("change", recolour);
  const chosen = new MutationObserver(recolour);
  chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  fit.fit();
  return {
    write: (bytes: Uint8Array) => terminal.write(bytes),
    focus: () => terminal.focus(),
    size: () => [terminal.cols, terminal.rows] as const,
    freeze: () => {
      terminal.options.disableStdin = true;
      terminal.options.cursorBlink = false;
    },
    dispose: () => {
      element.removeEventListener("paste", paste, true);
      watch.disconnect();
      chosen.disconnect();
      dark.removeEventListener("change", recolour);
      terminal.dispose();
    },
  };
}
