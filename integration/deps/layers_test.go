package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rootsfs/rootsfs"

// pkg is a package in the output of `go list -json`.
type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	GoFiles    []string
	Imports    []string
	Standard   bool
}

// name returns the package's path within the module.
func (p *pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func top(t *testing.T) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Dir(wd))
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Doc,GoFiles,Imports,Standard"}, args...)...)
	cmd.Dir = top(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// layer lists the imports that the packages of one layer may have, of this module and
// from elsewhere. A package is in the layer with the longest prefix that matches its name.
type layer struct {
	prefix string
	own    []string // of this module; a trailing / means everything below
	others []string // of other modules, likewise; nil: any
	why    string
}

var layers = []layer{
	{"guard/names", nil, []string{}, "the vocabulary is what every program may import: standard library only"},
	{"guard/audit", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern"}, []string{"golang.org/x/sys/", "github.com/klauspost/compress/zstd", "golang.org/x/time/rate"}, "records are written from what the gate says; the gate never knows its log"},
	{"guard/guardtest", []string{"guard", "guard/ledger", "guard/rules", "guard/names"}, []string{"golang.org/x/sys/"}, "the suite must not know the front ends it judges"},
	{"guard/pattern", []string{}, []string{"github.com/bmatcuk/doublestar/", "golang.org/x/text/"}, "names are judged by text alone"},
	{"guard/builtin", []string{"guard/pattern"}, []string{"github.com/bmatcuk/doublestar/", "golang.org/x/text/"}, "tables, and what can be told from names alone"},
	{"guard/rules", []string{"guard/names", "guard/pattern", "guard/builtin"}, []string{}, "rules are about one root and know no lifetime: they know no registry and count nothing"},
	{"guard/ledger", []string{"guard/rules", "guard/names"}, []string{"golang.org/x/time/rate"}, "it counts, and knows no root: the gate asks it"},
	{"guard", []string{"guard/ledger", "guard/rules", "guard/names", "guard/pattern", "guard/builtin"}, []string{"golang.org/x/sync/semaphore", "github.com/bmatcuk/doublestar/", "golang.org/x/text/"}, "the gate decides and opens nothing, on every platform"},
	{"vfs/internal/beneath", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern", "vfs/internal/draft"}, []string{"golang.org/x/sys/unix", "github.com/moby/sys/mountinfo"}, "mechanism only: system calls under a lease"},
	{"vfs/internal/gate", []string{"guard", "guard/ledger", "guard/rules", "guard/names"}, []string{}, "it admits and settles what it is given to run, and opens nothing"},
	{"vfs/internal/claims", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "vfs/internal/beneath"}, []string{"golang.org/x/sys/unix"}, "it keeps operations apart and changes no file"},
	{"vfs/internal/wholefile", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "vfs/internal/beneath"}, []string{"golang.org/x/sys/unix"}, "it writes contents for operations that have been admitted"},
	{"vfs/internal/trash", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "vfs/internal/beneath", "vfs/internal/wholefile"}, []string{"golang.org/x/sys/unix"}, "it keeps the files that admitted operations remove"},
	{"vfs/internal/draft", []string{"guard", "guard/ledger", "guard/rules", "guard/names"}, []string{"golang.org/x/sys/unix"}, "it stores the changes of a stage, and knows neither source nor union"},
	{"vfs/internal/apply", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern", "vfs/internal/beneath", "vfs/internal/draft", "vfs/internal/trash", "vfs/internal/wholefile"}, []string{"golang.org/x/sys/unix"}, "it is part of the owner's operations, which have been admitted"},
	{"vfs/internal/walk", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern", "vfs/internal/beneath"}, []string{"golang.org/x/sys/unix"}, "a walk is part of an operation that has been admitted"},
	{"vfs/watch", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "vfs/internal/"}, []string{"golang.org/x/sys/unix"}, "it watches what operations resolve, and the tree holds its inotify instances"},
	{"vfs", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern", "vfs/internal/", "vfs/watch"}, []string{"golang.org/x/sys/unix", "github.com/bmatcuk/doublestar/"}, "the tree knows the gate below it and no front end above"},
	{"mount/sandbox/internal/landlock", []string{"guard/names"}, []string{"github.com/landlock-lsm/", "golang.org/x/sys/unix"}, "rules for one thread know nothing of the program that starts there"},
	{"mount/sandbox/internal/seccomp", []string{}, []string{"golang.org/x/net/bpf", "golang.org/x/sys/unix"}, "a filter knows nothing of what it is for"},
	{"mount/sandbox/internal/layout", []string{"guard/names", "mount/sandbox/internal/landlock"}, []string{}, "it says what appears where, and changes nothing"},
	{"mount/sandbox/internal/initproc", []string{"mount/sandbox/internal/"}, []string{"golang.org/x/sys/unix", "github.com/creack/pty"}, "the init does what it is told, by a caller whose package it does not know"},
	{"mount/sandbox", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "mount/sandbox/internal/"}, nil, "confining a child is apart from serving the tree"},
	{"mount/incoming", []string{}, []string{"github.com/hanwen/go-fuse/"}, "a hook for tests knows neither side"},
	{"mount/distro", []string{}, []string{}, "words for a person: it reads one file"},
	{"mount/transport", []string{}, []string{"github.com/hanwen/go-fuse/v2/fuse", "golang.org/x/sys/unix"}, "requests come and answers go, whatever they say"},
	{"mount/mountpoint", []string{"mount/distro", "guard", "guard/ledger", "guard/rules", "guard/names"}, []string{"github.com/hanwen/go-fuse/", "github.com/moby/sys/mountinfo", "golang.org/x/sys/unix"}, "making and finding mounts is apart from serving the tree"},
	{"mount", []string{"mount/incoming", "mount/mountpoint", "mount/transport", "guard", "guard/ledger", "guard/rules", "guard/names", "vfs", "vfs/watch"}, []string{"github.com/hanwen/go-fuse/v2/fuse", "golang.org/x/sys/unix"}, "a front end says who asks and where; the tree does the rest; siblings never import each other"},
	{"broker/internal/flowcontrol", []string{}, []string{"github.com/modelcontextprotocol/go-sdk/jsonrpc", "golang.org/x/time/rate"}, "bounds know nothing of what they bound, on every platform"},
	{"broker/internal/jsonline", []string{}, []string{"github.com/go-json-experiment/json/jsontext"}, "lines and messages, whatever they are about; also on platforms without a monitor"},
	{"broker/wire", []string{"guard/names", "broker/internal/flowcontrol", "broker/internal/jsonline"}, nil, "both ends speak it, also on platforms without a monitor"},
	{"broker/client", []string{"guard/names", "broker/wire", "broker/internal/flowcontrol", "broker/internal/jsonline"}, nil, "what a server imports must not bring the monitor along"},
	{"broker", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/audit", "vfs", "vfs/watch", "broker", "broker/"}, nil, "a front end; siblings never import each other"},
	{"broker/tools", []string{"guard", "guard/ledger", "guard/rules", "guard/names", "guard/pattern", "vfs", "vfs/watch", "broker", "broker/"}, nil, "a front end, which reads .gitignore files by the one engine for patterns"},
	{"cmd", []string{""}, nil, "commands put everything together"},
	{"integration/childfs", []string{"guard/guardtest", "mount/incoming"}, []string{"github.com/hanwen/go-fuse/", "golang.org/x/sys/unix"}, "tests of the mount import it"},
	{"integration/testkit", []string{}, []string{}, "tests of every package import it, those of guard/names too"},
	{"integration", []string{""}, nil, "tests of the whole may use all of it"},
}

func layerOf(name string) *layer {
	var best *layer
	for i := range layers {
		l := &layers[i]
		if (name == l.prefix || strings.HasPrefix(name, l.prefix+"/")) && (best == nil || len(l.prefix) > len(best.prefix)) {
			best = l
		}
	}
	return best
}

func permits(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		return p == "" || p == name || strings.HasSuffix(p, "/") && strings.HasPrefix(name, p)
	})
}

// Each package is in a layer, and imports only what this layer permits. The imports of tests do not
// count.
func TestLayers(t *testing.T) {
	std := map[string]bool{}
	for _, p := range list(t, "std") {
		std[p.ImportPath] = true
	}
	seen := 0
	for _, p := range list(t, "./...") {
		l := layerOf(p.name())
		if l == nil {
			t.Errorf("%s is in no layer: add it to .github/ARCHITECTURE.md and to this table, or move it", p.ImportPath)
			continue
		}
		seen++
		for _, imp := range p.Imports {
			if bad := breach(l, &p, imp, std); bad != "" {
				t.Errorf("%s imports %s: %s (%s)", p.name(), imp, bad, l.why)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

func breach(l *layer, p *pkg, imp string, std map[string]bool) string {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		if own == p.name() || permits(l.own, own) {
			return ""
		}
		return "this layer may import only " + strings.Join(l.own, ", ")
	}
	if std[imp] || imp == "C" || imp == "unsafe" || l.others == nil || permits(l.others, imp) {
		return ""
	}
	return "this layer takes from other modules only " + strings.Join(append(l.others, "the standard library"), ", ")
}

// breach refuses imports that break the layering, and permits others.
func TestBreaches(t *testing.T) {
	std := map[string]bool{"os": true}
	for _, c := range []struct {
		pkg, imp string
		bad      bool
	}{
		{"guard", module + "/vfs", true}, {"guard", module + "/guard/audit", true}, {"guard", "golang.org/x/sys/unix", true},
		{"guard", "os", false}, {"guard/rules", module + "/guard", true}, {"guard/rules", module + "/guard/ledger", true}, {"guard/ledger", module + "/guard", true}, {"guard", module + "/guard/rules", false}, {"guard/names", module + "/guard", true}, {"vfs", module + "/mount", true},
		{"mount", module + "/broker", true}, {"broker", module + "/mount", true}, {"mount", module + "/vfs/internal/beneath", true},
		{"mount", module + "/guard/audit", true}, {"broker/client", module + "/guard", true}, {"broker/tools", module + "/broker", false},
		{"cmd/rootsfs", module + "/mount", false}, {"vfs", "github.com/hanwen/go-fuse/v2/fs", true},
		{"mount", "github.com/hanwen/go-fuse/v2/fs", true}, {"mount", "github.com/hanwen/go-fuse/v2/fuse", false},
	} {
		p := &pkg{ImportPath: module + "/" + c.pkg}
		if got := breach(layerOf(c.pkg), p, c.imp, std) != ""; got != c.bad {
			t.Errorf("%s importing %s: breach %v", c.pkg, c.imp, got)
		}
	}
}

// guard depends, directly or through other packages, only on packages below guard that open
// nothing, on the standard library, and on modules that the layers guard and guard/ledger permit.
func TestGuardDependencies(t *testing.T) {
	for _, p := range list(t, "-deps", "./guard") {
		if p.Standard || p.name() == "guard" || p.name() == "guard/names" || p.name() == "guard/pattern" || p.name() == "guard/rules" || p.name() == "guard/ledger" || p.name() == "guard/builtin" || permits(layerOf("guard").others, p.ImportPath) || permits(layerOf("guard/ledger").others, p.ImportPath) {
			continue
		}
		t.Errorf("guard depends on %s: the gate must compile everywhere and open nothing", p.ImportPath)
	}
}

// guard and guard/names compile for macOS and Windows, too. broker/client imports guard/names
// there.
func TestPortable(t *testing.T) {
	for _, goos := range []string{"darwin", "windows"} {
		cmd := exec.Command("go", "build", "./guard", "./guard/names")
		cmd.Dir = top(t)
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GOOS=%s: %v\n%s", goos, err, out)
		}
	}
}

// noPromises lists library packages without promises to their importers, with the reason.
var noPromises = map[string]string{
	"mount/distro":   "advice for a person",
	"mount/incoming": "a hook for tests",
}

// Every package has a package comment. The comment of a library package has the headings "Promises"
// and "Not promised", unless noPromises lists the package. The module has no top-level directories
// other than the ones in allowed, hidden directories, and directories that git ignores.
func TestShape(t *testing.T) {
	libraries := 0
	for _, p := range list(t, "./...") {
		if len(p.GoFiles) == 0 {
			continue
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if !isLibrary(p.name()) || noPromises[p.name()] != "" {
			continue
		}
		libraries++
		text := ""
		for _, name := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
		for _, heading := range []string{"# Promises", "# Not promised"} {
			if !strings.Contains(text, "\n// "+heading+"\n//\n") {
				t.Errorf("%s: the package comment lacks %q", p.ImportPath, heading)
			}
		}
	}
	if libraries < 10 {
		t.Errorf("only %d library packages were looked at", libraries)
	}
	allowed := []string{"broker", "cmd", "guard", "integration", "mount", "vfs"}
	entries, err := os.ReadDir(top(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || slices.Contains(allowed, e.Name()) || ignored(t, e.Name()) {
			continue
		}
		t.Errorf("top-level directory %s: there are only %s", e.Name(), strings.Join(allowed, ", "))
	}
}

// isLibrary reports whether packages of other top-level directories may import a package for more
// than tests.
func isLibrary(name string) bool {
	return !strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "integration/") && !strings.Contains(name, "/internal/") && name != "guard/guardtest"
}

// ignored reports whether git ignores a name, such as the directory of a build's output.
func ignored(t *testing.T, name string) bool {
	cmd := exec.Command("git", "check-ignore", "-q", name)
	cmd.Dir = top(t)
	return cmd.Run() == nil
}

// rootsfs links no code of NATS, the message bus of a fleet. The program rootsfs-fleet links NATS.
// Of the packages of this module in that program, only cmd/rootsfs/internal/fleet imports NATS.
func TestOnlyTheFleetLinksItsBus(t *testing.T) {
	isBus := func(path string) bool { return strings.HasPrefix(path, "github.com/nats-io/") }
	for _, p := range list(t, "-deps", "./cmd/rootsfs") {
		if isBus(p.ImportPath) {
			t.Errorf("rootsfs links %s: only rootsfs-fleet may", p.ImportPath)
		}
	}
	linked := false
	for _, p := range list(t, "-deps", "./cmd/rootsfs/rootsfs-fleet") {
		linked = linked || isBus(p.ImportPath)
		if !strings.HasPrefix(p.ImportPath, module+"/") || p.name() == "cmd/rootsfs/internal/fleet" {
			continue
		}
		if i := slices.IndexFunc(p.Imports, isBus); i >= 0 {
			t.Errorf("%s imports %s: only cmd/rootsfs/internal/fleet may", p.name(), p.Imports[i])
		}
	}
	if !linked {
		t.Error("rootsfs-fleet links no bus: the test checks nothing")
	}
}
