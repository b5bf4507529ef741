package programs

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:8]
}

// cp -a into the root, within the root and out of the root keeps hard links, modes, owners, times,
// attributes and symbolic links.
func TestCpA(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		out := filepath.Join(b.home, "sample")
		sample(t, out)
		want := listing(t, out)
		b.run("", "cp", "-a", out, "in")
		b.run("", "cp", "-a", "in", "within")
		b.run("", "cp", "-a", "within", filepath.Join(b.home, "back"))
		equal(t, "copied in, on the source", listing(t, filepath.Join(b.result, "in")), want)
		equal(t, "copied in, in the mount", listing(t, filepath.Join(b.dir, "in")), want)
		equal(t, "copied within", listing(t, filepath.Join(b.result, "within")), want)
		equal(t, "copied out", listing(t, filepath.Join(b.home, "back")), want)
	})
}

// toTheNanosecond has rsync compare times to the nanosecond. By default rsync compares
// seconds: it does not set a time that is in the same second as the source's.
const toTheNanosecond = "--modify-window=-1"

// rsync -aHX copies a tree into the root and out of it. A second run into the root finds nothing to
// do. A third run copies a change and a removal.
func TestRsync(t *testing.T) {
	inside(t, byDefault, func(t *testing.T, b *box) {
		out, back := filepath.Join(b.home, "sample"), filepath.Join(b.home, "back")
		sample(t, out)
		want := listing(t, out)
		b.run("", "rsync", "-aHX", toTheNanosecond, out+"/", "in/")
		equal(t, "rsync in, on the source", listing(t, filepath.Join(b.result, "in")), want)
		b.run("", "rsync", "-aHX", toTheNanosecond, "in/", back+"/")
		equal(t, "rsync out", listing(t, back), want)
		if again := b.run("", "rsync", "-aHXi", toTheNanosecond, out+"/", "in/"); again != "" {
			t.Errorf("a second rsync found work:\n%s", again)
		}
		testkit.Must(t, os.WriteFile(filepath.Join(out, "a"), []byte("changed"), 0o640))
		testkit.Must(t, os.Remove(filepath.Join(out, "big")))
		b.run("", "rsync", "-aHX", toTheNanosecond, "--delete", "--inplace", out+"/", "in/")
		// The comparison leaves out the top directory, because rsync --inplace does not set the time
		// of the top directory. On ext4 it does not, either.
		equal(t, "rsync of a change", listing(t, filepath.Join(b.result, "in"))[1:], listing(t, out)[1:])
	})
}

// tar packs a tree into an archive in the root and extracts the archive there. Then tar copies the
// extracted tree out of the root through a pipe.
func TestTar(t *testing.T) {
	inside(t, byDefault, func(t *testing.T, b *box) {
		need(t, "tar")
		out, back := filepath.Join(b.home, "sample"), filepath.Join(b.home, "back")
		sample(t, out)
		want := listing(t, out)
		testkit.Must(t, os.Mkdir(back, 0o755))
		b.sh(`mkdir in; tar --xattrs --xattrs-include='user.*' --sparse --format=pax -C ` + out + ` -cpf archive.tar .
			tar --xattrs --xattrs-include='user.*' -C in -xpf archive.tar
			tar --xattrs --xattrs-include='user.*' --sparse --format=pax -C in -cpf - . | tar --xattrs --xattrs-include='user.*' -C ` + back + ` -xpf -`)
		equal(t, "extracted in", listing(t, filepath.Join(b.result, "in")), want)
		equal(t, "extracted out", listing(t, back), want)
	})
}

// find sees the same names as on the source, also when it selects by type, time and size. Unless
// the root is staged, find -delete and rm -rf remove files on the source.
func TestFind(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		sample(t, filepath.Join(b.src, "s"))
		for _, args := range [][]string{
			// The output leaves out the link counts and sizes of directories: a mount does not show
			// the real numbers, because names may be hidden.
			{"-type", "d", "-printf", `%P %y %m %i %U:%G %T@\n`, "-o", "-printf", `%P %y %m %n %s %i %U:%G %T@ %l\n`},
			{"-type", "f", "-size", "+2k"}, {"-type", "l"}, {"-links", "+1", "-type", "f"},
			{"-newermt", "2001-09-09 01:48:00"}, {"-perm", "/111"}, {"-name", "*.txt"}, {"-empty"},
		} {
			script := "cd \"$0\"; find . \"$@\" | sort"
			got := b.run("", "sh", append([]string{"-c", script, b.dir + "/s"}, args...)...)
			want := b.run("", "sh", append([]string{"-c", script, b.src + "/s"}, args...)...)
			if got != want || strings.Count(want, "\n") < 1 {
				t.Errorf("find %q:\n%s\nwant\n%s", args, got, want)
			}
		}
		b.run("s", "find", ".", "-name", "*.txt", "-delete")
		if left, _ := filepath.Glob(filepath.Join(b.result, "s/many/*/*.txt")); len(left) != 0 {
			t.Errorf("find -delete left %q", left)
		}
		b.run("", "rm", "-rf", "s")
		if _, err := os.Lstat(filepath.Join(b.result, "s")); err == nil {
			t.Error("rm -rf left something")
		}
	})
}
