// Builds dist/esm and dist/cjs from src: the same sources, compiled once for each module system.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const compiler = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const dist = join(root, "dist");

rmSync(dist, { recursive: true, force: true });
for (const [format, type] of [
  ["esm", "module"],
  ["cjs", "commonjs"],
]) {
  // The nearest package.json decides the module system of a source file, so each format compiles a copy with its own.
  const scratch = mkdtempSync(join(root, `.build-${format}-`));
  try {
    cpSync(join(root, "src"), join(scratch, "src"), { recursive: true });
    const manifest = JSON.stringify({ type });
    writeFileSync(join(scratch, "package.json"), manifest);
    symlinkSync(join(root, "node_modules"), join(scratch, "node_modules"), "junction");
    const compilerOptions = {
      noEmit: false,
      declaration: true,
      verbatimModuleSyntax: type === "module",
      isolatedModules: true,
      rootDir: "src",
      outDir: join(dist, format),
      paths: {},
    };
    const config = { extends: join(root, "tsconfig.json"), compilerOptions, include: ["src"] };
    writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(config));
    execFileSync(process.execPath, [compiler, "--project", scratch], { stdio: "inherit" });
    mkdirSync(join(dist, format), { recursive: true });
    writeFileSync(join(dist, format, "package.json"), manifest + "\n");
  } finally {
    rmSync(scratch, { recursive: true });
  }
}
