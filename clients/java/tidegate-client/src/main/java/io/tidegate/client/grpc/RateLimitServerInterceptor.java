package io.tidegate.client.grpc;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.tidegate.client.Decision;
import io.tidegate.client.Header;
import io.tidegate.client.Slot;
import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import io.tidegate.client.middleware.RequestInfo;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Limits the calls of a gRPC server, unary and streaming: one decision for each call.
 *
 * <p>A denied call ends with {@code RESOURCE_EXHAUSTED} and the headers of the decision in its
 * trailers, a call without an answer under {@code CLOSED} with {@code UNAVAILABLE}. The thread of
 * the call blocks until the decision, at most for the client's timeout.
 */
public final class RateLimitServerInterceptor implements ServerInterceptor {
  /** The decision about the current call; null if it is not limited. */
  public static final Context.Key<Decision> DECISION = Context.key("tidegate-decision");

  private static final System.Logger LOGGER = System.getLogger("io.tidegate.client");

  private final Guard guard;

  /**
   * Creates an interceptor.
   *
   * @param client the client
   * @param limits what is limited; headers are the call's metadata
   */
  public RateLimitServerInterceptor(Tidegate client, Limits limits) {
    this.guard = new Guard(client, limits);
  }

  @Override
  public <Q, R> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
    Outcome outcome;
    try {
      outcome = guard.decide(new CallInfo(call, headers));
    } catch (RuntimeException failure) {
      LOGGER.log(System.Logger.Level.ERROR, "a call cannot be decided", failure);
      call.close(Status.INTERNAL.withDescription("rate limit error"), new Metadata());
      return new ServerCall.Listener<>() {};
    }
    if (outcome instanceof Outcome.Refused refused) {
      call.close(status(refused), trailers(refused.headers()));
      return new ServerCall.Listener<>() {};
    }
    if (outcome instanceof Outcome.Admitted admitted) {
      Metadata trailers = trailers(admitted.headers());
      ServerCall<Q, R> withTrailers =
          new SimpleForwardingServerCall<>(call) {
            @Override
            public void close(Status status, Metadata ofHandler) {
              ofHandler.merge(trailers);
              super.close(status, ofHandler);
            }
          };
      mark(headers, admitted.decision().requestHeaders());
      Context context = Context.current().withValue(DECISION, admitted.decision());
      try {
        return new Releasing<>(
            Contexts.interceptCall(context, withTrailers, headers, next), admitted.slot());
      } catch (RuntimeException failure) {
        admitted.slot().releaseAsync();
        throw failure;
      }
    }
    return next.startCall(call, headers);
  }

  /** Releases slots at the end of a call: one of the two is called for each. */
  private static final class Releasing<Q> extends SimpleForwardingServerCallListener<Q> {
    private final Slot slot;

    Releasing(ServerCall.Listener<Q> listener, Slot slot) {
      super(listener);
      this.slot = slot;
    }

    @Override
    public void onComplete() {
      slot.releaseAsync();
      super.onComplete();
    }

    @Override
    public void onCancel() {
      slot.releaseAsync();
      super.onCancel();
    }
  }

  /** Replaces the client's headers of the same names. */
  private static void mark(Metadata headers, List<Header> added) {
    for (Header header : added) {
      headers.removeAll(key(header.name()));
    }
    for (Header header : added) {
      headers.put(key(header.name()), header.value());
    }
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name.toLowerCase(Locale.ROOT), Metadata.ASCII_STRING_MARSHALLER);
  }

  private static Status status(Outcome.Refused refused) {
    String message = new String(refused.body(), StandardCharsets.UTF_8).strip();
    String wait = refused.headers().get("Retry-After");
    return switch (refused.status()) {
      case 400 -> Status.INVALID_ARGUMENT.withDescription(message);
      case 503 -> Status.UNAVAILABLE.withDescription("no answer from the rate limit server");
      default ->
          Status.RESOURCE_EXHAUSTED.withDescription(
              wait == null ? message : message + "; retry after " + wait + " s");
    };
  }

  private static Metadata trailers(Map<String, String> headers) {
    Metadata trailers = new Metadata();
    headers.forEach(
        (name, value) -> {
          String lower = name.toLowerCase(Locale.ROOT);
          if (!lower.equals("content-type")) {
            trailers.put(Metadata.Key.of(lower, Metadata.ASCII_STRING_MARSHALLER), value);
          }
        });
    return trailers;
  }

  private record CallInfo(ServerCall<?, ?> nativeRequest, Metadata metadata)
      implements RequestInfo {
    @Override
    public @Nullable String peer() {
      return nativeRequest.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR)
              instanceof InetSocketAddress address
          ? address.getAddress().getHostAddress()
          : null;
    }

    @Override
    public String method() {
      return "POST";
    }

    @Override
    public String path() {
      return "/" + nativeRequest.getMethodDescriptor().getFullMethodName();
    }

    @Override
    public List<String> header(String name) {
      String lower = name.toLowerCase(Locale.ROOT);
      List<String> values = new ArrayList<>();
      if (!lower.endsWith(Metadata.BINARY_HEADER_SUFFIX)) {
        Iterable<String> found =
            metadata.getAll(Metadata.Key.of(lower, Metadata.ASCII_STRING_MARSHALLER));
        if (found != null) {
          found.forEach(values::add);
        }
      }
      return values;
    }
  }
}
