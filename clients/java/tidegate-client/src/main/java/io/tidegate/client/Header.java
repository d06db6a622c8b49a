package io.tidegate.client;

/**
 * A header that the rules or the server add to a request or a response.
 *
 * @param name the name, as sent
 * @param value the value
 */
public record Header(String name, String value) {}
