// Writes the same modules for `require` into cjs/, before npm packs: one line for each import and export, nothing else changes.
//
//   node commonjs.mjs

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const MODULES = ["dpsql-plan", "dpsql-client", "dpsql-rows", "dpsql-storage"];
const IMPORT = /^import \{ ([\w, ]+) \} from "(\.\/[\w-]+)\.js";$/gm;
const AGAIN = /^export \{ ([\w, ]+) \};$/gm;
const DECLARED = /^export ((?:async )?function\*? |const |class )(\w+)/gm;

function converted(text, name) {
  const names = [...text.matchAll(DECLARED)].map((match) => match[2]);
  for (const match of text.matchAll(AGAIN)) names.push(...match[1].split(", "));
  const body = text
    .replace(IMPORT, 'const { $1 } = require("$2.cjs");')
    .replace(AGAIN, "")
    .replace(DECLARED, "$1$2");
  if (/^(import|export)\b/m.test(body)) throw new Error(`${name}: an import or export that is not on one line`);
  return `"use strict";\n${body}\nmodule.exports = { ${names.join(", ")} };\n`;
}

mkdirSync(new URL("cjs", import.meta.url), { recursive: true });
for (const name of MODULES) {
  const text = readFileSync(new URL(`${name}.js`, import.meta.url), "utf8");
  writeFileSync(new URL(`cjs/${name}.cjs`, import.meta.url), converted(text, name));
  if (name === "dpsql-plan") continue; // nobody imports it by name
  const types = readFileSync(new URL(`${name}.d.ts`, import.meta.url), "utf8");
  writeFileSync(new URL(`cjs/${name}.d.cts`, import.meta.url), types.replace(/"\.\/([\w-]+)\.js"/g, '"./$1.cjs"'));
}
