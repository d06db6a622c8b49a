// The reference server, envoyproxy/ratelimit, at the commit that go.mod names.
package main

import (
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
)

func main() {
	server := runner.NewRunner(settings.NewSettings())
	server.Run()
}
