package io.tidegate.client;

import io.grpc.Status;

/**
 * The server refused the request itself, such as for a text that is too long.
 *
 * <p>Never turned into a decision: a retry cannot help, and failing open would let such a request
 * pass every limit.
 */
public final class RequestException extends RuntimeException {
  /** The gRPC status code. */
  private final Status.Code code;

  RequestException(Status status) {
    super(status.getCode() + ": " + status.getDescription(), status.getCause());
    this.code = status.getCode();
  }

  /** {@return the gRPC status code} */
  public Status.Code code() {
    return code;
  }
}
