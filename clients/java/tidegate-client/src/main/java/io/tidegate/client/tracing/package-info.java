/** Trace context of calls. Needs the OpenTelemetry API. */
@NullMarked
package io.tidegate.client.tracing;

import org.jspecify.annotations.NullMarked;
