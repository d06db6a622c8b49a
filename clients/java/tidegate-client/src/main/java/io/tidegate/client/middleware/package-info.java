/** Parts of middleware that do not depend on a framework: keys, limits and outcomes. */
@NullMarked
package io.tidegate.client.middleware;

import org.jspecify.annotations.NullMarked;
