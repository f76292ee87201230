import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const MEDIA = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/** Compresses what was built, and lists it for the server in `files.rs`: paths, media types, and each form of each file. */
function listedForTheServer() {
  let folder = "";
  return {
    name: "listed-for-the-server",
    apply: "build",
    configResolved: (config) => {
      folder = join(config.root, config.build.outDir);
    },
    closeBundle: async () => {
      const files = (await readdir(folder, { recursive: true })).filter((file) => MEDIA[file.split(".").at(-1)]);
      const entries = [];
      for (const file of files.sort()) {
        const bytes = await readFile(join(folder, file));
        await writeFile(join(folder, `${file}.gz`), gzipSync(bytes, { level: 9 }));
        const params = {
          [constants.BROTLI_PARAM_QUALITY]: 11,
          [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
        };
        await writeFile(join(folder, `${file}.br`), brotliCompressSync(bytes, { params }));
        const form = (ending) => `include_bytes!("${file}${ending}")`;
        entries.push(
          `    File {\n        path: "/${file}",\n        media: "${MEDIA[file.split(".").at(-1)]}",\n        plain: ${form("")},\n` +
            `        gzip: ${form(".gz")},\n        brotli: ${form(".br")},\n    },\n`,
        );
      }
      await writeFile(join(folder, "files.rs"), `// Written by \`npm run build\`.\n&[\n${entries.join("")}]\n`);
    },
  };
}

export default defineConfig({
  plugins: [listedForTheServer()],
  build: {
    target: "es2023",
    cssTarget: ["chrome123", "firefox128", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/api": { target: process.env.KASBAH_PAGE ?? "http://127.0.0.1:8440" } } },
});
