// Command http serves a limited handler.
//
//	go run ./samples/http 127.0.0.1:8000
//	curl -H 'x-api-key: alice' 127.0.0.1:8000
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
)

func main() {
	client, err := tidegate.New(cmp.Or(os.Getenv("TIDEGATE_ADDR"), "127.0.0.1:8081"), tidegate.Domain("demo"))
	if err != nil {
		log.Fatal(err)
	}
	limit := client.Middleware(tidegate.Limits{
		Keys: []tidegate.KeySource{tidegate.HeaderKey("api_key", "x-api-key", tidegate.Reject)},
	})
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision, _ := tidegate.FromContext(r.Context())
		fmt.Fprintf(w, "hello, %d left\n", decision.Remaining)
	})
	server := http.Server{Addr: os.Args[1], Handler: limit(hello), ReadHeaderTimeout: time.Second}
	log.Fatal(server.ListenAndServe())
}
