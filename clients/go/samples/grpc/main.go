// Command grpc serves gRPC's health service, limited.
//
//	go run ./samples/grpc 127.0.0.1:8000
package main

import (
	"cmp"
	"log"
	"net"
	"os"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	client, err := tidegate.New(cmp.Or(os.Getenv("TIDEGATE_ADDR"), "127.0.0.1:8081"), tidegate.Domain("demo"))
	if err != nil {
		log.Fatal(err)
	}
	limits := tidegate.Limits{
		Keys: []tidegate.KeySource{tidegate.HeaderKey("api_key", "x-api-key", tidegate.Reject)},
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(client.UnaryServerInterceptor(limits)),
		grpc.StreamInterceptor(client.StreamServerInterceptor(limits)),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
