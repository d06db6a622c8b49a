package io.tidegate.client.tracing;

import io.grpc.Metadata;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.context.Context;
import java.util.Locale;
import java.util.function.Consumer;

/**
 * Metadata of calls with the current OpenTelemetry context, so that the server's spans are children
 * of the caller's.
 */
public final class TraceContext implements Consumer<Metadata> {
  private final OpenTelemetry openTelemetry;

  /**
   * Creates a source of metadata.
   *
   * @param openTelemetry has the propagators, such as {@code GlobalOpenTelemetry.get()}
   */
  public TraceContext(OpenTelemetry openTelemetry) {
    this.openTelemetry = openTelemetry;
  }

  @Override
  public void accept(Metadata metadata) {
    openTelemetry
        .getPropagators()
        .getTextMapPropagator()
        .inject(
            Context.current(),
            metadata,
            (carrier, key, value) -> {
              if (carrier != null) {
                String lower = key.toLowerCase(Locale.ROOT);
                carrier.put(Metadata.Key.of(lower, Metadata.ASCII_STRING_MARSHALLER), value);
              }
            });
  }
}
