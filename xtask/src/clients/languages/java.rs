//! The Java client: JUnit by Maven, google-java-format, javac -Xlint, Javadoc.

use super::Language;
use crate::clients::{bench::Bench, faults::Faults};

pub(super) const LANGUAGE: Language = Language {
    name: "Java",
    toolchain: "java",
    folder: "java",
    probes: &[&["javac", "--version"], &["mvn", "--version"]],
    install: &[],
    // What would be published, signed by a key of its own.
    check: &[&["./release-dry-run"]],
    // Formatting, lints and Javadoc are phases of it, and the last module tests what it installed.
    test: &["mvn", "--batch-mode", "--no-transfer-progress", "install"],
    outcome: |line| {
        let (rest, has_passed) = match line.strip_prefix("ok ") {
            Some(rest) => (rest, true),
            None => (line.strip_prefix("not ok ")?, false),
        };
        rest.split_once(" - ").map(|(_, name)| (name, has_passed))
    },
    faults: Some(Faults {
        planted: &[
            ("tidegate-client/src/main/java/io/tidegate/client/Decider.java", "denials.endFor(request);", ""),
            (
                "tidegate-client/src/main/java/io/tidegate/client/LocalDenials.java",
                "Math.min(saturatedNanos(wait), keptForNanos)",
                "saturatedNanos(wait)",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/ResponseHeaders.java",
                "wait.getSeconds() + (wait.getNano() > 0 ? 1 : 0)",
                "wait.getSeconds()",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/Decider.java",
                "        return attempt.failed(failure);\n",
                "        if (failure.getStatus().getCode() == io.grpc.Status.Code.UNAVAILABLE) {\n          try {\n            return attempt.answered(attempt.calls().blocking(request.message(), attempt.timeout));\n          } catch (StatusRuntimeException again) {\n            return attempt.failed(again);\n          }\n        }\n        return attempt.failed(failure);\n",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/middleware/Key.java",
                "if (values.size() > 1) {",
                "if (values.size() > 1_000) {",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/middleware/Guard.java",
                "refused(503, ",
                "refused(429, ",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/Slot.java",
                "|| wasReleased) {",
                "|| wasReleased || isEnd) {",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/Tidegate.java",
                "holdAsync(descriptors, options.localDenials(false))",
                "holdAsync(descriptors, options)",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/Slot.java",
                "send(checked, false, true)",
                "send(decision.ticketCost(), false, true)",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/Slot.java",
                "one.and(\"renew\", ticket).cost(1)",
                "one.and(\"renew\", ticket).cost(0)",
            ),
            (
                "tidegate-client/src/main/java/io/tidegate/client/middleware/Guard.java",
                "    slot.releaseAsync();\n",
                "",
            ),
        ],
        test: &[
            "mvn",
            "--batch-mode",
            "--no-transfer-progress",
            "--projects=tidegate-client",
            "-Dspotless.check.skip",
            "-Dtest=ConformanceTest#headers+localDenials*+failures+slots,MiddlewareTest#conformanceMiddlewareOf*",
            "test",
        ],
        linked: &[],
        complete: |_, _| Ok(()),
    }),
    bench: Some(Bench {
        prepare: &[&[
            "mvn",
            "--batch-mode",
            "--no-transfer-progress",
            "--quiet",
            "--projects=tidegate-client",
            "test-compile",
            "dependency:build-classpath",
            "-Dmdep.outputFile=target/classpath",
        ]],
        run: &[
            "sh",
            "-c",
            "cd tidegate-client/target && exec java -XX:+UseSerialGC -Xmx512m \
             -cp \"test-classes:classes:$(cat classpath)\" io.tidegate.client.Bench",
        ],
        local_denial_us_max: 2.0,
    }),
};

#[test]
fn outcomes_of_junit_are_read() {
    super::check(
        &LANGUAGE,
        &[
            ("ok 3 - ConformanceTest > localDenials: a_denial", Some(("local denials", true))),
            ("not ok 4 - TidegateTest > observersSeeEachDecision", Some(("own tests", false))),
            ("[INFO] Tests run: 153, Failures: 0", None),
        ],
    );
}
