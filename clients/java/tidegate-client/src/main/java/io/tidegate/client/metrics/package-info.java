/** Metrics of decisions. Needs Micrometer. */
@NullMarked
package io.tidegate.client.metrics;

import org.jspecify.annotations.NullMarked;
