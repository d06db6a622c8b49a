// A control plane for tests: go-control-plane's SnapshotCache, with the original messages of the rate limit configuration.
//
// It reads snapshots as lines of JSON from standard input, {"version": "1", "resources": [RateLimitConfig, …]}, and reports actions of
// clients on standard output: "listening ADDRESS", "stream", "ack VERSION", "nack MESSAGE".
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rules "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
)

type snapshot struct {
	Version   string            `json:"version"`
	Resources []json.RawMessage `json:"resources"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	node := flag.String("node", "", "the node that gets the snapshots")
	certs := flag.String("certs", "", "directory with plane.crt, plane.key and ca.crt: mutual TLS")
	flag.Parse()

	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	callbacks := server.CallbackFuncs{
		StreamOpenFunc: func(context.Context, int64, string) error {
			fmt.Println("stream")
			return nil
		},
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			switch {
			case request.ErrorDetail != nil:
				fmt.Println("nack", strings.ReplaceAll(request.ErrorDetail.Message, "\n", " "))
			case request.ResponseNonce != "":
				fmt.Println("ack", request.VersionInfo)
			}
			return nil
		},
	}
	var options []grpc.ServerOption
	if *certs != "" {
		options = append(options, grpc.Creds(credentials.NewTLS(mutual(*certs))))
	}
	grpcServer := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, server.NewServer(context.Background(), snapshots, callbacks))
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", listener.Addr())
	go func() { log.Fatal(grpcServer.Serve(listener)) }()

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if err := set(snapshots, *node, lines.Bytes()); err != nil {
			log.Fatal(err)
		}
	}
}

func set(snapshots cache.SnapshotCache, node string, line []byte) error {
	var next snapshot
	if err := json.Unmarshal(line, &next); err != nil {
		return err
	}
	var resources []types.Resource
	for _, text := range next.Resources {
		config := &rules.RateLimitConfig{}
		if err := protojson.Unmarshal(text, config); err != nil {
			return err
		}
		resources = append(resources, config)
	}
	made, err := cache.NewSnapshot(next.Version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err != nil {
		return err
	}
	return snapshots.SetSnapshot(context.Background(), cache.IDHash{}.ID(&core.Node{Id: node}), made)
}

// mutual reads the files for each connection, so that they may be replaced.
func mutual(folder string) *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(folder+"/plane.crt", folder+"/plane.key")
		if err != nil {
			return nil, err
		}
		authorities, err := os.ReadFile(folder + "/ca.crt")
		if err != nil {
			return nil, err
		}
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM(authorities)
		return &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    clients,
			NextProtos:   []string{"h2"},
			MinVersion:   tls.VersionTLS12,
		}, nil
	}}
}
