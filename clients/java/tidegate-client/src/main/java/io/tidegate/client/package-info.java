/**
 * Rate limits that a Tidegate server decides.
 *
 * <p>{@link io.tidegate.client.Tidegate} is the client, {@link io.tidegate.client.Decision} its
 * result. Decisions are values: a denial is not an exception.
 */
@NullMarked
package io.tidegate.client;

import org.jspecify.annotations.NullMarked;
