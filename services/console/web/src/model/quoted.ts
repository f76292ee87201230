const PLAIN = /^[\w@%+=:,./-]+$/;

/** A word of a command, as a shell takes it. */
export const quoted = (text: string) => (PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
