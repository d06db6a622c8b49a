// Package tidegate limits rates with the decisions of a Tidegate server.
//
//	client, err := tidegate.New("127.0.0.1:8081", tidegate.Domain("demo"))
//	if err != nil {
//		log.Fatal(err)
//	}
//	decision, err := client.Allow(ctx, tidegate.Key("api_key", "alice"))
//
// A denial is a value: [Decision.Allowed] is false and [Decision.RetryAfter] is the time to wait. An error means that the caller cancelled
// the call, or that the request itself is at fault. If the server does not answer, the policy decides ([FailOpen], [FailClosed]), and
// [Decision.Reason] names it.
//
// [Client.Middleware] limits HTTP handlers, [Client.UnaryServerInterceptor] and [Client.StreamServerInterceptor] gRPC
// servers.
package tidegate
