package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Tests find the programs of the packages that setup.sh names, of essential packages and of the
// dependencies of both. They do not find the program of another package.
func TestLinkedPrograms(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	stubs := t.TempDir()
	stub := `#!/bin/sh
if [ "$1" = -W ]; then
	printf 'dash\tii \tyesrequired\t\t, \n'
	printf 'mount\tii \tnorequired\t\t, \n'
	printf 'curl\tii \tnooptional\t\t, libcurl (>= 7) | other, shared:any\n'
	printf 'shared-impl\tii \tnooptional\tshared (= 1), more\t, \n'
	printf 'removed\trc \tyesrequired\t\t, \n'
	printf 'jq\tii \tnooptional\t\t, dash\n'
	exit
fi
shift
for p; do case $p in
dash) echo /bin/sh; echo /usr/share/doc/sh ;;
mount) echo /bin/mount ;;
curl) echo /usr/bin/curl ;;
shared-impl) echo /usr/sbin/shared ;;
jq) echo /usr/bin/jq ;;
*) exit 1 ;;
esac; done
`
	if err := os.WriteFile(filepath.Join(stubs, "dpkg-query"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", stubs+":"+os.Getenv("PATH"))
	t.Chdir("../..")
	dir := t.TempDir()
	if err := linkPrograms(dir, "go"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sh": "/bin/sh", "mount": "/bin/mount", "curl": "/usr/bin/curl", "shared": "/usr/sbin/shared",
		"jq": "", "doc": "",
	} {
		if got, _ := os.Readlink(filepath.Join(dir, name)); got != want {
			t.Errorf("%s leads to %q, want %q", name, got, want)
		}
	}
	// git and go are linked, too, although no package of the stub has them.
	for _, name := range []string{"git", "go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
