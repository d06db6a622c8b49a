//! The TypeScript client: vitest, tsc, eslint, prettier, typedoc.

use super::Language;
use crate::clients::{bench::Bench, faults::Faults};

pub(super) const LANGUAGE: Language = Language {
    name: "TypeScript",
    toolchain: "node",
    folder: "typescript",
    probes: &[&["node", "--version"], &["npm", "--version"]],
    install: &[&["npm", "ci", "--silent"]],
    check: &[&["npm", "run", "--silent", "check"], &["npm", "run", "--silent", "docs"]],
    test: &["npx", "vitest", "run", "--reporter=tap-flat"],
    outcome: |line| {
        let (rest, has_passed) = match line.strip_prefix("ok ") {
            Some(rest) => (rest, true),
            None => (line.strip_prefix("not ok ")?, false),
        };
        let is_skipped = rest.contains("# SKIP");
        rest.split_once(" - ").filter(|_| !is_skipped).map(|(_, name)| (name, has_passed))
    },
    faults: Some(Faults {
        planted: &[
            ("src/engine.ts", "this.#denials.endFor(request);", ""),
            ("src/denials.ts", "wait < this.#keptNsMax ? wait : this.#keptNsMax", "wait"),
            (
                "src/decision.ts",
                "(wait + NANOS_PER_SECOND - 1n) / NANOS_PER_SECOND",
                "wait / NANOS_PER_SECOND",
            ),
            (
                "src/engine.ts",
                "response = await server.transport.call(message, { timeoutMs, metadata, signal: options.signal });",
                "const send = (): Promise<RateLimitResponse> =>
        server.transport.call(message, { timeoutMs, metadata, signal: options.signal });
      response = await send().catch((error: unknown) => {
        if (error instanceof CallError && error.code === \"UNAVAILABLE\") return send();
        throw error;
      });",
            ),
            (
                "src/keys.ts",
                "values.length > 1 || (request.joinsHeaders === true && value?.includes(\",\") === true)",
                "false",
            ),
            ("src/guard.ts", "status: 503", "status: 429"),
            ("src/slot.ts", "|| this.#isReleased) {", "|| this.#isReleased || isEnd) {"),
            ("src/engine.ts", "{ localDenials: false, ...others }", "others"),
            (
                "src/slot.ts",
                "this.cancel() : this.#sendHeld(cost, false, true)",
                "this.cancel() : this.#sendHeld(this.decision.ticketCost, false, true)",
            ),
            (
                "src/request.ts",
                "[\"renew\", ticket]], { cost: 1, limit }",
                "[\"renew\", ticket]], { cost: 0, limit }",
            ),
            ("src/guard.ts", "void slot.release();", ""),
        ],
        test: &[
            "npx",
            "vitest",
            "run",
            "--reporter=tap-flat",
            "-t",
            "headers|local denials|failures|middleware|slots:",
            "test/conformance.test.ts",
            "test/conformance.middleware.test.ts",
        ],
        linked: &["node_modules"],
        complete: |_, _| Ok(()),
    }),
    bench: Some(Bench {
        prepare: &[&["npm", "ci", "--silent"], &["npm", "run", "--silent", "build"]],
        run: &["node", "bench/bench.mjs"],
        local_denial_us_max: 5.0,
    }),
};

#[test]
fn outcomes_of_vitest_are_read() {
    super::check(
        &LANGUAGE,
        &[
            ("ok 3 - test/conformance.test.ts > failures: 'reset' # time=5ms", Some(("failures", true))),
            (
                "not ok 4 - test/conformance.test.ts > client addresses: 'x'",
                Some(("client addresses", false)),
            ),
            (
                "ok 5 - test/conformance.middleware.test.ts > middleware: 'missing_headers' with express",
                Some(("middleware", true)),
            ),
            ("ok 5 - test/package.test.ts > the README # SKIP", None),
        ],
    );
}
