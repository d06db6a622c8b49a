package io.tidegate.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.tidegate.client.proto.RateLimitRequest;
import io.tidegate.client.proto.RateLimitResponse;
import java.net.ConnectException;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** {@code ShouldRateLimit} over a channel, blocking and asynchronous. */
final class RateLimitCalls {
  private static final MethodDescriptor<RateLimitRequest, RateLimitResponse> METHOD =
      MethodDescriptor.<RateLimitRequest, RateLimitResponse>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
          .setRequestMarshaller(ProtoUtils.marshaller(RateLimitRequest.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(RateLimitResponse.getDefaultInstance()))
          .build();
  private static final Metadata.Key<String> PRECISION =
      Metadata.Key.of("tidegate-precision", Metadata.ASCII_STRING_MARSHALLER);

  /** Milliseconds within which a new channel has to connect. */
  private static final long OPENED_MAX_MILLIS = 5_000;

  /** Milliseconds until a replaced channel is closed: each call that chose it has begun by then. */
  private static final long BEGUN_MAX_MILLIS = 1_000;

  private final Supplier<ManagedChannel> open;

  /** Null for a target with one address. */
  private final @Nullable Renewals renewals;

  private volatile ManagedChannel channel;

  /** The channel that will replace the other; guarded by this. */
  private @Nullable ManagedChannel opening;

  /** Guarded by this. */
  private boolean isClosed;

  RateLimitCalls(Supplier<ManagedChannel> open, boolean mayHaveSeveralAddresses) {
    this.open = open;
    this.renewals = mayHaveSeveralAddresses ? new Renewals(System.nanoTime()) : null;
    this.channel = open.get();
  }

  /** Adds the metadata of each call. */
  static ClientInterceptor metadata(List<Consumer<Metadata>> sources) {
    return new ClientInterceptor() {
      @Override
      public <Q, R> ClientCall<Q, R> interceptCall(
          MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
        return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
          @Override
          public void start(Listener<R> listener, Metadata headers) {
            headers.put(PRECISION, "exact");
            Metadata complete = headers;
            for (Consumer<Metadata> source : sources) {
              complete = completed(complete, source);
            }
            super.start(listener, complete);
          }
        };
      }
    };
  }

  /** Lets a source complete the metadata; the metadata is unchanged if that throws. */
  private static Metadata completed(Metadata headers, Consumer<Metadata> source) {
    Metadata copy = new Metadata();
    copy.merge(headers);
    try {
      source.accept(copy);
    } catch (RuntimeException failure) {
      FailureLog.thrownBy("a source of metadata", failure);
      return headers;
    }
    return copy;
  }

  /**
   * Calls and blocks until the answer.
   *
   * @throws StatusRuntimeException if there is none
   */
  RateLimitResponse blocking(RateLimitRequest request, Duration timeout) {
    return ClientCalls.blockingUnaryCall(channel, METHOD, options(timeout), request);
  }

  /** Calls; a cancelled future cancels the call. */
  CompletableFuture<RateLimitResponse> async(RateLimitRequest request, Duration timeout) {
    Answer answer = new Answer();
    ClientCalls.asyncUnaryCall(channel.newCall(METHOD, options(timeout)), request, answer);
    return answer.future;
  }

  private static CallOptions options(Duration timeout) {
    return CallOptions.DEFAULT.withDeadlineAfter(
        LocalDenials.saturatedNanos(timeout), TimeUnit.NANOSECONDS);
  }

  /** Connects at once where gRPC would wait: up to two minutes after several attempts. */
  void reconnect() {
    channel.resetConnectBackoff();
  }

  /**
   * Connects to a name again: a server that hangs does not establish a connection. The channel is
   * replaced once another is connected.
   */
  void renew() {
    if (renewals == null || !renewals.begin(System.nanoTime())) {
      return;
    }
    ManagedChannel opened = open.get();
    synchronized (this) {
      opening = opened;
      if (isClosed) {
        opened.shutdownNow();
        return;
      }
    }
    later(OPENED_MAX_MILLIS, () -> renewed(renewals, opened, false));
    watch(renewals, opened);
  }

  private void watch(Renewals own, ManagedChannel opened) {
    ConnectivityState state = opened.getState(true);
    switch (state) {
      case READY -> renewed(own, opened, true);
      case SHUTDOWN -> {}
      default -> opened.notifyWhenStateChanged(state, () -> watch(own, opened));
    }
  }

  private synchronized void renewed(Renewals own, ManagedChannel opened, boolean isReady) {
    if (opening != opened || isClosed) {
      return;
    }
    opening = null;
    ManagedChannel left = isReady ? channel : opened;
    channel = isReady ? opened : channel;
    own.ended(isReady, System.nanoTime());
    // Calls in flight continue: they may be to a server that answers.
    later(BEGUN_MAX_MILLIS, left::shutdown);
  }

  private static void later(long millis, Runnable action) {
    CompletableFuture.delayedExecutor(millis, TimeUnit.MILLISECONDS).execute(action);
  }

  /** Whether the channel is connected; connects it if it is idle. */
  ConnectivityState state() {
    return channel.getState(true);
  }

  synchronized void close() {
    isClosed = true;
    channel.shutdownNow();
    if (opening != null) {
      opening.shutdownNow();
    }
  }

  /** The status of a failure; the cause's if the answer could not be decoded. */
  static Status statusOf(Throwable failure) {
    Status status = Status.fromThrowable(failure);
    if (status.getCode() == Status.Code.CANCELLED
        && status.getCause() instanceof StatusRuntimeException decoding) {
      return decoding.getStatus();
    }
    return status;
  }

  /** Whether no connection could be opened, so that the server cannot have seen the call. */
  static boolean isRefused(Status status) {
    for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
      if (cause instanceof ConnectException || cause instanceof UnknownHostException) {
        return true;
      }
    }
    return false;
  }

  /** The description of a status and the messages of its causes, in one line. */
  static String message(Status status) {
    StringBuilder message = new StringBuilder();
    append(message, status.getDescription());
    for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
      append(message, cause.getMessage() == null ? cause.toString() : cause.getMessage());
    }
    return message.toString();
  }

  /**
   * Appends the first line of a text, unless it is there already. Later lines list Netty's
   * handlers.
   */
  private static void append(StringBuilder message, @Nullable String text) {
    String line = text == null ? "" : text.lines().findFirst().orElse("");
    if (message.indexOf(line) < 0) {
      message.append(message.isEmpty() ? "" : ": ").append(line);
    }
  }

  private static final class Answer
      implements ClientResponseObserver<RateLimitRequest, RateLimitResponse> {
    private final CompletableFuture<RateLimitResponse> future = new CompletableFuture<>();
    private @Nullable RateLimitResponse response;

    @Override
    public void beforeStart(ClientCallStreamObserver<RateLimitRequest> call) {
      future.whenComplete(
          (answered, failure) -> {
            if (future.isCancelled()) {
              call.cancel("cancelled by the caller", null);
            }
          });
    }

    @Override
    public void onNext(RateLimitResponse message) {
      response = message;
    }

    @Override
    public void onError(Throwable failure) {
      future.completeExceptionally(failure);
    }

    @Override
    public void onCompleted() {
      if (response == null) {
        future.completeExceptionally(Status.INTERNAL.withDescription("no message").asException());
      } else {
        future.complete(response);
      }
    }
  }
}
