package io.tidegate.client;

import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.tidegate.client.proto.RateLimitRequest;
import io.tidegate.client.proto.RateLimitResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Measures the client beside the bare gRPC stub, for {@code cargo xtask clients --bench}.
 *
 * <p>The server at TIDEGATE_ADDR has the domain {@code bench} with a key {@code admitted}, which is
 * never denied, and a key {@code denied}, which is always denied after its first hit.
 */
final class Bench {
  private static final int ROUNDS = 10;
  private static final int SEQUENTIAL_CALLS = 500;
  private static final int CALLERS = 64;
  private static final int CALLS_PER_CALLER = 50;
  private static final int LOCAL_DENIALS = 1_000_000;
  private static final Duration TIMEOUT = Duration.ofSeconds(5);
  private static final MethodDescriptor<RateLimitRequest, RateLimitResponse> METHOD =
      MethodDescriptor.<RateLimitRequest, RateLimitResponse>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
          .setRequestMarshaller(ProtoUtils.marshaller(RateLimitRequest.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(RateLimitResponse.getDefaultInstance()))
          .build();

  private Bench() {}

  public static void main(String[] arguments) throws Exception {
    String address = System.getenv("TIDEGATE_ADDR");
    ManagedChannel connection =
        Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    try (Tidegate client = Tidegate.builder(address).domain("bench").timeout(TIMEOUT).build()) {
      Metadata metadata = new Metadata();
      metadata.put(
          Metadata.Key.of("tidegate-precision", Metadata.ASCII_STRING_MARSHALLER), "exact");
      Channel stub =
          ClientInterceptors.intercept(
              connection, MetadataUtils.newAttachHeadersInterceptor(metadata));
      List<Callable<Boolean>> calls = List.of(() -> bare(stub), () -> ours(client));
      double localDenial = localDenial(client);
      double[] p50 = sequential(calls);
      double[] rates = concurrent(calls);
      System.out.printf(
          "{\"stub_p50_us\":%f,\"client_p50_us\":%f,\"stub_per_s\":%f,\"client_per_s\":%f,"
              + "\"local_denial_us\":%f}%n",
          p50[0], p50[1], rates[0], rates[1], localDenial);
    } finally {
      connection.shutdownNow();
    }
  }

  /** One call of the stub, with the message and metadata that the library sends. */
  private static boolean bare(Channel stub) {
    RateLimitRequest.Builder request = RateLimitRequest.newBuilder().setDomain("bench");
    request
        .addDescriptorsBuilder()
        .addEntriesBuilder()
        .setKey("admitted")
        .setValue(ByteString.copyFromUtf8("alice"));
    CallOptions options =
        CallOptions.DEFAULT.withDeadlineAfter(TIMEOUT.toNanos(), TimeUnit.NANOSECONDS);
    RateLimitResponse response =
        ClientCalls.blockingUnaryCall(stub, METHOD, options, request.build());
    return response.getOverallCode() == RateLimitResponse.Code.OK;
  }

  private static boolean ours(Tidegate client) {
    Decision decision = client.limit(Descriptor.of("admitted", "alice"));
    return decision.allowed() && decision.reason() == Reason.DECIDED;
  }

  private static void check(boolean isExpected) {
    if (!isExpected) {
      throw new IllegalStateException("an unexpected decision");
    }
  }

  /** The median times of sequential calls, in microseconds. */
  private static double[] sequential(List<Callable<Boolean>> calls) throws Exception {
    double[][] times = new double[2][ROUNDS * SEQUENTIAL_CALLS];
    // The first rounds open connections and compile.
    for (int round = -4; round < ROUNDS; round++) {
      for (int kind = 0; kind < 2; kind++) {
        for (int call = 0; call < SEQUENTIAL_CALLS; call++) {
          long started = System.nanoTime();
          check(calls.get(kind).call());
          if (round >= 0) {
            times[kind][round * SEQUENTIAL_CALLS + call] = (System.nanoTime() - started) / 1e3;
          }
        }
      }
    }
    return new double[] {median(times[0]), median(times[1])};
  }

  /** The median numbers of calls per second. */
  private static double[] concurrent(List<Callable<Boolean>> calls) throws Exception {
    double[][] rates = new double[2][ROUNDS];
    ExecutorService executor = Executors.newFixedThreadPool(CALLERS);
    try {
      for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < 2; kind++) {
          Callable<Boolean> call = calls.get(kind);
          long started = System.nanoTime();
          List<Future<?>> callers = new ArrayList<>();
          for (int caller = 0; caller < CALLERS; caller++) {
            callers.add(
                executor.submit(
                    () -> {
                      for (int number = 0; number < CALLS_PER_CALLER; number++) {
                        check(call.call());
                      }
                      return null;
                    }));
          }
          for (Future<?> caller : callers) {
            caller.get();
          }
          rates[kind][round] = CALLERS * CALLS_PER_CALLER / ((System.nanoTime() - started) / 1e9);
        }
      }
    } finally {
      executor.shutdownNow();
    }
    return new double[] {median(rates[0]), median(rates[1])};
  }

  /** The mean time of a denial without a call, in microseconds. */
  private static double localDenial(Tidegate client) {
    Descriptor denied = Descriptor.of("denied", "alice");
    while (client.limit(denied).allowed()) {}
    long started = 0;
    // The first half compiles.
    for (int denial = -LOCAL_DENIALS; denial < LOCAL_DENIALS; denial++) {
      if (denial == 0) {
        started = System.nanoTime();
      }
      check(client.limit(Descriptor.of("denied", "alice")).reason() == Reason.DENIED_LOCALLY);
    }
    return (System.nanoTime() - started) / 1e3 / LOCAL_DENIALS;
  }

  private static double median(double[] values) {
    Arrays.sort(values);
    return values[values.length / 2];
  }
}
