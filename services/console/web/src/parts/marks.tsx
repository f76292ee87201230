/** Pictures of the rail; each has its word for screen readers. */
const MARKS = {
  overview: "M3 4h14v3H3zM3 9h9v3H3zM3 14h9v3H3zM14 9h3v8h-3z",
  environments: "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z",
  delivery: "M6.5 2 11 7H8v10H5V7H2zM13.5 18 9.9 13.9 11 12.9l1 1.1V3h3v10h3z",
  agents: "M6 2h2v4h4V2h2v4h2v4a6 6 0 0 1-5 5.9V19H9v-3.1A6 6 0 0 1 4 10V6h2z",
  history: "M10 2.5A7.5 7.5 0 1 1 2.5 10h1.8A5.7 5.7 0 1 0 6.5 5.5L8 7H3V2l2.2 2.2A7.5 7.5 0 0 1 10 2.5zM9.2 6h1.6v3.7l2.7 2.7-1.1 1.1-3.2-3.2z",
  access: "M7 3a4.5 4.5 0 1 1-1.6 8.7H5v0A4.5 4.5 0 0 1 7 3zm0 2.6a1.9 1.9 0 1 0 0 3.8 1.9 1.9 0 0 0 0-3.8zM10.5 9.5l7 7V19h-3v-2h-2v-2h-1.5l-2.3-2.3z",
  subscriptions: "M4 3a13 13 0 0 1 13 13h-2.2A10.8 10.8 0 0 0 4 5.2zM4 8a8 8 0 0 1 8 8H9.8A5.8 5.8 0 0 0 4 10.2zM6 12a2 2 0 1 1 0 4 2 2 0 0 1 0-4z",
  search: "M8.5 3a5.5 5.5 0 0 1 4.4 8.8l3.9 3.9-1.1 1.1-3.9-3.9A5.5 5.5 0 1 1 8.5 3zm0 1.6a3.9 3.9 0 1 0 0 7.8 3.9 3.9 0 0 0 0-7.8z",
};

export function Mark({ of }: { of: keyof typeof MARKS }) {
  return (
    <svg class="mark" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
      <path d={MARKS[of]} />
    </svg>
  );
}
