// Who reaches the server, and whether the install states it.
package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// An Envoy that may not connect admits every request by default, without a sign.
func TestEveryPodOfTheClusterMayAskForDecisions(t *testing.T) {
	for name, manifest := range map[string]string{
		"edge-tidegate": render(t, map[string]any{}),
		"tidegate":      kustomize(t, "kubernetes/standalone"),
	} {
		policy := find[networkingv1.NetworkPolicy](t, manifest, "NetworkPolicy", name).Spec
		reached := map[string]bool{}
		for _, rule := range policy.Ingress {
			for _, from := range rule.From {
				for _, port := range rule.Ports {
					selector := from.NamespaceSelector
					isAll := selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 && from.PodSelector == nil
					reached[port.Port.String()] = reached[port.Port.String()] || isAll
				}
			}
		}
		if !reached["grpc"] || reached["http"] {
			t.Errorf("%s: all pods reach %v", name, reached)
		}
	}
}

func notes(t *testing.T, values map[string]any) string {
	t.Helper()
	files, err := renderFiles(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return files["tidegate/templates/NOTES.txt"]
}

func TestTheFirstLineOfAnInstallStatesWhoMayConnect(t *testing.T) {
	from := func(from ...any) map[string]any {
		return map[string]any{"networkPolicy": map[string]any{"grpcFrom": from}}
	}
	labelled := map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"example.com/edge": "yes"}}}
	for _, one := range []struct {
		values   map[string]any
		first    string
		contains string
	}{
		{map[string]any{}, "Every pod of the cluster may connect to edge-tidegate.", "edge-tidegate.default.svc.cluster.local:8081, with HTTP/2."},
		{from(labelled), "ONLY THESE may connect to edge-tidegate;", "kubectl label namespace NAMESPACE example.com/edge=yes"},
		{from(map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}), "ONLY THESE may connect", "cidr: 10.0.0.0/8"},
		{from(), "NO ENVOY may connect to edge-tidegate", "networkPolicy.grpcFrom is empty"},
		{map[string]any{"networkPolicy": map[string]any{"enabled": false}}, "Every address that reaches the pods", "enabled is false"},
		{map[string]any{"replicas": 3}, "Every pod", "a client may get 3 times each limit"},
	} {
		text := notes(t, one.values)
		if !strings.HasPrefix(text, one.first) || !strings.Contains(text, one.contains) {
			t.Errorf("%v: no %q, %q in:\n%s", one.values, one.first, one.contains, text)
		}
	}
}

// The label is in every page that states how to admit fewer pods.
func TestThePagesStateWhoMayConnect(t *testing.T) {
	for file, expected := range map[string]string{
		"../../../deploy/kubernetes/README.md":                      "Every pod of the cluster may",
		"../../../deploy/kubernetes/standalone/kustomization.yaml":  "Every pod of the cluster may",
		"../../../docs/deployment.md":                               "Every pod of the cluster may",
		"../../../deploy/kubernetes/standalone/network-policy.yaml": "every pod of the cluster",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), expected) {
			t.Errorf("%s: no %q", file, expected)
		}
	}
}

func TestAMisspeltValueIsAnError(t *testing.T) {
	for expected, values := range map[string]map[string]any{
		"replica":     {"replica": 2},
		"grpcfrom":    {"networkPolicy": map[string]any{"grpcfrom": []any{}}},
		"secretname":  {"tls": map[string]any{"grpc": map[string]any{"secretname": "a"}}},
		"maxReplicas": {"autoscaling": map[string]any{"maxReplicas": "many"}},
		"pullPolicy":  {"image": map[string]any{"pullPolicy": "Sometimes"}},
		"rules.yaml":  {"rules": map[string]any{"rules.yaml": map[string]any{"domain": "edge"}}},
		"grpcPort":    {"service": map[string]any{"grpcPort": 70000}},
		"reach":       {"control": map[string]any{"reach": "everywhere"}},
	} {
		if _, err := tryToRender(t, values); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v, expected %q", err, expected)
		}
	}
}

// keys returns the paths of all values that are named one by one, without the paths in free maps.
func keys(prefix string, values map[string]any, schema map[string]any, found map[string]bool) {
	properties, _ := schema["properties"].(map[string]any)
	for name, value := range values {
		if schema["additionalProperties"] != false {
			return
		}
		found[prefix+name] = true
		inner, isMap := value.(map[string]any)
		innerSchema, _ := properties[name].(map[string]any)
		if isMap && innerSchema != nil {
			keys(prefix+name+".", inner, innerSchema, found)
		}
	}
}

// properties returns the paths that a schema names.
func properties(prefix string, schema map[string]any, found map[string]bool) {
	inner, _ := schema["properties"].(map[string]any)
	for name, value := range inner {
		if name == "global" || (name == "claims" && prefix == "resources.") {
			continue
		}
		found[prefix+name] = true
		properties(prefix+name+".", value.(map[string]any), found)
	}
}

func TestTheSchemaNamesTheValuesOfTheChart(t *testing.T) {
	read := func(file string) map[string]any {
		text, err := os.ReadFile(filepath.Join(deploy, "helm/tidegate", file))
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	values, schema := read("values.yaml"), read("values.schema.json")
	inValues, inSchema := map[string]bool{}, map[string]bool{}
	keys("", values, schema, inValues)
	properties("", schema, inSchema)
	if len(inValues) < 60 || !reflect.DeepEqual(inValues, inSchema) {
		for key := range inSchema {
			if !inValues[key] {
				t.Errorf("the schema has %s, values.yaml does not", key)
			}
		}
		for key := range inValues {
			if !inSchema[key] {
				t.Errorf("values.yaml has %s, the schema does not", key)
			}
		}
		t.Errorf("%d values, %d in the schema", len(inValues), len(inSchema))
	}
}

func TestThePrometheusRuleHasTheAlertsOfTheFile(t *testing.T) {
	text := render(t, map[string]any{"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "stack"}}})
	rule := find[monitoringv1.PrometheusRule](t, text, "PrometheusRule", "edge-tidegate")
	file, err := os.ReadFile(filepath.Join(deploy, "prometheus/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var expected monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(file, &expected); err != nil {
		t.Fatal(err)
	}
	asJSON := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if len(expected.Groups) == 0 || len(expected.Groups[0].Rules) < 10 || asJSON(rule.Spec) != asJSON(expected) {
		t.Errorf("%s\nexpected\n%s", asJSON(rule.Spec), asJSON(expected))
	}
	if rule.Labels["release"] != "stack" {
		t.Errorf("labels %v", rule.Labels)
	}
}

func TestReplicasFollowTheLoadWhereCountersAreShared(t *testing.T) {
	autoscaling := map[string]any{"enabled": true, "maxReplicas": 9}
	text := render(t, map[string]any{
		"autoscaling":   autoscaling,
		"counters":      map[string]any{"url": "redis://valkey:6379"},
		"networkPolicy": map[string]any{"enabled": false},
	})
	scaler := find[autoscalingv2.HorizontalPodAutoscaler](t, text, "HorizontalPodAutoscaler", "edge-tidegate").Spec
	deployment := find[appsv1.Deployment](t, text, "Deployment", "edge-tidegate")
	if scaler.ScaleTargetRef.Name != deployment.Name || *scaler.MinReplicas != 2 || scaler.MaxReplicas != 9 {
		t.Errorf("%+v", scaler)
	}
	if deployment.Spec.Replicas != nil {
		t.Errorf("the deployment would set %d replicas back", *deployment.Spec.Replicas)
	}
	for expected, values := range map[string]map[string]any{
		"autoscaling.enabled takes counters.url": {"autoscaling": autoscaling},
		"takes persistence.enabled=false":        {"autoscaling": autoscaling, "counters": map[string]any{"url": "redis://a"}, "persistence": map[string]any{"enabled": true}},
		"control.console takes control.reach":    {"control": map[string]any{"console": true}},
		"without them no caller has a role":      {"control": map[string]any{"reach": "any"}},
	} {
		if _, err := tryToRender(t, values); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v, expected %q", err, expected)
		}
	}
}

func TestPodsAreSpreadOverNodesAndZones(t *testing.T) {
	own := map[string]any{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
		"labelSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
	for _, values := range []map[string]any{{}, {"topologySpreadConstraints": []any{own}}} {
		pod := find[appsv1.Deployment](t, render(t, values), "Deployment", "edge-tidegate").Spec.Template
		for _, constraint := range pod.Spec.TopologySpreadConstraints {
			labels := constraint.LabelSelector.MatchLabels
			if constraint.TopologyKey == "rack" {
				if len(labels) != 1 || labels["a"] != "b" || constraint.MaxSkew != 2 {
					t.Errorf("%+v", constraint)
				}
				continue
			}
			if len(labels) == 0 || labels["app.kubernetes.io/instance"] != pod.Labels["app.kubernetes.io/instance"] {
				t.Errorf("%s selects %v", constraint.TopologyKey, labels)
			}
		}
		if expected := 2 - len(values); len(pod.Spec.TopologySpreadConstraints) != expected {
			t.Errorf("%d constraints, expected %d", len(pod.Spec.TopologySpreadConstraints), expected)
		}
	}
}

func TestTheChartSetsControlAndConsole(t *testing.T) {
	text := render(t, map[string]any{
		"control": map[string]any{"reach": "loopback", "console": true},
		"tokens":  map[string]any{"secretName": "tokens"},
	})
	environment := map[string]string{}
	for _, variable := range find[appsv1.Deployment](t, text, "Deployment", "edge-tidegate").Spec.Template.Spec.Containers[0].Env {
		environment[variable.Name] = variable.Value
	}
	if environment["TIDEGATE_CONTROL"] != "loopback" || environment["TIDEGATE_CONSOLE"] != "true" {
		t.Errorf("%v", environment)
	}
	if text := notes(t, map[string]any{"control": map[string]any{"reach": "loopback", "console": true}, "tokens": map[string]any{"secretName": "tokens"}}); !strings.Contains(text, "port-forward deploy/edge-tidegate 8082, then http://localhost:8082/console") {
		t.Error(text)
	}
}
