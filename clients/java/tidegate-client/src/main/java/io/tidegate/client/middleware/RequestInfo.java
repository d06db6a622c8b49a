package io.tidegate.client.middleware;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** The parts of a request that keys read, for any framework. */
public interface RequestInfo {
  /** {@return the address of the other end of the connection; null if it has none} */
  @Nullable String peer();

  /** {@return the HTTP method; {@code POST} of a gRPC call} */
  String method();

  /** {@return the path; of a gRPC call {@code /SERVICE/METHOD}} */
  String path();

  /**
   * Returns the values of a header.
   *
   * @param name the name, in any case
   * @return all values, in order; empty without the header
   */
  List<String> header(String name);

  /** {@return the framework's own request, such as a servlet request} */
  Object nativeRequest();
}
