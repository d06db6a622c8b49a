// Promises of the manifests of deploy/ beyond being valid.
package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// find decodes the only document of a kind and a name.
func find[Object any](t *testing.T, manifest, kind, name string) Object {
	t.Helper()
	for _, document := range strings.Split(manifest, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind == kind && head.Metadata.Name == name {
			var object Object
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			return object
		}
	}
	t.Fatalf("no %s %s in:\n%s", kind, name, manifest)
	panic("unreachable")
}

// overlay makes a kustomization over a copy of kubernetes/standalone, and returns its folder and the folder of the copy.
func overlay(t *testing.T, kustomization string) (string, string) {
	t.Helper()
	root := t.TempDir()
	base, top := filepath.Join(root, "standalone"), filepath.Join(root, "overlay")
	if err := os.CopyFS(base, os.DirFS(filepath.Join(deploy, "kubernetes/standalone"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../standalone]\n" + kustomization
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return top, base
}

const otherRules = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 7 }\n"

func template(t *testing.T, manifest, name string) string {
	t.Helper()
	deployment := find[appsv1.Deployment](t, manifest, "Deployment", name)
	text, err := yaml.Marshal(deployment.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The server applies changed rules by itself. A new pod would begin with an empty volume of counters.
func TestARuleChangeKeepsThePodOfTheChart(t *testing.T) {
	before := render(t, map[string]any{})
	after := render(t, map[string]any{"rules": map[string]any{"rules.yaml": otherRules}})
	if rules := find[corev1.ConfigMap](t, after, "ConfigMap", "edge-tidegate-rules"); rules.Data["rules.yaml"] != otherRules {
		t.Fatalf("the rules are not in the ConfigMap: %v", rules.Data)
	}
	if before, after := template(t, before, "edge-tidegate"), template(t, after, "edge-tidegate"); before != after {
		t.Errorf("the pod changed with the rules:\n%s\n%s", before, after)
	}
}

func TestARuleChangeKeepsThePodOfTheKustomization(t *testing.T) {
	top, base := overlay(t, "")
	before := kustomizeIn(t, top)
	if err := os.WriteFile(filepath.Join(base, "rules.yaml"), []byte(otherRules), 0o644); err != nil {
		t.Fatal(err)
	}
	after := kustomizeIn(t, top)
	if rules := find[corev1.ConfigMap](t, after, "ConfigMap", "tidegate-rules"); rules.Data["rules.yaml"] != otherRules {
		t.Fatalf("the rules are not in the ConfigMap: %v", rules.Data)
	}
	if before, after := template(t, before, "tidegate"), template(t, after, "tidegate"); before != after {
		t.Errorf("the pod changed with the rules:\n%s\n%s", before, after)
	}
}

// In a namespace with other pods, the kustomization affects neither these pods nor the namespace itself.
func TestTheKustomizationConcernsItsOwnPodsOnly(t *testing.T) {
	top, _ := overlay(t, "namespace: production\n")
	text := kustomizeIn(t, top)
	for _, kind := range decode(t, "overlay", text) {
		if kind == "Namespace" {
			t.Errorf("the overlay would change the namespace itself:\n%s", text)
		}
	}
	pod := find[appsv1.Deployment](t, text, "Deployment", "tidegate").Spec.Template.Labels
	policy := find[networkingv1.NetworkPolicy](t, text, "NetworkPolicy", "tidegate").Spec.PodSelector.MatchLabels
	budget := find[policyv1.PodDisruptionBudget](t, text, "PodDisruptionBudget", "tidegate").Spec.Selector.MatchLabels
	service := find[corev1.Service](t, text, "Service", "tidegate").Spec.Selector
	for name, selector := range map[string]map[string]string{"policy": policy, "budget": budget, "service": service} {
		if selector["app.kubernetes.io/name"] != "tidegate" {
			t.Errorf("the %s selects %v", name, selector)
		}
		for key, value := range selector {
			if pod[key] != value {
				t.Errorf("the %s does not select the pod: %v, %v", name, selector, pod)
			}
		}
	}
}

// secured is a release with TLS, tokens, a store with a password and its own authority, and more files.
var secured = map[string]any{
	"replicas": 2,
	"tls": map[string]any{
		"grpc": map[string]any{"secretName": "grpc-tls", "clientCa": true, "allowSan": []any{"envoy.example", "spiffe://example.org/envoy"}},
		"http": map[string]any{"secretName": "http-tls"},
	},
	"tokens": map[string]any{"secretName": "http-tokens"},
	"counters": map[string]any{
		"url":         "rediss://store.example:6379",
		"password":    map[string]any{"secretName": "store", "key": "secret"},
		"ca":          map[string]any{"secretName": "store-ca"},
		"certificate": map[string]any{"secretName": "store-client"},
	},
	"extraEnv":          []any{map[string]any{"name": "TIDEGATE_XDS_HEADER", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "xds", "key": "header"}}}},
	"envFrom":           []any{map[string]any{"secretRef": map[string]any{"name": "otlp"}}},
	"extraVolumes":      []any{map[string]any{"name": "blocks", "configMap": map[string]any{"name": "blocks"}}},
	"extraVolumeMounts": []any{map[string]any{"name": "blocks", "mountPath": "/etc/tidegate/blocks", "readOnly": true}},
	"networkPolicy": map[string]any{"egress": []any{map[string]any{
		"to":    []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}},
		"ports": []any{map[string]any{"protocol": "TCP", "port": 6379}},
	}}},
	"serviceMonitor": map[string]any{
		"enabled":       true,
		"tlsConfig":     map[string]any{"serverName": "tidegate.example"},
		"authorization": map[string]any{"credentials": map[string]any{"name": "prometheus", "key": "token"}},
	},
}

func TestTheChartHasTlsTokensAndTheStoresPassword(t *testing.T) {
	text := render(t, secured)
	decode(t, "helm", text)
	deployment := find[appsv1.Deployment](t, text, "Deployment", "edge-tidegate")
	container := deployment.Spec.Template.Spec.Containers[0]
	environment := map[string]string{}
	for _, variable := range container.Env {
		environment[variable.Name] = variable.Value
	}
	mounts, secrets := map[string]string{}, map[string]string{}
	for _, mount := range container.VolumeMounts {
		mounts[mount.Name] = mount.MountPath
	}
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.Secret != nil {
			secrets[mounts[volume.Name]] = volume.Secret.SecretName
		}
	}
	// Each variable names a file of the Secret that is mounted there.
	for name, expected := range map[string][2]string{
		"TIDEGATE_TLS_CERT":               {"grpc-tls", "tls.crt"},
		"TIDEGATE_TLS_KEY":                {"grpc-tls", "tls.key"},
		"TIDEGATE_TLS_CLIENT_CA":          {"grpc-tls", "ca.crt"},
		"TIDEGATE_HTTP_TLS_CERT":          {"http-tls", "tls.crt"},
		"TIDEGATE_HTTP_TLS_KEY":           {"http-tls", "tls.key"},
		"TIDEGATE_HTTP_TOKEN_FILE":        {"http-tokens", "tokens"},
		"TIDEGATE_COUNTERS_PASSWORD_FILE": {"store", "secret"},
		"TIDEGATE_COUNTERS_CA":            {"store-ca", "ca.crt"},
		"TIDEGATE_COUNTERS_CERT":          {"store-client", "tls.crt"},
		"TIDEGATE_COUNTERS_KEY":           {"store-client", "tls.key"},
	} {
		folder, file := filepath.Split(environment[name])
		if secrets[filepath.Clean(folder)] != expected[0] || file != expected[1] {
			t.Errorf("%s is %q, expected %v; Secrets: %v", name, environment[name], expected, secrets)
		}
	}
	if environment["TIDEGATE_TLS_ALLOW_SAN"] != "envoy.example,spiffe://example.org/envoy" ||
		environment["TIDEGATE_COUNTERS"] != "rediss://store.example:6379" {
		t.Errorf("%v", environment)
	}
	if len(container.EnvFrom) != 1 || mounts["blocks"] != "/etc/tidegate/blocks" {
		t.Errorf("%v, %v", container.EnvFrom, mounts)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("a probe of a port with TLS by %s", probe.HTTPGet.Scheme)
		}
	}
	monitor := find[monitoringv1.ServiceMonitor](t, text, "ServiceMonitor", "edge-tidegate").Spec.Endpoints[0]
	if monitor.Scheme != "https" || monitor.Authorization == nil {
		t.Errorf("%+v", monitor)
	}
}

func TestTheChartOpensTheWayToTheStore(t *testing.T) {
	policy := find[networkingv1.NetworkPolicy](t, render(t, secured), "NetworkPolicy", "edge-tidegate").Spec
	var ports []int
	for _, rule := range policy.Egress {
		for _, port := range rule.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	if len(ports) != 3 || ports[0] != 6379 || ports[1] != 53 || ports[2] != 53 {
		t.Errorf("egress to the ports %v", ports)
	}
	closed := find[networkingv1.NetworkPolicy](t, render(t, map[string]any{}), "NetworkPolicy", "edge-tidegate").Spec
	if len(closed.Egress) != 0 || len(closed.PolicyTypes) != 2 {
		t.Errorf("without egress rules nothing is open: %+v", closed)
	}
}

func TestTheChartRefusesValuesThatCannotWork(t *testing.T) {
	for expected, values := range map[string]map[string]any{
		"networkPolicy.egress":      {"counters": map[string]any{"url": "redis://valkey:6379"}},
		"replicas: 1":               {"replicas": 2, "persistence": map[string]any{"enabled": true}},
		"needs tls.grpc.secretName": {"tls": map[string]any{"grpc": map[string]any{"clientCa": true}}},
		"maps no ports":             {"service": map[string]any{"grpcPort": 9000}},
		"A is in env and in":        {"env": map[string]any{"A": "1"}, "extraEnv": []any{map[string]any{"name": "A", "value": "2"}}},
		"needs tls.grpc.clientCa":   {"tls": map[string]any{"grpc": map[string]any{"secretName": "a", "allowSan": []any{"b"}}}},
	} {
		if _, err := tryToRender(t, values); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v, expected %q", err, expected)
		}
	}
}

// environment returns the variables of a pod's only container, and fails if a name is there twice: Helm 4 refuses such a manifest.
func environment(t *testing.T, deployment appsv1.Deployment) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if _, isTwice := found[variable.Name]; isTwice {
			t.Errorf("%s is set twice", variable.Name)
		}
		found[variable.Name] = variable.Value
	}
	return found
}

// ofChart renders the Deployment with the values of a file, whose numbers are floating-point numbers.
func ofChart(t *testing.T, values string) appsv1.Deployment {
	t.Helper()
	parsed, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	return find[appsv1.Deployment](t, render(t, parsed), "Deployment", "edge-tidegate")
}

func TestNumbersOfVariablesHaveNoExponent(t *testing.T) {
	found := environment(t, ofChart(t, "env: { A: 1000000, B: 0.5, C: true, D: 5s, E: 12345678901 }"))
	for name, expected := range map[string]string{"A": "1000000", "B": "0.5", "C": "true", "D": "5s", "E": "12345678901"} {
		if found[name] != expected {
			t.Errorf("%s is %q, expected %q", name, found[name], expected)
		}
	}
}

func TestVariablesOfTheUserReplaceThoseOfTheChart(t *testing.T) {
	found := environment(t, ofChart(t, `
env: { TIDEGATE_LOG_FORMAT: text }
extraEnv: [{ name: TIDEGATE_DRAIN_DELAY, value: 1m }, { name: TIDEGATE_CONTROL, value: any }]
control: { reach: loopback }
tokens: { secretName: tokens }`))
	for name, expected := range map[string]string{"TIDEGATE_LOG_FORMAT": "text", "TIDEGATE_DRAIN_DELAY": "1m",
		"TIDEGATE_CONTROL": "any", "TIDEGATE_RULES": "/etc/tidegate/rules", "TIDEGATE_LISTEN": "0.0.0.0:8081"} {
		if found[name] != expected {
			t.Errorf("%s is %q, expected %q", name, found[name], expected)
		}
	}
}

// Helm merges the maps of values: a default file of rules would be in force beside the files of the user.
func TestTheExampleOfTheChartIsInForceOnlyWithoutRules(t *testing.T) {
	for _, one := range []struct {
		rules    map[string]any
		expected string
	}{
		{map[string]any{}, "rules.yaml"},
		{map[string]any{"edge.yaml": otherRules}, "edge.yaml"},
	} {
		values := map[string]any{"rules": one.rules}
		files := find[corev1.ConfigMap](t, render(t, values), "ConfigMap", "edge-tidegate-rules").Data
		if len(files) != 1 || !strings.Contains(files[one.expected], "domain: edge\n") {
			t.Errorf("%v: %v", one.rules, files)
		}
		if isSaid := strings.Contains(notes(t, values), "The rules are an example"); isSaid != (len(one.rules) == 0) {
			t.Errorf("%v: %v", one.rules, isSaid)
		}
	}
}

func plain(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Envoy admits every request while it has no server. A pod that is replaced serves until no Envoy calls it, and then has time to stop.
func TestAnUpdateLeavesNoEnvoyWithoutAServer(t *testing.T) {
	// The default of --drain-timeout, and the time that a stop waits for the last snapshot.
	const stop = 10*time.Second + 10*time.Second
	for _, one := range []struct {
		deployment appsv1.Deployment
		delay      time.Duration
		stop       time.Duration
	}{
		// Envoy resolves a headless Service every 5 s, and DNS may keep the answer for 30 s.
		{ofChart(t, ""), 35 * time.Second, stop},
		{find[appsv1.Deployment](t, kustomize(t, "kubernetes/standalone"), "Deployment", "tidegate"), 35 * time.Second, stop},
		{find[appsv1.Deployment](t, kustomize(t, "kubernetes/shared"), "Deployment", "tidegate"), 35 * time.Second, stop},
		{find[appsv1.Deployment](t, plain(t, "kubernetes/istio.yaml"), "Deployment", "ratelimit"), 10 * time.Second, stop / 2},
		{find[appsv1.Deployment](t, plain(t, "kubernetes/limitador.yaml"), "Deployment", "limitador-limitador"), 10 * time.Second, stop / 2},
	} {
		name, strategy := one.deployment.Name, one.deployment.Spec.Strategy.RollingUpdate
		if strategy == nil || strategy.MaxSurge.IntValue() != 1 || strategy.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: %+v", name, strategy)
		}
		delay, err := time.ParseDuration(environment(t, one.deployment)["TIDEGATE_DRAIN_DELAY"])
		if err != nil || delay < one.delay {
			t.Errorf("%s: the drain delay %v, %v", name, delay, err)
		}
		grace := one.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
		if grace == nil || time.Duration(*grace)*time.Second < delay+one.stop {
			t.Errorf("%s: the grace period is shorter than a stop", name)
		}
	}
}

// With a volume the next pod begins when the pod before it has ended.
func TestAPodWithAVolumeEndsWithoutADelay(t *testing.T) {
	if found := environment(t, ofChart(t, "persistence: { enabled: true }")); found["TIDEGATE_DRAIN_DELAY"] != "0s" {
		t.Errorf("%v", found)
	}
}
