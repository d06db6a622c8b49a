package tidegate

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheReadmeWorksInAnEmptyModule builds the README's first lines in a module of their own and runs them.
func TestTheReadmeWorksInAnEmptyModule(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)[1]
	server := start(t, "serve", "--listen", "127.0.0.1:0")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	program := `package main

import (
	"context"
	"fmt"
	"log"

	tidegate "github.com/tidegate/tidegate/clients/go"
)

func main() {
	ctx := context.Background()
` + strings.ReplaceAll(string(lines), "127.0.0.1:8081", server.address) + `
	fmt.Println(decision.Allowed, decision.Remaining, err)
}
`
	folder := t.TempDir()
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, requirements, _ := strings.Cut(string(module), "go 1.25.0\n")
	module = []byte("module empty\n\ngo 1.25.0\n\nrequire github.com/tidegate/tidegate/clients/go v0.0.0\n\n" +
		"replace github.com/tidegate/tidegate/clients/go => " + here + "\n" + requirements)
	for name, text := range map[string][]byte{"main.go": []byte(program), "go.mod": module, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, expected := range []string{"true 4 <nil>", "true 3 <nil>"} {
		run := exec.Command("go", "run", "-mod=mod", ".")
		run.Dir = folder
		output, err := run.CombinedOutput()
		if err != nil || strings.TrimSpace(string(output)) != expected {
			t.Fatalf("%s: %v", output, err)
		}
	}
}
