/** Fields that differ in one object: what each was, and what it is. */
export function Changes({ fields }: { fields: { path: string; before?: string | null | undefined; after?: string | null | undefined }[] }) {
  return (
    <dl class="changes">
      {fields.map(({ path, before, after }) => (
        <div key={path}>
          <dt>
            <code>{path}</code>
          </dt>
          <dd>
            {before != null && <del aria-label={`before: ${before}`}>{before}</del>}
            {after != null && <ins aria-label={`after: ${after}`}>{after}</ins>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
