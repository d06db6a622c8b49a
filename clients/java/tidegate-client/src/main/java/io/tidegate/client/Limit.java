package io.tidegate.client;

/**
 * A limit of the rules.
 *
 * @param requests hits that fit into one window
 * @param unit {@code second}, {@code minute}, {@code hour}, {@code day}, {@code week}, {@code
 *     month}, {@code year}; empty if the window is not one unit
 * @param name the name in the rules; empty if it has none
 */
public record Limit(long requests, String unit, String name) {}
