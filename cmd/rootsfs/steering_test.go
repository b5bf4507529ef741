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
	"GORACE": "only a binary with the race detector reads it", "GOMAXPROCS": speed, "GOGC": speed, "GOMEMLIMIT": speed,
	"TZ": "how times are shown", "ZONEINFO": "how times are shown",
	"PWD": "believed only if it is the working directory", "GOROOT": "no toolchain is started",
	"DEBUG_HTTP2_GOROUTINES": moreChecks, "GOPROTODEBUG": moreChecks,
	"FSNOTIFY_DEBUG":    "prints watched paths to standard error, and no server reads standard error",
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
	speed      = "changes only the speed and the memory of this one process"
	moreChecks = "turns on debug checks of a library"
	ofOAuth    = "only rootsfs serve --oauth-issuer reads it, and no host starts that; rootsfs run dials its hosts directly"
	ofAWS      = "only clients of the AWS SDK read it; rootsfs uses only the signer of the SDK"
	ofHelp     = "only rootsfs help reads it, and no host starts that"
	inside     = "what the server sees as the name and the shell of its user"
	topAlone   = "only rootsfs top and code for colours read it, and no host starts rootsfs top"
)

// computed lists the files that read variables with computed names, or all variables, each with a
// note about the variables.
var computed = map[string]string{
	"google.golang.org/protobuf/reflect/protoregistry/registry.go":          moreChecks,
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_agent.go":      "variables of an agent's preset, which run --for passes on",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_proxyenv.go":   "the owner's proxy variables, which run --for passes on once the hosts of the proxies are approved",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_secrets.go":    "the base URL of a secret; it is only compared",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret/source.go":      "the credential of run --secret",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs/judge.go": "for commands that run for the owner",
	"os/env.go":  "Getenv and Environ themselves",
	"os/file.go": "HOME",
	"internal/syscall/execenv/execenv_default.go":                         "for the commands that are started: see steering",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup/cleaner.go":  "for this program itself",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/mount_daemon.go": "for this program itself",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/cmd_fleet.go":    "for rootsfs-fleet, which no host starts",
	"os/exec/exec.go":                                                    "for the commands that are started: see steering",
	"golang.org/x/sys/unix/env_unix.go":                                  "Getenv itself",
	"vendor/golang.org/x/net/http/httpproxy/proxy.go":                    "HTTP_PROXY, HTTPS_PROXY, NO_PROXY: " + ofOAuth,
	"github.com/spf13/cobra/active_help.go":                              "ROOTSFS_*, and COBRA_ACTIVE_HELP, which only completions use",
	"github.com/spf13/cobra/completions.go":                              "ROOTSFS_*, and COBRA_COMPLETION_DESCRIPTIONS, which only completions use",
	"github.com/charmbracelet/ultraviolet/environ.go":                    topAlone,
	"github.com/charmbracelet/ultraviolet/console.go":                    topAlone,
	"charm.land/bubbletea/v2/tea.go":                                     topAlone,
	"charm.land/lipgloss/v2/writer.go":                                   topAlone,
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/wrap_file.go":   "variables of hosts; only rootsfs wrap reads them",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/cmd_run.go":     "the variables that --env names, to report the unset ones",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg/xdg.go":         "XDG_CONFIG_HOME, XDG_STATE_HOME and other XDG_ variables",
	"github.com/rootsfs/rootsfs/mount/sandbox/environ.go":                "the variables that --env names, for the server",
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/run_sockets.go": "all variables: each variable that holds the path of a granted socket is set for the server",
}

// A file in a repository can set variables for a server. Once the server is wrapped, rootsfs itself
// gets these variables, too. So wrap must refuse each variable that the code reads, unless the
// variable is listed in harmless or is read in a file that is listed in computed.
func TestSteeringVariablesAreKnown(t *testing.T) {
	read := variablesRead(t)
	for name, at := range read {
		if strings.HasPrefix(name, "?") {
			if computed[name[1:]] == "" {
				t.Errorf("%s reads a variable with a computed name, or all variables: add the file and a note to computed", at)
			}
			continue
		}
		why := harmless[name]
		switch steers := steers(t, name); {
		case steers && why != "":
			t.Errorf("wrap refuses %s, but harmless lists it: %s", name, why)
		case !steers && why == "":
			t.Errorf("%s reads %s: add it to steering in package hostconfig, or to harmless with the reason", at, name)
		}
	}
	for name := range harmless {
		if _, ok := read[name]; !ok {
			t.Errorf("harmless lists %s, but no code reads it", name)
		}
	}
	for at := range computed {
		if _, ok := read["?"+at]; !ok {
			t.Errorf("computed lists %s, but this file reads no variable with a computed name", at)
		}
	}
	for _, name := range []string{"LD_PRELOAD", "GODEBUG", "BASH_ENV", "GLIBC_TUNABLES", "RESOLV_HOST_CONF"} { // read by other programs only
		if !steers(t, name) {
			t.Errorf("wrap does not refuse %s", name)
		}
	}
}

// steers reports whether wrap refuses a server for which a repository sets the variable.
func steers(t *testing.T, name string) bool {
	doc, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"a": map[string]any{"command": "x", "env": map[string]string{name: "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := hostconfig.Parse("/x/.mcp.json", doc)
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Servers[0].SteeringSettings(false)) > 0
}

// variablesRead returns the environment variables that the program's packages read, each with a
// file that reads it. A file that reads variables with computed names, or all variables, has the
// key "?" and the file.
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

// scanPackage adds the variables that one package reads to found, as variablesRead returns them.
func scanPackage(t *testing.T, path, dir string, files []string, found map[string]string) {
	texts := map[string][]byte{}
	reads := false
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
		reads = reads || mentionsReader(text)
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

// mentionsReader reports whether a source file contains the name of a function for which
// readsVariable reports true.
func mentionsReader(text []byte) bool {
	return slices.ContainsFunc([]string{"etenv", "LookupEnv", "ExpandEnv", "Environ"}, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// readsVariable reports whether fun looks up a variable, expands variables in a text, or returns
// all variables. path is the import path of the package that calls fun.
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

// literal returns the text of a string literal, or of a name in constants. It reports false for any
// other expression.
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
