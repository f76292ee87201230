// Unpacks Chromium and the libraries that come with it into the folder that TMPDIR names.
import chromium from "@sparticuz/chromium";

await chromium.executablePath();
