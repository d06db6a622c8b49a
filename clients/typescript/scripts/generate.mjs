// Generates src/proto from clients/proto. Usage: node scripts/generate.mjs [OUTPUT]
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const output = resolve(process.argv[2] ?? join(here, "src/proto"));
const scratch = mkdtempSync(join(tmpdir(), "tidegate-"));
const plugin = {
  local: join(here, "node_modules/.bin/protoc-gen-es"),
  out: scratch,
  opt: ["target=ts", "import_extension=js"],
};
const template = JSON.stringify({ version: "v2", plugins: [plugin] });
execFileSync(join(here, "node_modules/.bin/buf"), ["generate", resolve(here, "../proto"), "--template", template], {
  stdio: "inherit",
});
cpSync(join(scratch, "tidegate/client/v1/rls_pb.ts"), join(output, "rls_pb.ts"));
rmSync(scratch, { recursive: true });
