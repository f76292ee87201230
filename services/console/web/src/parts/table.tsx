import type { ComponentChildren } from "preact";

/** A table that scrolls by itself; the column `wide` comes last and takes what is left. */
export function PlainTable({ label, columns, wide, children }: { label: string; columns: string[]; wide?: string; children: ComponentChildren }) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label={label}>
      <table class="plain">
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
            {wide && (
              <th scope="col" class="wide">
                {wide}
              </th>
            )}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
