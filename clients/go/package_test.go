package tidegate

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const modulePath = "github.com/tidegate/tidegate/clients/go"

// TestTheReadmeWorksWithTheModuleInAnEmptyOne packs the module as a module proxy serves it, installs it from there in an empty module, and
// runs the README's first lines.
func TestTheReadmeWorksWithTheModuleInAnEmptyOne(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)[1]
	server := start(t, program(), "serve", "--listen", "127.0.0.1:0", "--log-format", "json")
	program := `package main

import (
	"context"
	"fmt"
	"log"

	tidegate "` + modulePath + `"
)

func main() {
	ctx := context.Background()
` + strings.ReplaceAll(string(lines), "127.0.0.1:8081", server.address) + `
	fmt.Println(decision.Allowed, decision.Remaining, err)
}
`
	version := time.Now().UTC().Format("v0.0.0-20060102150405-") + "000000000000"
	proxy, folder := t.TempDir(), t.TempDir()
	pack(t, filepath.Join(proxy, modulePath, "@v"), version)
	write(t, filepath.Join(folder, "main.go"), program)
	write(t, filepath.Join(folder, "go.mod"), "module empty\n\ngo 1.25.0\n\nrequire "+modulePath+" "+version+"\n")
	env := append(os.Environ(),
		"GOPROXY=file://"+proxy+","+goEnv(t, "GOPROXY"), "GONOSUMDB="+modulePath, "GOFLAGS=-mod=mod -modcacherw")
	t.Cleanup(func() {
		_ = os.RemoveAll(filepath.Join(goEnv(t, "GOMODCACHE"), modulePath+"@"+version))
		_ = os.RemoveAll(filepath.Join(goEnv(t, "GOMODCACHE"), "cache/download", modulePath))
	})
	printed := ""
	// The demo rule admits 5 a minute: on a slow machine the first hit may fit again.
	for _, expected := range []string{"^true 4 <nil>\n$", "^true [34] <nil>\n$"} {
		run := exec.Command("go", "run", ".")
		run.Dir, run.Env = folder, env
		output, err := run.Output()
		if err != nil || !regexp.MustCompile(expected).Match(output) {
			var stderr []byte
			if exit, isExit := err.(*exec.ExitError); isExit {
				stderr = exit.Stderr
			}
			t.Fatalf("%s%s: %v", output, stderr, err)
		}
		printed += string(output)
	}
	if transcript := os.Getenv("TIDEGATE_README_TRANSCRIPT"); transcript != "" {
		write(t, transcript, string(lines)+"\nOutput of two runs:\n"+printed)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pack writes the files of a module proxy for this module.
func pack(t *testing.T, folder, version string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, version+".mod"), string(module))
	write(t, filepath.Join(folder, version+".info"), fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version))
	file, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(file)
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "." {
				// Another module.
				return fs.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		packed, err := archive.Create(modulePath + "@" + version + "/" + filepath.ToSlash(path))
		if err != nil {
			return err
		}
		_, err = packed.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
