package io.tidegate.client;

import java.util.concurrent.atomic.AtomicInteger;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Prints a line of TAP for each test, which {@code cargo xtask clients} reads. */
public final class TestReport implements TestExecutionListener {
  private final AtomicInteger count = new AtomicInteger();

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    if (test.isTest() && test.getSource().orElse(null) instanceof MethodSource source) {
      boolean hasPassed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
      String className = source.getClassName();
      System.out.printf(
          "%s %d - %s > %s: %s%n",
          hasPassed ? "ok" : "not ok",
          count.incrementAndGet(),
          className.substring(className.lastIndexOf('.') + 1),
          source.getMethodName(),
          test.getDisplayName());
    }
  }
}
