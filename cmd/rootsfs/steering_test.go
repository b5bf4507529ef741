package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
)

// harmless lists variables that this program or a library in it reads, and that a repository
// may nevertheless set for a wrapped server, each with the reason.
var harmless = map[string]string{
	"GORACE": "a binary of the race detector alone", "GOMAXPROCS": speed, "GOGC": speed, "GOMEMLIMIT": speed,
	"TZ": "how times are shown", "ZONEINFO": "how times are shown",
	"PWD": "believed only if it is the working directory", "GOROOT": "no toolchain is started",
	"DEBUG_HTTP2_GOROUTINES": moreChecks, "GOPROTODEBUG": moreChecks,
	"FSNOTIFY_DEBUG":    "prints watched paths on standard error, which no server reads",
	"REQUEST_METHOD":    ofOAuth,
	"AWS_EXECUTION_ENV": ofAWS, "AWS_LAMBDA_FUNCTION_NAME": ofAWS, "_X_AMZN_TRACE_ID": ofAWS,
	"PAGER": ofHelp, "LESS": ofHelp,
	"USER": inside, "SHELL": inside,
	"SSH_TTY": topAlone, "WT_SESSION": topAlone, "TERM": topAlone, "TERM_PROGRAM": topAlone, "TERM_PROGRAM_VERSION": topAlone,
	"TERMINFO": topAlone, "TERMINFO_DIRS": topAlone, "COLORTERM": topAlone, "FORCE_COLOR": topAlone, "TEA_DEBUG": topAlone, "TEA_TRACE": topAlone,
	"RUNEWIDTH_EASTASIAN": topAlone, "LANG": topAlone, "LC_ALL": topAlone, "LC_CTYPE": topAlone,
	"AppData": "Windows", "LocalAppData": "Windows", "SYSTEMROOT": "Windows", "home": "Plan 9",
}

// Reasons that several variables share.
const (
	speed      = "how fast the one process is, and how much memory it takes"
	moreChecks = "checks of a library's own"
	ofOAuth    = "rootsfs serve --oauth-issuer alone, which no host starts; rootsfs run dials its hosts directly"
	ofAWS      = "clients of AWS's SDK, of which rootsfs has the signer alone"
	ofHelp     = "rootsfs help alone, which no host starts"
	inside     = "the name and the shell that the server sees of its own user"
	topAlone   = "rootsfs top alone, which no host starts, and colours"
)

// computed lists the files that read variables with computed names, or all variables, each with
// a note on these names.
var computed = map[string]string{
	"google.golang.org/protobuf/reflect/protoregistry/registry.go":          moreChecks,
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_agent.go":      "those of an agent's preset, which run --for passes on",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_proxyenv.go":   "proxies of the owner, which run --for passes on once their hosts are approved",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_secrets.go":    "the base URL of a secret, which is compared only",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret/source.go":      "the credential of run --secret",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs/judge.go": "for the owner's own commands, which get none that --env passes on",
	"os/env.go":  "Getenv and Environ themselves",
	"os/file.go": "HOME",
	"internal/syscall/execenv/execenv_default.go":                         "for the commands that are started: see steering",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup/cleaner.go":  "for this program itself",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/mount_daemon.go": "for this program itself",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/cmd_fleet.go":    "for rootsfs-fleet, which no host starts",
	"os/exec/exec.go":                                                    "for the commands that are started: see steering",
	"golang.org/x/sys/unix/env_unix.go":                                  "Getenv itself",
	"vendor/golang.org/x/net/http/httpproxy/proxy.go":                    "HTTP_PROXY, HTTPS_PROXY, NO_PROXY: " + ofOAuth,
	"github.com/spf13/cobra/active_help.go":                              "ROOTSFS_, and COBRA_ACTIVE_HELP for completions alone",
	"github.com/spf13/cobra/completions.go":                              "ROOTSFS_, and COBRA_COMPLETION_DESCRIPTIONS for completions alone",
	"github.com/charmbracelet/ultraviolet/environ.go":                    topAlone,
	"github.com/charmbracelet/ultraviolet/console.go":                    topAlone,
	"charm.land/bubbletea/v2/tea.go":                                     topAlone,
	"charm.land/lipgloss/v2/writer.go":                                   topAlone,
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/wrap_file.go":   "variables of hosts, for rootsfs wrap alone",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/cmd_run.go":     "what --env names, to tell that it is not set",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg/xdg.go":         "XDG_CONFIG_HOME, XDG_STATE_HOME and their like",
	"github.com/rootsfs/rootsfs/mount/sandbox/environ.go":                "what --env names, for the server",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_sockets.go": "for what the server is given",
}

// The file of a repository sets variables for its servers, and they reach rootsfs itself once a
// server is wrapped. Each variable that the code reads is either refused by wrap, or listed here
// with the reason why it is harmless.
func TestSteeringVariablesAreKnown(t *testing.T) {
	read := variablesRead(t)
	for name, at := range read {
		if strings.HasPrefix(name, "?") {
			if computed[name[1:]] == "" {
				t.Errorf("%s reads a variable whose name is computed: say in computed which", at)
			}
			continue
		}
		why := harmless[name]
		switch steers := steers(t, name); {
		case steers && why != "":
			t.Errorf("%s steers rootsfs, and is harmless: %s", name, why)
		case !steers && why == "":
			t.Errorf("%s reads %s: add it to hostconfig's steering, or to harmless with the reason", at, name)
		}
	}
	for name := range harmless {
		if _, ok := read[name]; !ok {
			t.Errorf("harmless: nothing reads %s", name)
		}
	}
	for at := range computed {
		if _, ok := read["?"+at]; !ok {
			t.Errorf("computed: nothing is read at %s", at)
		}
	}
	for _, name := range []string{"LD_PRELOAD", "GODEBUG", "BASH_ENV", "GLIBC_TUNABLES", "RESOLV_HOST_CONF"} { // read by other programs only
		if !steers(t, name) {
			t.Errorf("%s does not steer", name)
		}
	}
}

// steers reports whether wrap refuses a variable of a repository.
func steers(t *testing.T, name string) bool {
	doc, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"a": map[string]any{"command": "x", "env": map[string]string{name: "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := hostconfig.Parse("/x/.mcp.json", doc)
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Servers[0].Steers(false)) > 0
}

// variablesRead returns the environment variables that the program's packages read, each with a
// place in the code. A variable with a computed name is "?" and the place.
func variablesRead(t *testing.T) map[string]string {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles", ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	found := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct {
			ImportPath, Dir   string
			GoFiles, CgoFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		scanPackage(t, p.ImportPath, p.Dir, append(p.GoFiles, p.CgoFiles...), found)
	}
	return found
}

// scanPackage collects the variables that one package reads.
func scanPackage(t *testing.T, path, dir string, files []string, found map[string]string) {
	texts := map[string][]byte{}
	reads := false
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
		reads = reads || namesReader(text)
	}
	if !reads {
		return // most packages end here: parsing all of them takes long
	}
	set := token.NewFileSet()
	constants := map[string]string{}
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(set, filepath.Join(dir, name), texts[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		for _, decl := range f.Decls {
			d, ok := decl.(*ast.GenDecl)
			for i := 0; ok && d.Tok == token.CONST && i < len(d.Specs); i++ {
				v := d.Specs[i].(*ast.ValueSpec)
				for j := range v.Values {
					if text, ok := literal(v.Values[j], nil); ok {
						constants[v.Names[j].Name] = text
					}
				}
			}
		}
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !readsVariable(path, call.Fun) {
				return true
			}
			at := path + "/" + filepath.Base(set.Position(call.Pos()).Filename)
			if len(call.Args) == 1 {
				if name, ok := literal(call.Args[0], constants); ok {
					found[name] = at
					return true
				}
			}
			found["?"+at] = at
			return true
		})
	}
}

// namesReader reports whether a source has a name that readsVariable looks for.
func namesReader(text []byte) bool {
	return slices.ContainsFunc([]string{"etenv", "LookupEnv", "ExpandEnv", "Environ"}, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// readsVariable reports whether a function is one that looks a variable up, expands
// variables in a text, or returns all of them.
func readsVariable(path string, fun ast.Expr) bool {
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (slices.Contains([]string{"os", "syscall", "unix"}, x.Name) && slices.Contains([]string{"Getenv", "LookupEnv", "ExpandEnv", "Environ"}, f.Sel.Name) ||
			path != "os" && f.Sel.Name == "LookupEnv")
	case *ast.Ident:
		return path == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ"}, f.Name) || path == "runtime" && f.Name == "gogetenv" || path == "syscall" && f.Name == "Getenv"
	}
	return false
}

// literal returns the text of a constant expression.
func literal(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0)), true
		}
	case *ast.Ident:
		text, ok := constants[e.Name]
		return text, ok
	}
	return "", false
}
