package io.tidegate.client;

import java.util.List;

/**
 * A call to a fake client; see {@link Tidegate#fake}.
 *
 * @param domain the domain
 * @param descriptors the descriptors
 * @param costs the hits of each descriptor, unsigned; 0 of a peek
 * @param givesBack whether hits of any descriptor are given back
 */
public record Call(
    String domain, List<Descriptor> descriptors, List<Long> costs, boolean givesBack) {}
