package sandbox

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// setEnv gives the test exactly these variables.
func setEnv(t *testing.T, vars ...string) {
	t.Helper()
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value) // restores the variable at the end of the test
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func TestEnviron(t *testing.T) {
	outside := []string{
		"PATH=/usr/bin", "LANG=C", "LC_ALL=C", "LC_TIME=de", "TERM=xterm", "TZ=UTC", "NO_COLOR=1", "HOME=/home/u", "AWS_SECRET_ACCESS_KEY=s3cret",
		"SSH_AUTH_SOCK=/tmp/agent", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/bus", "NODE_OPTIONS=--require /x", "LD_PRELOAD=/x.so", "API_A=1", "API_B=2", "EMPTY=",
		initproc.Variable + "=1",
	}
	harmless := []string{"LANG=C", "LC_ALL=C", "LC_TIME=de", "NO_COLOR=1", "PATH=/usr/bin", "TERM=xterm", "TZ=UTC"}
	for _, c := range []struct {
		name  string
		allow []string
		more  []string // on top of harmless
	}{
		{"nothing asked for", nil, nil},
		{"a name", []string{"API_A"}, []string{"API_A=1"}},
		{"a name that is not set", []string{"NOT_SET"}, nil},
		{"a name with an empty value", []string{"EMPTY"}, []string{"EMPTY="}},
		{"a value", []string{"API_A=9", "NEW=x=y"}, []string{"API_A=9", "NEW=x=y"}},
		{"an empty value", []string{"API_A="}, []string{"API_A="}},
		{"the later entry counts", []string{"API_A=9", "API_A"}, []string{"API_A=1"}},
		{"all names with a prefix", []string{"API_*"}, []string{"API_A=1", "API_B=2"}},
		{"a secret, by name", []string{"SSH_AUTH_SOCK"}, []string{"SSH_AUTH_SOCK=/tmp/agent"}},
		{"the init's own variable", []string{initproc.Variable, "ROOTSFS_*"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			setEnv(t, outside...)
			got, err := Environ(c.allow)
			want := slices.Sorted(slices.Values(append(slices.Clone(harmless), c.more...)))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Environ(%q) = %q, %v; want %q", c.allow, got, err, want)
			}
		})
	}
}

func TestEnvironRefuses(t *testing.T) {
	for _, bad := range []string{"", "=x", "A B", "A-B=1", "*", "A*=1", "1A", "A=\x00", "Ä"} {
		if got, err := Environ([]string{bad}); !errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), "NAME=VALUE") {
			t.Errorf("Environ(%q) = %q, %v; want an Invalid that says what to write", bad, got, err)
		}
	}
}

// The variables by which programs find directories to write to name private directories, unless
// the owner has given a variable another value. No variable is set twice.
func TestEnvironPlaces(t *testing.T) {
	setEnv(t, "HOME=/home/u", "XDG_CACHE_HOME=/home/u/.cache", "PATH=/usr/bin")
	got, err := Environ([]string{"GOPATH=/mine"})
	if err != nil {
		t.Fatal(err)
	}
	got = completeEnv(&Options{Env: got}, Namespaces, privateDirs{Home: "/h", Tmp: "/t", Runtime: "/r"})
	for _, want := range []string{
		"HOME=/h", "TMPDIR=/t", "TMP=/t", "TEMP=/t", "XDG_RUNTIME_DIR=/r", "XDG_CACHE_HOME=/h/.cache", "npm_config_cache=/h/.npm",
		"PIP_CACHE_DIR=/h/.cache/pip", "GOPATH=/mine", "GOCACHE=/h/.cache/go-build",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	seen := map[string]bool{}
	for _, e := range got {
		name, _, _ := strings.Cut(e, "=")
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
}

// PATH does not reveal the names of directories that do not exist inside.
func TestInsidePath(t *testing.T) {
	o := &Options{
		Roots: []string{"/home/u/code", "/home/u/.nvm/v20", "/home/u/.local/bin/server"}, FlatAt: DefaultFlatAt,
		Links: map[string]string{"/home/u/node/current": "../.nvm/v20", "/alias": "home", "/home/u/lone/other": "/home/u/.local/bin/server"},
	}
	for _, c := range [][2]string{
		{"/usr/local/bin:/usr/bin:/bin", "/usr/local/bin:/usr/bin:/bin"},
		{"/home/u/.nvm/v20/bin:/home/u/bin:/usr/bin:relative:", "/home/u/.nvm/v20/bin:/usr/bin"},
		{"/home/u/.nvm/v20x/bin:/usrx:/private/home/bin:/usr/bin", "/private/home/bin:/usr/bin"},
		{"/home/u/bin:/home/u/.local/bin:/home/u/lone:/usr/bin", "/home/u/.local/bin:/home/u/lone:/usr/bin"},
		{"/home/u/node/current/bin:/alias/u/code/bin:/alias/u/x:/usr/bin", "/home/u/node/current/bin:/alias/u/code/bin:/usr/bin"},
		{"/home/u/bin", systemPath},
		{"/home/u/.local/bin", "/home/u/.local/bin:" + systemPath},
		{"", systemPath},
	} {
		if got := insidePath(o, c[0]); got != c[1] {
			t.Errorf("insidePath(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}
