package hostconfig

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
)

var update = flag.Bool("update", false, "write the golden files anew")

const program = "/opt/rootsfs"

// testMachine returns the machine of the tests. path is the path of the configuration file, which
// decides whether the servers belong to a project.
func testMachine(path string) Machine {
	dirs := []string{"/home/u", "/home/u/code", "/home/u/code/docs", "/home/u/other/code", "/home/u/srv", "/usr/share/doc", "/"}
	files := []string{"/home/u/srv/dist/index.js", "/home/u/code/src/main.py", "/home/u/code/config.toml", "/home/u/code/tool.py",
		"/home/u/code/dist/index.js", "/home/u/code/db-config.json", "/home/u/memory.json"}
	return Machine{
		Home: "/home/u",
		Base: ProjectOf(path, "/home/u"),
		Look: func(path string) FileType {
			path = filepath.Clean(path)
			for _, d := range dirs {
				if d == path {
					return Dir
				}
			}
			for _, f := range files {
				if f == path {
					return File
				}
			}
			return Nothing
		},
		Project: func(dir string) string {
			for _, p := range []string{"/home/u/srv", "/home/u/code"} {
				if names.Under(dir, p) {
					return p
				}
			}
			return ""
		},
		Getenv: func(name string) string {
			return map[string]string{"HOME": "/home/u", "TOKEN": "s3cret", "LOGS": "/home/u/code"}[name]
		},
	}
}

// defaultFlags returns the flags for each server: its proposed roots and its variables.
func defaultFlags(c *Config, at Machine) map[*Server]RunFlags {
	all := map[*Server]RunFlags{}
	for _, s := range c.Servers {
		var h RunFlags
		for _, r := range c.Propose(s, at).Roots {
			h.Roots = append(h.Roots, r.Spec)
		}
		h.Env = names.List[string](s.Env)
		all[s] = h
	}
	return all
}

// plan returns a text with the parsed servers and the proposal for each.
func plan(c *Config, at Machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "format %s\n", c.Format)
	for _, s := range c.Servers {
		fmt.Fprintf(&b, "\nline %d: %v, %s\n", s.Line, s, [...]string{"stdio", "wrapped", "remote"}[s.Kind])
		if s.Kind != Stdio {
			continue
		}
		p := c.Propose(s, at)
		for _, r := range p.Roots {
			fmt.Fprintf(&b, "  root %s from %s\n", r.Spec, r.From)
		}
		if len(s.Env) > 0 {
			fmt.Fprintf(&b, "  env %q\n", s.Env)
		}
		if p.Fetcher != "" {
			fmt.Fprintf(&b, "  fetched by %s\n", p.Fetcher)
		}
		if s.IsContainer() {
			fmt.Fprintf(&b, "  a container\n")
		}
		for _, n := range p.Notes {
			fmt.Fprintf(&b, "  note: %s\n", n)
		}
	}
	return b.String()
}

// For each file in testdata, the proposals, the wrapped document and the document without secrets
// are compared with golden files that a person has checked. The wrapped document, unwrapped, is the
// original, byte for byte. Wrapping it again changes nothing.
func TestGolden(t *testing.T) {
	cases := 0
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		cases++
		t.Run(path, func(t *testing.T) { golden(t, path) })
		return nil
	})
	if err != nil || cases < 9 {
		t.Errorf("%d cases, %v", cases, err)
	}
}

func golden(t *testing.T, path string) {
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Parse some documents as files of a project, and the others as the user's own.
	name := filepath.Base(path)
	switch filepath.Base(filepath.Dir(path)) {
	case "code-project":
		name = "/home/u/code/.mcp.json"
	case "vscode":
		name = "/home/u/.config/Code/User/mcp.json"
	case ".cursor":
		name = "/home/u/code/.cursor/mcp.json"
	}
	c, err := Parse(name, doc, program)
	if err != nil {
		t.Fatal(err)
	}
	at := testMachine(name)
	wrapped := c.Wrap(program, defaultFlags(c, at))
	compare(t, path+".plan", []byte(plan(c, at)))
	compare(t, path+".wrapped", wrapped)
	compare(t, path+".shown", c.WithoutSecrets())
	if bytes.Contains(c.WithoutSecrets(), []byte("s3cret")) {
		t.Error("a secret is shown")
	}
	w, err := Parse(name, wrapped, program)
	if err != nil {
		t.Fatalf("the wrapped document cannot be parsed: %v", err)
	}
	var ours []*Server
	for i, s := range w.Servers {
		if c.Servers[i].Kind == Stdio {
			ours = append(ours, s)
		}
		if s.Kind == Stdio {
			t.Errorf("%v is not wrapped", s)
		}
	}
	if back := w.Unwrap(ours); !bytes.Equal(back, doc) {
		t.Errorf("unwrapped:\n%s", back)
	}
	if again := w.Wrap(program, defaultFlags(w, at)); !bytes.Equal(again, wrapped) {
		t.Errorf("wrapped twice:\n%s", again)
	}
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; is this right?\n%s", path, got)
	}
}
