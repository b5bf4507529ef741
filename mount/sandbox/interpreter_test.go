package sandbox

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// home makes a home directory called home/u, as most are, and sets HOME.
func home(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "home", "u")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	return dir
}

// plant makes files in dir. A content that begins with -> makes a link, one that begins with = a
// copy of a program. HOME in a target, or in the text of a file, stands for dir.
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		text := files[name]
		var err error
		switch {
		case strings.HasPrefix(text, "->"):
			err = os.Symlink(strings.ReplaceAll(text[2:], "HOME", dir), p)
		case strings.HasPrefix(text, "="):
			var b []byte
			if b, err = os.ReadFile(text[1:]); err == nil {
				err = os.WriteFile(p, b, 0o755)
			}
		default:
			err = os.WriteFile(p, []byte(strings.ReplaceAll(text, "HOME", dir)), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		path  string // on PATH, before the system's; relative to HOME
		cmd   string
		want  []string // relative to HOME
	}{
		{"a system program", nil, "", "sh", nil},
		{
			"a virtual environment in HOME itself",
			map[string]string{"pyvenv.cfg": "home = /usr/bin\n", "bin/python3": "->/usr/bin/python3", "bin/x": "#!HOME/bin/python3\n", "lib/python3.13/a.py": "", "secret": ""},
			"bin", "x",
			[]string{"bin/python3", "bin/x", "lib/python3.13", "pyvenv.cfg"},
		},
		{
			"a virtual environment in ~/.local",
			map[string]string{".local/pyvenv.cfg": "home = /usr/bin\n", ".local/bin/x": "#!/usr/bin/python3\n", ".local/lib/python3.13/a.py": "", ".local/share/keyrings/login": "secret"},
			".local/bin", "x",
			[]string{".local/bin/x", ".local/lib/python3.13", ".local/pyvenv.cfg"},
		},
		{
			"npx of a Node under nvm",
			map[string]string{
				".nvm/versions/node/v20/bin/node":                            "=/bin/true",
				".nvm/versions/node/v20/bin/npx":                             "->../lib/node_modules/npm/bin/npx-cli.js",
				".nvm/versions/node/v20/lib/node_modules/npm/bin/npx-cli.js": "#!/usr/bin/env node\n",
				".nvm/versions/node/v20/include/node/node.h":                 "",
				".nvm/nvm.sh": "secret",
			},
			".nvm/versions/node/v20/bin", "npx",
			[]string{".nvm/versions/node/v20"},
		},
		{
			"a script for another interpreter than its own directory's",
			map[string]string{
				"tools/run":                  "#!/usr/bin/env -S LANG=C node --no-warnings\n",
				"node/bin/node":              "=/bin/true",
				"node/lib/node_modules/.gap": "",
			},
			"node/bin", "tools/run",
			[]string{"node", "tools/run"},
		},
		{
			"a virtual environment made from a pyenv",
			map[string]string{
				"proj/.venv/pyvenv.cfg":                        "home = HOME/.pyenv/versions/3.12/bin\nversion = 3.12\n",
				"proj/.venv/bin/python":                        "->HOME/.pyenv/versions/3.12/bin/python3",
				"proj/.venv/bin/server":                        "#!HOME/proj/.venv/bin/python\n",
				"proj/secret":                                  "",
				".pyenv/versions/3.12/bin/python3":             "->python3.12",
				".pyenv/versions/3.12/bin/python3.12":          "=/bin/true",
				".pyenv/versions/3.12/lib/python3.12/os.py":    "",
				".pyenv/versions/3.11/lib/python3.11/other.py": "",
			},
			"", "proj/.venv/bin/server",
			[]string{".pyenv/versions/3.12", "proj/.venv"},
		},
		{
			"a shim",
			map[string]string{".asdf/shims/tool": "#!/bin/sh\nexec asdf exec tool\n", ".asdf/installs/tool/1/bin/tool": "x"},
			".asdf/shims", "tool",
			[]string{".asdf"},
		},
		{
			"a Go toolchain",
			map[string]string{"sdk/go1.26/bin/go": "=/bin/true", "sdk/go1.26/pkg/tool/x": "", "sdk/go1.25/bin/go": "x"},
			"sdk/go1.26/bin", "go",
			[]string{"sdk/go1.26"},
		},
		{
			"a lone program among others",
			map[string]string{"go/bin/server": "=/bin/true", "go/bin/other": "x", "go/pkg/mod/x": ""},
			"go/bin", "server",
			[]string{"go/bin/server"},
		},
		{
			"a program in ~/.local: the link and the installation to which it leads, not ~/.local",
			map[string]string{
				".local/bin/tool":                           "->../share/pipx/venvs/tool/bin/tool",
				".local/share/pipx/venvs/tool/bin/tool":     "#!/bin/sh\n",
				".local/share/pipx/venvs/tool/pyvenv.cfg":   "home = /usr/bin\n",
				".local/share/keyrings/secret":              "",
				".local/lib/python3.11/site-packages/x.py":  "",
				".local/share/pipx/venvs/other/bin/another": "x",
			},
			".local/bin", "tool",
			[]string{".local/bin/tool", ".local/share/pipx/venvs/tool"},
		},
		{
			"a program right in the home directory",
			map[string]string{"server": "#!/bin/sh\n", "lib/node_modules/x": ""},
			"", "server",
			[]string{"server"},
		},
		{
			"a program of a Node package",
			map[string]string{
				"code/app/node_modules/.bin/serve":     "->../serve/cli.js",
				"code/app/node_modules/serve/cli.js":   "#!/bin/sh\n",
				"code/app/node_modules/serve/index.js": "",
				"code/app/package.json":                "{}",
			},
			"", "code/app/node_modules/.bin/serve",
			[]string{"code/app/node_modules"},
		},
		{
			"links in the path and a second name: each is needed, and the installation once, by its own path",
			map[string]string{
				"via":                           "->real",
				"real/node/v20/bin/node":        "=/bin/true",
				"real/node/v20/bin/nodejs":      "->node",
				"real/node/v20/include/node/.x": "",
				"real/node/current":             "->v20",
			},
			"via/node/current/bin", "nodejs",
			[]string{"real/node/current", "real/node/v20", "via"},
		},
		{
			"a shim that is a link to the manager's program",
			map[string]string{
				".local/share/mise/shims/tool": "->HOME/.local/bin/mise", ".local/share/mise/installs/tool/1/bin/tool": "x",
				".local/bin/mise": "=/bin/true", ".local/share/other": "",
			},
			".local/share/mise/shims", "tool",
			[]string{".local/bin/mise", ".local/share/mise"},
		},
		{
			"a proxy of rustup: its toolchains, and not the directory with the credential",
			map[string]string{".cargo/bin/rustup": "=/bin/true", ".cargo/bin/rustc": "->rustup", ".cargo/credentials.toml": "", ".rustup/toolchains/stable/bin/rustc": "x"},
			".cargo/bin", "rustc",
			[]string{".cargo/bin/rustc", ".cargo/bin/rustup", ".rustup"},
		},
		{
			"a directory called shims that no version manager has",
			map[string]string{"code/shims/tool": "#!/bin/sh\n", "code/secret": ""},
			"code/shims", "tool",
			[]string{"code/shims/tool"},
		},
		{"links in a circle", map[string]string{"a": "->b", "b": "->a", "c": "#!HOME/a\n"}, "", "c", []string{"a", "b", "c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := home(t)
			plant(t, dir, c.files)
			t.Setenv("PATH", filepath.Join(dir, c.path)+":/usr/bin:/bin")
			cmd := c.cmd
			if strings.Contains(cmd, "/") || c.path == "" && c.files != nil {
				cmd = filepath.Join(dir, cmd)
			}
			needs, err := Interpreter(cmd, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range needs {
				got = append(got, strings.TrimPrefix(n.Path, dir+"/"))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("Interpreter(%s) = %q, want %q", c.cmd, got, c.want)
			}
		})
	}
}

// compile makes a library libs/libf.so in dir, and a program bin/prog that needs it. The
// options are for the linker.
func compile(t *testing.T, dir string, options ...string) (prog string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: apt-get install gcc")
	}
	plant(t, dir, map[string]string{"src/l.c": "int f(void) { return 0; }\n", "src/m.c": "int f(void); int main(void) { return f(); }\n", "bin/x": "", "libs/x": ""})
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", "libs/libf.so", "src/l.c"},
		append([]string{"-o", "bin/prog", "src/m.c"}, options...),
	} {
		c := exec.Command(cc, args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "bin/prog")
}

// A program whose libraries lie outside the system's directories needs these files, whether it
// names them by a run path or by a full path.
func TestInterpreterLibraries(t *testing.T) {
	dir := filepath.Join(home(t), "app")
	for _, options := range [][]string{{"-Llibs", "-lf", "-Wl,-rpath,$ORIGIN/../libs"}, {filepath.Join(dir, "libs/libf.so")}} {
		prog := compile(t, dir, options...)
		got, err := Interpreter(prog, nil)
		want := []Needed{{Path: prog}, {Path: filepath.Join(dir, "libs/libf.so")}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: Interpreter = %q, %v; want %q", options, got, err, want)
		}
	}
}

// A writer of a program's library, or of a directory that is searched for its libraries,
// controls the program. So Interpreter calls isUntrusted for these paths.
func TestInterpreterChecksLibraries(t *testing.T) {
	dir := filepath.Join(home(t), "app")
	for place, options := range map[string][]string{
		"libs/libf.so": {filepath.Join(dir, "libs/libf.so")},
		"libs":         {"-Llibs", "-lf", "-Wl,-rpath," + dir + "/none", "-Wl,-rpath," + dir + "/libs"},
		"none":         {"-Llibs", "-lf", "-Wl,-rpath,$ORIGIN/../none", "-Wl,-rpath," + dir + "/libs"},
	} {
		isChecked := false
		if _, err := Interpreter(compile(t, dir, options...), func(at string) bool {
			isChecked = isChecked || at == filepath.Join(dir, place)
			return false
		}); err != nil || !isChecked {
			t.Errorf("%q: isUntrusted was not called for %s (%v)", options, place, err)
		}
	}
}

// If a needed path was found through an untrusted place, FoundVia names that place. The place may
// be the path of the command, a link, a directory that is a link, the interpreter in a first line,
// a program of a virtual environment, or the file that marks an installation.
func TestInterpreterFoundVia(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		cmd   string
		want  string // the needed paths, each with its FoundVia in parentheses
	}{
		{"nothing untrusted", map[string]string{"bin/run": "#!HOME/tool\n", "tool": "=/bin/true"}, "bin/run", "bin/run tool"},
		{"the command", map[string]string{"rw/run": "#!HOME/tool\n", "tool": "=/bin/true"}, "rw/run", "rw/run(rw/run) tool(rw/run)"},
		{"a link", map[string]string{"bin/run": "->HOME/rw/link", "rw/link": "->HOME/tool", "tool": "=/bin/true"}, "bin/run", "bin/run(rw/link) rw/link(rw/link) tool(rw/link)"},
		{
			"a directory that is a link to an untrusted one", map[string]string{"dir": "->HOME/rw/dir", "rw/dir": "->HOME/secret", "secret/run": "=/bin/true"}, "dir/run",
			"dir(rw/dir) rw/dir(rw/dir) secret/run(rw/dir)",
		},
		{"the interpreter in a first line", map[string]string{"bin/run": "#!HOME/rw/sh\n", "rw/sh": "#!HOME/tool\n", "tool": "=/bin/true"}, "bin/run", "bin/run rw/sh(rw/sh) tool(rw/sh)"},
		{
			"a virtual environment", map[string]string{"rw/v/pyvenv.cfg": "home = HOME/secret/bin\n", "v": "->rw/v", "rw/v/bin/python": "->/bin/true", "secret/bin/python3": "=/bin/true"}, "v/bin/python",
			"rw/v(rw/v/bin/python) secret/bin/python3(rw/v/bin/python) v(rw/v/bin/python)",
		},
		{
			"the marker of an installation", map[string]string{"tool/bin/x": "=/bin/true", "tool/lib/rw/x": "", "tool/conda-meta": "->lib/rw"}, "tool/bin/x",
			"tool(tool/lib/rw)",
		},
		{
			"found with and without an untrusted place", map[string]string{"bin/run": "#!/usr/bin/env -S HOME/tool\n", "tool": "#!HOME/rw/sh\n", "rw/sh": "#!HOME/tool\n"}, "tool",
			"rw/sh(rw/sh) tool",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := home(t)
			plant(t, dir, c.files)
			needs, err := Interpreter(filepath.Join(dir, c.cmd), func(place string) bool { return slices.Contains(strings.Split(place, "/"), "rw") })
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range needs {
				text := strings.TrimPrefix(n.Path, dir+"/")
				if n.FoundVia != "" {
					text += "(" + strings.TrimPrefix(n.FoundVia, dir+"/") + ")"
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s needs %s, want %s", c.cmd, strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestInterpreterMissing(t *testing.T) {
	if _, err := Interpreter("no-such-command-anywhere", nil); !errors.Is(err, names.NotExist) || !strings.Contains(err.Error(), "no-such-command-anywhere") {
		t.Errorf("%v; want a NotExist that names the command", err)
	}
}

// The errors for a command that is not executable and for one that does not exist differ.
func TestInterpreterNotExecutable(t *testing.T) {
	dir := home(t)
	path := filepath.Join(dir, "text")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Interpreter(path, nil); !errors.Is(err, ErrNotExecutable) || errors.Is(err, names.NotExist) || !strings.Contains(err.Error(), "chmod +x") {
		t.Errorf("%v; want one that says what to do", err)
	}
}

// Interpreter does not wait for a named pipe at the command's path or in place of pyvenv.cfg. An
// earlier run may have left such a pipe.
// A script whose interpreter is /proc/self/exe does not make rootsfs itself a needed file.
func TestInterpreterPlanted(t *testing.T) {
	dir := t.TempDir()
	pipe, script, env := filepath.Join(dir, "pipe"), filepath.Join(dir, "script"), filepath.Join(dir, "venv")
	program := filepath.Join(env, "bin", "program")
	if err := errors.Join(unix.Mkfifo(pipe, 0o755), os.WriteFile(script, []byte("#!/proc/self/exe version\n"), 0o755),
		os.MkdirAll(filepath.Dir(program), 0o755), unix.Mkfifo(filepath.Join(env, "pyvenv.cfg"), 0o644), os.WriteFile(program, []byte("x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: pipe, script: script, program: env} {
		needs, err := Interpreter(path, nil)
		if err != nil || len(needs) != 1 || needs[0].Path != want {
			t.Errorf("%s needs %v, %v; want %s", path, needs, err, want)
		}
	}
	if _, err := Interpreter("rootsfs-nowhere", nil); names.Reason(err) != names.NotExist || !strings.Contains(err.Error(), "in no directory of PATH") {
		t.Errorf("a command that is not installed: %v", err)
	}
}
