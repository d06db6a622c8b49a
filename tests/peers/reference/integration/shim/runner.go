// Package runner replaces the package of the same name in the reference server when its integration tests are built (`go test -overlay`):
// it starts Tidegate with the same settings, as variables, and reads counters from Tidegate's metrics.
package runner

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	gostats "github.com/lyft/gostats"

	"github.com/envoyproxy/ratelimit/src/settings"
)

// Runner is a server in a process of its own.
type Runner struct {
	settings settings.Settings
	server   *exec.Cmd
	ended    chan struct{}
}

// NewRunner starts the server, and returns when it is healthy.
func NewRunner(s settings.Settings) Runner {
	program := os.Getenv("TIDEGATE")
	server := exec.Command(program, "serve", "--env", "reference", "--reference-metrics")
	server.Env = append(variables(s), "SSL_CERT_FILE="+os.Getenv("SSL_CERT_FILE"), "PATH="+os.Getenv("PATH"))
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	runner := Runner{settings: s, server: server, ended: make(chan struct{})}
	if err := server.Start(); err != nil {
		panic(fmt.Sprintf("cannot start %s: %v", program, err))
	}
	go func() {
		_ = server.Wait()
		close(runner.ended)
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if response, err := http.Get(fmt.Sprintf("http://localhost:%d/readyz", s.Port)); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
	}
	return runner
}

// Run returns when the server has ended.
func (runner *Runner) Run() { <-runner.ended }

// Stop ends the server.
func (runner *Runner) Stop() {
	_ = runner.server.Process.Signal(syscall.SIGTERM)
	select {
	case <-runner.ended:
	case <-time.After(15 * time.Second):
		_ = runner.server.Process.Kill()
		<-runner.ended
	}
}

// GetStatsStore returns a store whose counters are read from the server's metrics.
func (runner *Runner) GetStatsStore() gostats.Store {
	return statsStore{store: gostats.NewStore(gostats.NewNullSink(), false), address: fmt.Sprintf("http://localhost:%d/metrics", runner.settings.DebugPort)}
}

// variables returns the settings as variables with their values.
func variables(s settings.Settings) []string {
	var set []string
	value := reflect.ValueOf(s)
	for index := range value.NumField() {
		name := value.Type().Field(index).Tag.Get("envconfig")
		if text, isSet := text(value.Field(index)); name != "" && isSet {
			set = append(set, name+"="+text)
		}
	}
	return set
}

// text returns a setting in the form of a variable's value; false if it has no such form.
func text(field reflect.Value) (string, bool) {
	switch value := field.Interface().(type) {
	case time.Duration:
		return value.String(), true
	case []string:
		return strings.Join(value, ","), true
	case map[string]string:
		var pairs []string
		for key, value := range value {
			pairs = append(pairs, key+":"+value)
		}
		return strings.Join(pairs, ","), true
	}
	switch field.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint32, reflect.Float32, reflect.Float64:
		return fmt.Sprint(field.Interface()), true
	}
	return "", false
}

// store is embedded under a name of its own, since the interface has a method with its name.
type store = gostats.Store

type statsStore struct {
	store
	address string
}

func (store statsStore) NewCounter(name string) gostats.Counter {
	return counter{Counter: store.store.NewCounter(name), store: store, name: name}
}

func (store statsStore) NewCounterWithTags(name string, tags map[string]string) gostats.Counter {
	return counter{Counter: store.store.NewCounterWithTags(name, tags), store: store, name: name}
}

type counter struct {
	gostats.Counter
	store statsStore
	name  string
}

var ofLimit = regexp.MustCompile(`^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$`)

// Value returns the present value in the metrics; 0 if they do not have it.
func (counter counter) Value() uint64 {
	series := strings.ReplaceAll(counter.name, ".", "_")
	if parts := ofLimit.FindStringSubmatch(counter.name); parts != nil {
		labels := fmt.Sprintf("domain=%q", parts[1])
		for index, key := range strings.Split(parts[2], ".") {
			labels += fmt.Sprintf(",key%d=%q", index+1, key)
		}
		series = fmt.Sprintf("ratelimit_service_rate_limit_%s{%s}", parts[3], labels)
	}
	response, err := http.Get(counter.store.address)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), " "); found && name == series {
			number, _ := strconv.ParseUint(value, 10, 64)
			return number
		}
	}
	return 0
}
