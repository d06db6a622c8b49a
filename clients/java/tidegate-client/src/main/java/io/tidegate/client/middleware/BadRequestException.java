package io.tidegate.client.middleware;

/** A request that a key refuses, with the reason. */
final class BadRequestException extends RuntimeException {
  BadRequestException(String message) {
    super(message, null, false, false);
  }
}
