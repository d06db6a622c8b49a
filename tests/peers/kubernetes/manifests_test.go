// The Kubernetes manifests of deploy/, rendered by the libraries of kustomize and Helm and decoded strictly into the
// types of the Kubernetes API: a field that is misspelt, misplaced or of another type is an error.
package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deploy = "../../../deploy"

// decode returns the kind of every document of a manifest, and fails on fields that the API does not know.
func decode(t *testing.T, name, manifest string) []string {
	t.Helper()
	var kinds []string
	for _, document := range strings.Split(manifest, "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		if head.Kind == "" {
			continue
		}
		object, known := map[string]any{
			"ConfigMap":               &corev1.ConfigMap{},
			"Deployment":              &appsv1.Deployment{},
			"HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
			"Namespace":               &corev1.Namespace{},
			"NetworkPolicy":           &networkingv1.NetworkPolicy{},
			"PersistentVolumeClaim":   &corev1.PersistentVolumeClaim{},
			"PodDisruptionBudget":     &policyv1.PodDisruptionBudget{},
			"PrometheusRule":          &monitoringv1.PrometheusRule{},
			"Service":                 &corev1.Service{},
			"ServiceMonitor":          &monitoringv1.ServiceMonitor{},
		}[head.Kind]
		if !known {
			t.Fatalf("%s: kind %s is not in the test's list", name, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %s: %v\n%s", name, head.Kind, err, document)
		}
		if deployment, is := object.(*appsv1.Deployment); is {
			checkDeployment(t, name, deployment)
		}
		kinds = append(kinds, head.Kind)
	}
	return kinds
}

// checkDeployment reports what the API server, or the restricted Pod Security Standard, would refuse.
func checkDeployment(t *testing.T, name string, deployment *appsv1.Deployment) {
	t.Helper()
	pod := deployment.Spec.Template
	if deployment.Spec.Selector == nil || len(deployment.Spec.Selector.MatchLabels) == 0 {
		t.Fatalf("%s: the deployment selects no pods", name)
	}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		if pod.Labels[key] != value {
			t.Errorf("%s: the selector's %s=%s is not among the pod's labels %v", name, key, value, pod.Labels)
		}
	}
	volumes := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = true
	}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s: %s mounts %s, which is no volume", name, container.Name, mount.Name)
			}
		}
		if !strings.Contains(container.Image, "tidegate") {
			continue
		}
		security := container.SecurityContext
		if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem ||
			security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation ||
			security.Capabilities == nil || len(security.Capabilities.Drop) == 0 {
			t.Errorf("%s: %s is not restricted: %+v", name, container.Name, security)
		}
		if container.ReadinessProbe == nil || container.LivenessProbe == nil {
			t.Errorf("%s: %s has no probes", name, container.Name)
		}
	}
}

func expectKinds(t *testing.T, name string, kinds []string, expected ...string) {
	t.Helper()
	found := " " + strings.Join(kinds, " ") + " "
	for _, kind := range expected {
		if !strings.Contains(found, " "+kind+" ") {
			t.Errorf("%s: no %s among %v", name, kind, kinds)
		}
	}
	if len(kinds) != len(expected) {
		t.Errorf("%s: %v, expected %v", name, kinds, expected)
	}
}

func TestPlainManifestsDecode(t *testing.T) {
	for _, file := range []string{"kubernetes/sidecar.yaml", "kubernetes/istio.yaml", "kubernetes/limitador.yaml",
		"kubernetes/standalone/namespace.yaml", "kubernetes/standalone/service-monitor.yaml"} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		if err != nil {
			t.Fatal(err)
		}
		if kinds := decode(t, file, string(text)); len(kinds) == 0 {
			t.Errorf("%s: no documents", file)
		}
	}
}

func kustomize(t *testing.T, folder string) string {
	t.Helper()
	return kustomizeIn(t, filepath.Join(deploy, folder))
}

func kustomizeIn(t *testing.T, folder string) string {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKustomizationWithSharedCountersDecodes(t *testing.T) {
	text := kustomize(t, "kubernetes/shared")
	kinds := decode(t, "kustomize shared", text)
	expectKinds(t, "kustomize shared", kinds,
		"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy",
		"Deployment", "Service", "NetworkPolicy")
	for _, expected := range []string{"replicas: 2", "value: redis://valkey:6379", "port: 53", "valkey/valkey:8-alpine"} {
		if !strings.Contains(text, expected) {
			t.Errorf("no %q in:\n%s", expected, text)
		}
	}
}

func TestKustomizationDecodes(t *testing.T) {
	text := kustomize(t, "kubernetes/standalone")
	kinds := decode(t, "kustomize", text)
	expectKinds(t, "kustomize", kinds,
		"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
	if !strings.Contains(text, "image: registry.example/tidegate:0.9.0") {
		t.Errorf("the image is not set:\n%s", text)
	}
}

func render(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := tryToRender(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func tryToRender(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	files, err := renderFiles(t, values)
	if err != nil {
		return "", err
	}
	var documents []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			documents = append(documents, text)
		}
	}
	return strings.Join(documents, "\n---\n"), nil
}

// renderFiles returns each template of the chart, rendered, by its path.
func renderFiles(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(deploy, "helm/tidegate"))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "edge", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

func TestChartDecodes(t *testing.T) {
	text := render(t, map[string]any{})
	kinds := decode(t, "helm", text)
	expectKinds(t, "helm", kinds, "ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
}

func TestChartDecodesWithEverySwitchTheOtherWay(t *testing.T) {
	text := render(t, map[string]any{
		"env":                       map[string]any{"TIDEGATE_MAX_COUNTERS": 1000},
		"imagePullSecrets":          []any{map[string]any{"name": "registry"}},
		"nodeSelector":              map[string]any{"kubernetes.io/arch": "arm64"},
		"networkPolicy":             map[string]any{"enabled": false},
		"persistence":               map[string]any{"enabled": true, "storageClassName": "fast"},
		"prometheusRule":            map[string]any{"enabled": true, "labels": map[string]any{"release": "stack"}},
		"podAnnotations":            map[string]any{"example.com/team": "edge"},
		"podDisruptionBudget":       map[string]any{"enabled": false},
		"serviceMonitor":            map[string]any{"enabled": true, "labels": map[string]any{"release": "stack"}},
		"topologySpreadConstraints": []any{},
	})
	kinds := decode(t, "helm", text)
	expectKinds(t, "helm", kinds,
		"ConfigMap", "Deployment", "Service", "ServiceMonitor", "PrometheusRule", "PersistentVolumeClaim")
	for _, expected := range []string{`name: TIDEGATE_MAX_COUNTERS, value: "1000"`, "type: Recreate", "arm64"} {
		if !strings.Contains(text, expected) {
			t.Errorf("no %q in:\n%s", expected, text)
		}
	}
}

// A misspelt field must fail: the other tests would prove nothing if decoding were lenient.
func TestDecodingIsStrict(t *testing.T) {
	var deployment appsv1.Deployment
	err := yaml.UnmarshalStrict([]byte("kind: Deployment\nspec: {replica: 1}\n"), &deployment)
	if err == nil {
		t.Fatal("a misspelt field was accepted")
	}
}

func TestComposeFilesLoad(t *testing.T) {
	for file, services := range map[string]int{"compose/compose.yaml": 2, "compose/shared.yaml": 3} {
		t.Run(file, func(t *testing.T) { loadCompose(t, file, services) })
	}
}

func loadCompose(t *testing.T, file string, services int) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(deploy, file)})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != services {
		t.Errorf("services: %v", project.ServiceNames())
	}
	for _, service := range project.Services {
		for _, volume := range service.Volumes {
			// An editor replaces the file: a mount of the file alone would keep the former file.
			if rules := service.Environment["TIDEGATE_RULES"]; rules != nil && strings.Contains(volume.Source, "rules") {
				if found, err := os.Stat(volume.Source); err != nil || !found.IsDir() || volume.Target != *rules {
					t.Errorf("%s mounts %s at %s, which is not the directory of its rules", service.Name, volume.Source, volume.Target)
				}
			}
			if volume.Type != "bind" {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", service.Name, err)
			}
		}
	}
}
