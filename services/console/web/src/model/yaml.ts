const PLAIN = /^[A-Za-z_./][\w./@ -]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "~", "y", "n"]);

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  const isPlain = PLAIN.test(value) && !WORDS.has(value.toLowerCase()) && !/\s$|: | #/.test(value);
  return isPlain ? value : JSON.stringify(value);
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

/** A value as YAML that means the same. */
export function yaml(value: unknown, indent = ""): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return `${indent}[]\n`;
    return value
      .map((item) => {
        const text = yaml(item, `${indent}  `);
        return `${indent}- ${text.slice(indent.length + 2)}`;
      })
      .join("");
  }
  if (value !== null && typeof value === "object") {
    if (isEmpty(value)) return `${indent}{}\n`;
    return Object.entries(value)
      .map(([name, item]) => {
        const key = `${indent}${scalar(name)}:`;
        if (typeof item === "string" && item.includes("\n")) {
          // A block keeps lines readable where they can be kept exactly.
          const isExact = /^\S/.test(item) && !/[\r\u0000-\u0008]/.test(item) && !/\n\n$/.test(item) && item.endsWith("\n");
          if (isExact) return `${key} |\n${item.trimEnd().split("\n").map((line) => (line ? `${indent}  ${line}` : "")).join("\n")}\n`;
        }
        if (item === null || typeof item !== "object") return `${key} ${scalar(item)}\n`;
        if (isEmpty(item)) return `${key} ${Array.isArray(item) ? "[]" : "{}"}\n`;
        return `${key}\n${yaml(item, Array.isArray(item) ? indent : `${indent}  `)}`;
      })
      .join("");
  }
  return `${indent}${scalar(value)}\n`;
}
