//! The Python client: pytest, ruff, mypy, pdoc.

use super::Language;
use crate::clients::{bench::Bench, faults::Faults};

pub(super) const LANGUAGE: Language = Language {
    name: "Python",
    toolchain: "python",
    folder: "python",
    probes: &[&["python3", "--version"]],
    install: &[
        &["python3", "-m", "venv", ".venv"],
        &[".venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "pip>=25.1"],
        &[".venv/bin/pip", "install", "--quiet", "--group", "dev", "--editable", "."],
    ],
    check: &[
        &[".venv/bin/ruff", "format", "--check", "--quiet", "."],
        &[".venv/bin/ruff", "check", "--quiet", "."],
        &[".venv/bin/mypy"],
        &[
            "env",
            "DJANGO_SETTINGS_MODULE=django.conf.global_settings",
            ".venv/bin/python",
            "-Werror::UserWarning",
            "-mpdoc",
            "--output-directory=../../target/client-reference-python",
            "tidegate",
            "tidegate.aio",
            "tidegate.asgi",
            "tidegate.django",
            "tidegate.fastapi",
            "tidegate.flask",
            "tidegate.grpc",
            "tidegate.keys",
            "tidegate.local",
            "tidegate.metrics",
        ],
    ],
    test: &[".venv/bin/pytest", "--verbose", "--verbose", "--color=no"],
    outcome: |line| {
        let (name, rest) = line.strip_prefix("tests/")?.split_once(' ')?;
        match rest.split_whitespace().next()? {
            "PASSED" => Some((name, true)),
            "FAILED" | "ERROR" => Some((name, false)),
            _ => None,
        }
    },
    faults: Some(Faults {
        planted: &[
            ("src/tidegate/_engine.py", "self._denials.end_for(request)", "pass"),
            ("src/tidegate/_denials.py", "sent_ns + min(wait_ns, self._kept_ns_max)", "sent_ns + wait_ns"),
            ("src/tidegate/_decision.py", "return -(-nanos // _NANOS)", "return nanos // _NANOS"),
            (
                "src/tidegate/_sync.py",
                "            response = connection.stub(call.request.message(), timeout=call.timeout, metadata=call.metadata)
",
                "            send = lambda: connection.stub(call.request.message(), timeout=call.timeout)
            try:
                response = send()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                response = send()
",
            ),
            ("src/tidegate/keys.py", "if len(values) > 1 or (request.joins_headers and \",\" in values[0]):", "if False:"),
            ("src/tidegate/_guard.py", "return Refusal(503,", "return Refusal(429,"),
            (
                "src/tidegate/_slot.py",
                "if ticket is None or not self._is_held:",
                "if ticket is None or not self._is_held or is_end:",
            ),
            ("src/tidegate/_sync.py", "            local_denials=False,\n            **entries,", "            **entries,"),
            (
                "src/tidegate/_slot.py",
                "return self._begin(cost, is_end=True)",
                "return self._begin(self.decision.ticket_cost, is_end=True)",
            ),
            ("src/tidegate/_slot.py", "(\"renew\", ticket)), cost=1", "(\"renew\", ticket)), cost=0"),
            // Of gRPC, whose interceptor has an end of its own.
            (
                "src/tidegate/grpc.py",
                "        with outcome if isinstance(outcome, Slot) else contextlib.nullcontext():",
                "        with contextlib.nullcontext():",
            ),
        ],
        test: &[
            "env",
            "PYTHONPATH=src",
            ".venv/bin/pytest",
            "--verbose",
            "--verbose",
            "--color=no",
            "-k",
            "headers or local_denials or failures or middleware or slots",
            "tests/test_conformance.py",
            "tests/test_conformance_middleware.py",
            "tests/test_conformance_grpc.py",
        ],
        linked: &[".venv"],
        complete: |_, _| Ok(()),
    }),
    bench: Some(Bench {
        prepare: &[],
        run: &[".venv/bin/python", "scripts/bench.py"],
        local_denial_us_max: 5.0,
    }),
};

#[test]
fn outcomes_of_pytest_are_read() {
    super::check(
        &LANGUAGE,
        &[
            (
                "tests/test_conformance.py::test_vectors[sync-charging/a_peek] PASSED [ 1%]",
                Some(("vectors", true)),
            ),
            (
                "tests/test_conformance_middleware.py::test_middleware[missing_headers-flask] PASSED [ 1%]",
                Some(("middleware", true)),
            ),
            ("tests/test_conformance.py::test_headers[one_limit] FAILED [ 1%]", Some(("headers", false))),
            ("tests/test_client.py::test_a_unix_socket PASSED [ 1%]", Some(("own tests", true))),
            ("tests/test_package.py::test_the_readme SKIPPED (needs a registry) [ 1%]", None),
        ],
    );
}
