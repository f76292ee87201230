import { useRef, useState } from "preact/hooks";

/** Keeps the order of a list while a pointer is over it or the focus is in it: rows do not move away from a user who is about to choose one. */
export function useCalmOrder<T>(list: T[], key: (item: T) => string) {
  const [held, hold] = useState(false);
  const order = useRef<string[]>([]);
  const wanted = list.map(key);
  if (!held) order.current = wanted;
  const places = new Map(order.current.map((name, place) => [name, place]));
  const place = (item: T) => places.get(key(item)) ?? Number.MAX_SAFE_INTEGER;
  const shown = held ? [...list].sort((one, other) => place(one) - place(other)) : list;
  const moved = held ? shown.filter((item, at) => key(item) !== wanted[at]).length : 0;
  const reorder = () => {
    order.current = wanted;
    hold(false);
  };
  const hands = {
    onPointerEnter: () => hold(true),
    onPointerLeave: () => hold(false),
    onFocusIn: () => hold(true),
    onFocusOut: () => hold(false),
  };
  return { shown, moved, reorder, hands };
}
