/** A filter for servlet containers. Needs {@code jakarta.servlet}. */
@NullMarked
package io.tidegate.client.servlet;

import org.jspecify.annotations.NullMarked;
