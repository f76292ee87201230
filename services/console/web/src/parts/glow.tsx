import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** Glows for a moment when what it shows becomes another. */
export function Glow({ of, children }: { of: string; children: ComponentChildren }) {
  const element = useRef<HTMLSpanElement>(null);
  const before = useRef(of);
  useEffect(() => {
    if (before.current === of) return;
    before.current = of;
    const glowing = element.current;
    if (!glowing) return;
    glowing.classList.remove("glows");
    void glowing.offsetWidth;
    glowing.classList.add("glows");
  }, [of]);
  return (
    <span class="glow" ref={element}>
      {children}
    </span>
  );
}
