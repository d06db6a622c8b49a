"""Generates src/tidegate/_proto from clients/proto.

Usage: python scripts/generate.py [OUTPUT]

The generator is pinned to the oldest protobuf that the package supports: generated code refuses runtimes older than
its own, and accepts newer ones.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
PROTOS = PACKAGE.parent / "proto"
PINNED = ["grpcio-tools==1.62.3", "mypy-protobuf==3.6.0", "setuptools<80"]


def generate(output: Path) -> None:
    """Write the generated modules into a directory."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "venv"
        venv.create(environment, with_pip=True)
        binaries = environment / "bin"
        pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PINNED], check=True)
        generated = Path(scratch) / "generated"
        generated.mkdir()
        subprocess.run(
            [
                str(binaries / "python"),
                "-m",
                "grpc_tools.protoc",
                f"--proto_path={PROTOS}",
                f"--plugin=protoc-gen-mypy={binaries / 'protoc-gen-mypy'}",
                f"--python_out={generated}",
                f"--mypy_out=quiet:{generated}",
                "tidegate/client/v1/rls.proto",
            ],
            check=True,
        )
        output.mkdir(parents=True, exist_ok=True)
        for name in ("rls_pb2.py", "rls_pb2.pyi"):
            text = (generated / "tidegate/client/v1" / name).read_text()
            (output / name).write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE / "src/tidegate/_proto")
