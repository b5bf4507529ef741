package main

import (
	"archive/zip"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/registry/pkg/model"
)

// validate checks a document by a published schema.
func validate(t *testing.T, schema, document []byte) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		t.Fatal(err)
	}
	return resolved.Validate(value)
}

// replaceKey returns a document in which a key has another value.
func replaceKey(t *testing.T, document []byte, key string, value any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(document, &m); err != nil {
		t.Fatal(err)
	}
	m[key] = value
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// server.json is valid by the registry's schema, and names the release's bundles.
func TestServerJSON(t *testing.T) {
	dir, v := builtRelease(t)
	module := strings.TrimSpace(command(t, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/modelcontextprotocol/registry"))
	schema, err := os.ReadFile(filepath.Join(module, "internal", "validators", "schemas", model.CurrentSchemaVersion+".json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, schema, document); err != nil {
		t.Errorf("%v\n%s", err, document)
	}
	for key, value := range map[string]any{"name": "rootsfs", "description": strings.Repeat("x", 101), "packages": []any{map[string]any{"registryType": "npm"}}} {
		if validate(t, schema, replaceKey(t, document, key, value)) == nil {
			t.Errorf("the schema accepts another %s: nothing is checked", key)
		}
	}
	var got struct {
		Name, Version string
		Packages      []struct{ RegistryType, Identifier, Version, FileSHA256 string }
	}
	if err := json.Unmarshal(document, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != v.semver() || len(got.Packages) != 3 || got.Packages[0].Version != v.semver() {
		t.Errorf("%+v", got)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Packages[1:] {
		name := p.Identifier[strings.LastIndex(p.Identifier, "/")+1:]
		if p.RegistryType != "mcpb" || !strings.Contains(string(sums), p.FileSHA256+"  "+name+"\n") {
			t.Errorf("%+v is not in SHA256SUMS", p)
		}
	}
	npm := onlyFile(t, dir, "rootsfs-"+v.semver()+".tgz")
	data, err := os.ReadFile(npm)
	if err != nil {
		t.Fatal(err)
	}
	if p := string(tarFile(t, data, "package/package.json")); !strings.Contains(p, `"mcpName": "`+got.Name+`"`) {
		t.Errorf("the npm package does not name %s:\n%s", got.Name, p)
	}
}

// mcpbPackage is the npm package that publishes the schema of bundles.
const mcpbPackage = "@anthropic-ai/mcpb@2.1.2"

// The bundles are valid by the published schema, and the program that a host starts from
// this machine's bundle answers an MCP client.
func TestBundle(t *testing.T) {
	dir, v := builtRelease(t)
	schema := bundleSchema(t)
	for _, arch := range []string{"amd64", "arm64"} {
		to := t.TempDir()
		unzip(t, filepath.Join(dir, fmt.Sprintf("rootsfs-%s-linux-%s.mcpb", v.semver(), arch)), to)
		document, err := os.ReadFile(filepath.Join(to, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, document); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
		if validate(t, schema, replaceKey(t, document, "server", map[string]any{"type": "exe"})) == nil || validate(t, schema, replaceKey(t, document, "other", 1)) == nil {
			t.Error("the schema accepts another server: nothing is checked")
		}
		if arch != runtime.GOARCH {
			continue
		}
		var m manifest
		if err := json.Unmarshal(document, &m); err != nil {
			t.Fatal(err)
		}
		served := servedDir(t)
		fill := strings.NewReplacer("${__dirname}", to, "${user_config.directories}", served).Replace
		var args []string
		for _, a := range m.Server.Config.Args {
			args = append(args, fill(a))
		}
		cmd := exec.Command(fill(m.Server.Config.Command), args...)
		home := t.TempDir()
		cmd.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home}
		askServer(t, cmd)
	}
}

// bundleSchema fetches the published schema for the version of manifest that the builder writes. It
// skips the test if npm cannot fetch the package.
func bundleSchema(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("npm", "pack", "--silent", "--cache", filepath.Join(dir, "cache"), mcpbPackage)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the npm registry cannot be reached: %v\n%s", err, out)
	}
	data, err := os.ReadFile(onlyFile(t, dir, "*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	return tarFile(t, data, "package/dist/mcpb-manifest-v"+(&release{description: &description{}}).manifest().ManifestVersion+".schema.json")
}

// unzip extracts an archive with the modes of its files.
func unzip(t *testing.T, name, to string) {
	t.Helper()
	archive, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, f.Name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, f.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// The bill of materials names each module of the program with its version and sum. The modules
// that only the packaging of a release uses, such as goreleaser, are not among them.
func TestMaterials(t *testing.T) {
	dir, v := builtRelease(t)
	info, err := buildinfo.ReadFile(filepath.Join(extractArchive(t), "bin", "rootsfs"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rootsfs-%s-linux-%s.cdx.json", v.semver(), runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Metadata.Component.Version != v.name || len(b.Components) != len(info.Deps)+1 || len(info.Deps) < 10 {
		t.Errorf("%s has %d components, and the program %d modules", b.Metadata.Component.Version, len(b.Components), len(info.Deps))
	}
	for _, m := range info.Deps {
		i := slices.IndexFunc(b.Components, func(c bomComponent) bool { return c.Name == m.Path })
		if i < 0 || b.Components[i].Version != m.Version || b.Components[i].Properties[0].Value != m.Sum || !strings.HasPrefix(b.Components[i].PURL, "pkg:golang/"+m.Path+"@") {
			t.Errorf("%s %s is missing from the bill, or its version, sum or URL is wrong", m.Path, m.Version)
		}
		for _, builder := range []string{"github.com/goreleaser/", "github.com/modelcontextprotocol/registry", "github.com/go-git/"} {
			if strings.HasPrefix(m.Path, builder) {
				t.Errorf("the program contains %s", m.Path)
			}
		}
	}
}
