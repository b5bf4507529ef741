package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// onlyFiles fails the test unless dir has exactly the named files.
func onlyFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("%s has %q, want %q", dir, have, names)
	}
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// The file keeps its mode and owner. So does the backup, which may contain keys.
func TestReplaceKeepsModeAndOwner(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	writeFile(t, path, "old", 0o604)
	uid := os.Getuid()
	if uid == 0 {
		uid = 65534
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	f, err := openHostFile(path)
	if err != nil {
		t.Fatal(err)
	}
	backup, err := f.replace([]byte("new"), "")
	if err != nil || backup != path+".before-rootsfs" {
		t.Fatalf("%s, %v", backup, err)
	}
	for name, want := range map[string]string{path: "new", backup: "old"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || string(data) != want || info.Mode().Perm() != 0o604 || int(st.Uid) != uid {
			t.Errorf("%s: %q, mode %v, owner %+v", name, data, info.Mode(), st)
		}
	}
	onlyFiles(t, dir, "mcp.json", "mcp.json.before-rootsfs")
}

// A version that another program wrote in the meantime is not overwritten, and no file is left
// behind.
func TestReplaceNoticesAnotherWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	for name, change := range map[string]func(){
		"content": func() { writeFile(t, path, "theirs", 0o600) },
		"link": func() {
			writeFile(t, filepath.Join(dir, "other"), "old", 0o600)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("other", path); err != nil {
				t.Fatal(err)
			}
		},
		"gone": func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path+".x", "", 0o600) // so that the directory is not empty
		},
	} {
		_ = os.Remove(path) // there is none the first time
		writeFile(t, path, "old", 0o600)
		f, err := openHostFile(path)
		if err != nil {
			t.Fatal(err)
		}
		change()
		_, err = f.replace([]byte("new"), "")
		if err == nil || !strings.Contains(err.Error(), "nothing was changed") && name != "gone" {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(path); bytes.Equal(data, []byte("new")) {
			t.Errorf("%s: it was overwritten", name)
		}
		entries, err := filepath.Glob(filepath.Join(dir, "*rootsfs*"))
		if err != nil || len(entries) > 0 {
			t.Errorf("%s: left behind: %q, %v", name, entries, err)
		}
		if entries, err = filepath.Glob(filepath.Join(dir, ".mcp*")); err != nil || len(entries) > 0 {
			t.Errorf("%s: left behind: %q, %v", name, entries, err)
		}
	}
}

// Backups are found in the order of their numbers, even if some were deleted. Other files do not
// count as backups.
func TestBackups(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	writeFile(t, path, "now", 0o600)
	for _, name := range []string{"", ".10", ".3"} {
		writeFile(t, path+".before-rootsfs"+name, "b"+name, 0o600)
	}
	for _, name := range []string{".before-rootsfs.1", ".before-rootsfs.03", ".before-rootsfs.x", ".before-rootsfs~", ".bak"} {
		writeFile(t, path+name, "", 0o600)
	}
	if err := os.Symlink("mcp.json", path+".before-rootsfs.4"); err != nil {
		t.Fatal(err)
	}
	f, err := openHostFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.backups()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range list {
		got = append(got, string(b.doc))
	}
	if strings.Join(got, " ") != "b b.3 b.10" {
		t.Errorf("%q", got)
	}
	// The next backup gets the first free number, and overwrites nothing.
	if b, isNew, err := f.backup(); err != nil || !isNew || b != path+".before-rootsfs.2" {
		t.Errorf("%s, %v, %v", b, isNew, err)
	}
	if b, isNew, err := f.backup(); err != nil || isNew || b != path+".before-rootsfs.2" {
		t.Errorf("%s, %v, %v", b, isNew, err)
	}
}

// visibleLine escapes characters that would move the cursor or reverse text, and long runs of
// spaces. It cuts long lines.
func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"\t\"a\\n\": 1":              "\t\"a\\n\": 1",
		"// \x1b[2J\u202eevil\u0085": `// \u{1b}[2J\u{202e}evil\u{85}`,
		strings.Repeat("ä", 500):     strings.Repeat("ä", 400) + "… (1000 bytes)",
		"+    \"a\": [":              "+    \"a\": [", "+ \"a" + strings.Repeat(" ", 70) + "Write? y": `+ "a\{70 spaces}Write? y`,
		strings.Repeat(" ", 60) + "Write? y": `\{60 spaces}Write? y`, "a\u2800\xff": `a\u{2800}\xff`,
	} {
		if got := visibleLine(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
