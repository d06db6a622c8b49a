// Generates src/proto from clients/proto. Usage: node scripts/generate.mjs [OUTPUT]
//
// Needs the protoc of grpcio-tools (`pip install grpcio-tools`); PYTHON is the interpreter that has it, else python3.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const output = resolve(process.argv[2] ?? join(root, "src/proto"));
const scratch = mkdtempSync(join(tmpdir(), "tidegate-"));
try {
  execFileSync(
    process.env["PYTHON"] ?? "python3",
    [
      ...["-m", "grpc_tools.protoc"],
      `--plugin=protoc-gen-es=${join(root, "node_modules/.bin/protoc-gen-es")}`,
      `--es_out=${scratch}`,
      "--es_opt=target=ts,import_extension=js",
      `--proto_path=${resolve(root, "../proto")}`,
      "tidegate/client/v1/rls.proto",
    ],
    { stdio: "inherit" },
  );
  cpSync(join(scratch, "tidegate/client/v1/rls_pb.ts"), join(output, "rls_pb.ts"));
} finally {
  rmSync(scratch, { recursive: true });
}
