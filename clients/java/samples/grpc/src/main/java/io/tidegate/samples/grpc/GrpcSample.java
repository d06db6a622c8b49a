package io.tidegate.samples.grpc;

import com.google.protobuf.StringValue;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCalls;
import io.tidegate.client.Tidegate;
import io.tidegate.client.grpc.RateLimitServerInterceptor;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Missing;

/**
 * A limited gRPC server, with a method that returns its request. Arguments: a port, and {@code
 * call} to call the server.
 */
public final class GrpcSample {
  private static final MethodDescriptor<StringValue, StringValue> SAY =
      MethodDescriptor.<StringValue, StringValue>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("sample.Echo/Say")
          .setRequestMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .build();

  private GrpcSample() {}

  /**
   * Serves, or calls the server.
   *
   * @param arguments the port, and optionally {@code call}
   * @throws Exception if the server does not start
   */
  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    if (arguments.length > 1) {
      call(port);
      return;
    }
    String address = System.getenv().getOrDefault("TIDEGATE_ADDR", "127.0.0.1:8081");
    try (Tidegate tidegate = Tidegate.builder(address).domain("demo").build()) {
      Limits limits = Limits.of(Key.header("api_key", "x-api-key", Missing.REJECT));
      Grpc.newServerBuilderForPort(port, InsecureServerCredentials.create())
          .addService(
              ServerServiceDefinition.builder("sample.Echo")
                  .addMethod(
                      SAY,
                      ServerCalls.asyncUnaryCall(
                          (request, response) -> {
                            response.onNext(request);
                            response.onCompleted();
                          }))
                  .build())
          .intercept(new RateLimitServerInterceptor(tidegate, limits))
          .build()
          .start()
          .awaitTermination();
    }
  }

  private static void call(int port) {
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("x-api-key", Metadata.ASCII_STRING_MARSHALLER), "alice");
    ManagedChannel channel =
        Grpc.newChannelBuilder("127.0.0.1:" + port, InsecureChannelCredentials.create())
            .intercept(MetadataUtils.newAttachHeadersInterceptor(headers))
            .build();
    try {
      StringValue hello = StringValue.of("hello");
      StringValue said = ClientCalls.blockingUnaryCall(channel, SAY, CallOptions.DEFAULT, hello);
      System.out.println(said.getValue());
    } finally {
      channel.shutdownNow();
    }
  }
}
