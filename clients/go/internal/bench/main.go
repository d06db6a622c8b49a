// Command bench measures the client beside the bare gRPC stub, for `cargo xtask clients --bench`.
//
// The server at TIDEGATE_ADDR has the domain `bench` with a key `admitted`, which is never denied, and a key `denied`, which is always
// denied after its first hit.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	tidegate "github.com/tidegate/tidegate/clients/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

const (
	rounds          = 10
	sequentialCalls = 500
	callers         = 64
	callsPerCaller  = 100
	localDenials    = 10_000
	timeout         = 5 * time.Second
)

func main() {
	address := os.Getenv("TIDEGATE_ADDR")
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	client, err := tidegate.New(address, tidegate.Domain("bench"), tidegate.WithTimeout(timeout))
	check(err)
	bare := stub(rls.NewRateLimitServiceClient(connection))
	ours := func() {
		decision, err := client.Allow(context.Background(), tidegate.Key("admitted", "alice"))
		if err != nil || decision.Reason != tidegate.Decided || !decision.Allowed {
			log.Fatal(decision, err)
		}
	}
	figures := map[string]float64{"local_denial_us": localDenial(client)}
	figures["stub_p50_us"], figures["client_p50_us"] = sequential(bare, ours)
	figures["stub_per_s"], figures["client_per_s"] = concurrent(bare, ours)
	check(json.NewEncoder(os.Stdout).Encode(figures))
}

// stub returns a call of the generated client, with the message and metadata that the library sends.
func stub(client rls.RateLimitServiceClient) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "tidegate-precision", "exact")
		response, err := client.ShouldRateLimit(ctx, &rls.RateLimitRequest{
			Domain: "bench",
			Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "admitted", Value: "alice"}},
			}},
		})
		if err != nil || response.OverallCode != rls.RateLimitResponse_OK {
			log.Fatal(response, err)
		}
	}
}

// sequential returns the median times of sequential calls in microseconds, each of its best round.
func sequential(bare, ours func()) (float64, float64) {
	var medians [2][]float64
	for range rounds {
		for i, call := range []func(){bare, ours} {
			times := make([]time.Duration, sequentialCalls)
			for j := range times {
				started := time.Now()
				call()
				times[j] = time.Since(started)
			}
			slices.Sort(times)
			medians[i] = append(medians[i], float64(times[len(times)/2].Nanoseconds())/1e3)
		}
	}
	return slices.Min(medians[0]), slices.Min(medians[1])
}

// concurrent returns the numbers of calls per second, each of its best round.
func concurrent(bare, ours func()) (float64, float64) {
	var rates [2][]float64
	for range rounds {
		for i, call := range []func(){bare, ours} {
			started := time.Now()
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					for range callsPerCaller {
						call()
					}
				})
			}
			done.Wait()
			rates[i] = append(rates[i], callers*callsPerCaller/time.Since(started).Seconds())
		}
	}
	return slices.Max(rates[0]), slices.Max(rates[1])
}

// localDenial returns the time of a denial without a call, in microseconds: the least mean of a round.
func localDenial(client *tidegate.Client) float64 {
	ctx := context.Background()
	deny := func() tidegate.Decision {
		decision, err := client.Allow(ctx, tidegate.Key("denied", "alice"))
		check(err)
		return decision
	}
	for deny().Allowed {
	}
	var times []float64
	for range rounds {
		started := time.Now()
		for range localDenials {
			if decision := deny(); decision.Reason != tidegate.DeniedLocally {
				log.Fatal(decision)
			}
		}
		times = append(times, float64(time.Since(started).Nanoseconds())/1e3/localDenials)
	}
	return slices.Min(times)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
