/** An interceptor for gRPC servers. */
@NullMarked
package io.tidegate.client.grpc;

import org.jspecify.annotations.NullMarked;
