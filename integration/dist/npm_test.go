package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// npmRegistry serves the packages of a release as the npm registry would.
type npmRegistry struct {
	t        *testing.T
	files    map[string][]byte // by the path of a URL
	mu       sync.Mutex
	requests []string // the paths of requests
}

// newNPMRegistry starts a registry with the release's packages and returns it with its address.
func newNPMRegistry(t *testing.T) (*npmRegistry, string) {
	t.Helper()
	dir, _ := builtRelease(t)
	r := &npmRegistry{t: t, files: map[string][]byte{}}
	server := httptest.NewUnstartedServer(r)
	address := "http://" + server.Listener.Addr().String()
	names, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(names) != 3 {
		t.Fatalf("the release has the npm packages %q, %v", names, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var p map[string]any
		if err := json.Unmarshal(tarFile(t, data, "package/package.json"), &p); err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum512(data)
		p["dist"] = map[string]any{"tarball": address + "/-/" + filepath.Base(name), "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		version := p["version"].(string)
		document, err := json.Marshal(map[string]any{"name": p["name"], "dist-tags": map[string]any{"latest": version}, "versions": map[string]any{version: p}})
		if err != nil {
			t.Fatal(err)
		}
		r.files["/"+p["name"].(string)], r.files["/-/"+filepath.Base(name)] = document, data
	}
	server.Start()
	t.Cleanup(server.Close)
	return r, address
}

// ServeHTTP implements http.Handler.
func (r *npmRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, _ := url.PathUnescape(req.URL.EscapedPath())
	r.mu.Lock()
	r.requests = append(r.requests, path)
	r.mu.Unlock()
	data, ok := r.files[path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	if strings.HasPrefix(path, "/-/") {
		w.Header().Set("Content-Type", "application/octet-stream")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = w.Write(data)
}

// tarFile returns a file of a compressed archive.
func tarFile(t *testing.T, archive []byte, name string) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			data, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}

// npmEnv returns the environment of an npm that knows one registry and no user's settings.
func npmEnv(t *testing.T, registry string) []string {
	t.Helper()
	home := t.TempDir()
	keep := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(strings.ToLower(name), "npm_") || strings.HasPrefix(name, "XDG_") || strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "NODE_OPTIONS"
	})
	return append(keep, "HOME="+home, "npm_config_registry="+registry, "npm_config_cache="+filepath.Join(home, "cache"), "npm_config_userconfig=/dev/null",
		"npm_config_update_notifier=false", "npm_config_audit=false", "npm_config_fund=false", "XDG_RUNTIME_DIR="+home)
}

// npx installs the packages from a registry, and the program in them answers an MCP
// client. npx fetches two packages only: the one that users install, and the one with this
// platform's program.
func TestNPM(t *testing.T) {
	registry, address := newNPMRegistry(t)
	cmd := exec.Command("npx", "-y", "rootsfs", "serve", servedDir(t))
	cmd.Env, cmd.Dir = npmEnv(t, address), t.TempDir()
	askServer(t, cmd)
	registry.mu.Lock()
	defer registry.mu.Unlock()
	fetched := 0
	for _, path := range registry.requests {
		if strings.HasPrefix(path, "/-/") {
			fetched++
		}
		if registry.files[path] == nil {
			t.Errorf("npm asked for %s", path)
		}
	}
	if fetched != 2 {
		t.Errorf("npm fetched %d packages, want 2: %q", fetched, registry.requests)
	}
}

// servedDir returns a directory with one file.
func servedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "code")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("from code\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// askServer starts cmd, an MCP server that serves a directory of servedDir, and reads the file of
// this directory through the server.
func askServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ctx := context.Background()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	defer session.Close()
	if name := session.InitializeResult().ServerInfo.Name; name != "rootsfs" {
		t.Errorf("the server is called %q", name)
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": "code/hello"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || result.IsError || text.Text != "from code\n" {
		t.Errorf("read_text_file: %+v", result)
	}
}
