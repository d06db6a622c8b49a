package io.tidegate.client.middleware;

/**
 * The body of a denial.
 *
 * @param contentType its content type
 * @param bytes its bytes
 */
public record DeniedBody(String contentType, byte[] bytes) {}
