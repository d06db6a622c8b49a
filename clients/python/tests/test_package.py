"""The package as users get it: generated code, the built wheel in an empty environment, the README's first lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.servers import BINARY, Server

PACKAGE = Path(__file__).resolve().parent.parent

needs_registry = pytest.mark.skipif(
    "python" not in os.environ.get("TIDEGATE_REQUIRE", "").split(","),
    reason="installs from the package registry; set TIDEGATE_REQUIRE=python",
)


def test_the_code_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    with Server(BINARY, "serve", "--listen", "127.0.0.1:0", "--log-format", "json") as server:
        for block in blocks:
            exec(block.replace("127.0.0.1:8081", server.address), names)


@needs_registry
def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PACKAGE / "scripts/generate.py"), str(tmp_path)], check=True)
    for name in ("rls_pb2.py", "rls_pb2.pyi"):
        committed = (PACKAGE / "src/tidegate/_proto" / name).read_text()
        assert committed == (tmp_path / name).read_text(), f"{name} is stale; run scripts/generate.py"


@needs_registry
def test_the_readme_works_with_the_built_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(PACKAGE)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = (tmp_path / "dist").iterdir()
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True)
    first = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert first is not None
    with Server(BINARY, "serve", "--listen", "127.0.0.1:0", "--log-format", "json") as server:
        program = first.group(1).replace("127.0.0.1:8081", server.address)
        printed = ""
        # The demo rule admits 5 a minute: on a slow machine the first hit may fit again.
        for expected in ({"True 4 None"}, {"True 3 None", "True 4 None"}):
            ran = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
            assert ran.stdout.strip() in expected
            printed += ran.stdout
    transcript = os.environ.get("TIDEGATE_README_TRANSCRIPT")
    if transcript:
        Path(transcript).write_text(f"{first.group(1)}\nOutput of two runs:\n{printed}")
    assert BINARY.exists()
