package reports

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }

// rootsfs is the program, built once, where every user may execute it.
var rootsfs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-reports-test")
	if err != nil {
		return "", err
	}
	lab.After(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "rootsfs")
	return path, errors.Join(testkit.Build(path, "../../cmd/rootsfs"), os.Chmod(dir, 0o755))
})

// user is a user who runs the program, with a directory that belongs to the user.
type user struct {
	t       testing.TB
	program string
	dir     string
	uid     int
	fuse    string // a /dev/fuse that the user may open
}

// asEachUser runs a test as root and as an ordinary user.
func asEachUser(t *testing.T, test func(t *testing.T, who *user)) {
	lab.NeedFUSE(t)
	guardtest.ShareTemp(t)
	program, err := rootsfs()
	testkit.Must(t, err)
	for name, uid := range map[string]int{"root": 0, "user": 65534} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for p := dir; p != guardtest.SharedTemp() && p != "/"; p = filepath.Dir(p) {
				testkit.Must(t, os.Chmod(p, 0o755))
			}
			who := &user{t: t, program: program, dir: filepath.Join(dir, "home"), uid: uid, fuse: filepath.Join(dir, "fuse")}
			testkit.Must(t, os.Mkdir(who.dir, 0o755))
			testkit.Must(t, os.Chown(who.dir, uid, uid))
			testkit.Must(t, unix.Mknod(who.fuse, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
			testkit.Must(t, os.Chmod(who.fuse, 0o666))
			test(t, who)
		})
	}
}

// command returns a command of the user, in its own mount namespace.
func (w *user) command(args ...string) *exec.Cmd {
	prefix := ""
	if w.uid != 0 {
		prefix = fmt.Sprintf("mount --bind '%s' /dev/fuse; exec setpriv --reuid %d --regid %[2]d --clear-groups --inh-caps=-all", w.fuse, w.uid)
	} else {
		prefix = "exec"
	}
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-ec", prefix + ` "$@"`, "sh"}, args...)...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir)
	for _, v := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		dir := filepath.Join(w.dir, strings.ToLower(v))
		testkit.Must(w.t, os.MkdirAll(dir, 0o700)) // without this directory, sessions would be in TMPDIR
		testkit.Must(w.t, os.Chown(dir, w.uid, w.uid))
		cmd.Env = append(cmd.Env, v+"="+dir)
	}
	return cmd
}

// writeFile makes a file of the user and returns its path.
func (w *user) writeFile(name, content string, mode os.FileMode) string {
	w.t.Helper()
	p := filepath.Join(w.dir, name)
	testkit.Must(w.t, os.MkdirAll(filepath.Dir(p), 0o755))
	testkit.Must(w.t, os.WriteFile(p, []byte(content), mode))
	for q := p; q != w.dir; q = filepath.Dir(q) {
		testkit.Must(w.t, os.Chown(q, w.uid, w.uid))
	}
	return p
}

// scripts copies the scripts of testdata to where everybody can read them.
func scripts(t testing.TB, who *user) (dir string) {
	t.Helper()
	dir = filepath.Join(filepath.Dir(who.dir), "testdata")
	testkit.Must(t, os.CopyFS(dir, os.DirFS("testdata")))
	return dir
}
