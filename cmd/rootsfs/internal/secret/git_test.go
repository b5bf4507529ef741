package secret

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
)

// A helper that git finds in PATH by its name, or by an alias or a chain of aliases, is judged like
// a helper with a path.
func TestGitHelperInPath(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	for config, want := range map[string]string{
		"[credential]\n\thelper = mine --quiet\n":                                                               "programs can write",
		"[credential]\n\thelper = own\n":                                                                        "",
		"[credential]\n\thelper = x\n[alias]\n\tcredential-x = \"!HOME/root/tool\"\n":                           "programs can write",
		"[credential]\n\thelper = own\n[alias]\n\tother = \"!HOME/root/tool\"\n":                                "",
		"[credential]\n\thelper = x\n[alias]\n\tcredential-x = y --quiet\n\ty = Z\n\tz = \"!HOME/root/tool\"\n": "programs can write",
		"[credential]\n\thelper = X\n[alias]\n\tcredential-x = \" ! HOME/root/tool\"\n":                         "programs can write",
		"[credential]\n\thelper = x\n[alias \"credential-x\"]\n\tcommand = \"!HOME/root/tool\"\n":               "programs can write",
		"[credential]\n\thelper = x\n[alias]\n\tcredential-x = mine\n":                                          "programs can write",
		"[credential]\n\thelper = x\n[alias]\n\tcredential-x = -c alias.y=!HOME/root/tool y\n":                  "programs can write",
		"[credential]\n\thelper = \"!mine get\"\n":                                                              "programs can write",
		"[credential]\n\thelper = HOME/script get\n":                                                            "programs can write", // its interpreter
		"[credential]\n\thelper = \"/bin/true && mine get\"\n":                                                  "programs can write",
		"[credential]\n\thelper = \"!f() { git y; }; f\"\n[alias]\n\ty = \"!HOME/root/tool\"\n":                 "programs can write",
		"[credential]\n\thelper = own\n\thelper = x\n[alias]\n\tcredential-x = y\n\ty = credential-x\n":         "",
		"[credential]\n\thelper = own\n\thelper = \"x; HOME/root/tool\"\n[alias]\n\tx = y\n":                    "programs can write",
	} {
		const tool = "#!/bin/sh\necho username=me; echo password=" + fileKey + "\n"
		home := ownersFiles(t, map[string]string{"root/tool": tool, "bin/git-credential-own": tool})
		t.Setenv("PATH", filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
		for _, err := range []error{
			os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(strings.ReplaceAll(config, "HOME", home)), 0o600),
			os.WriteFile(filepath.Join(home, "script"), []byte("#!"+home+"/root/tool\n"), 0o700),
			os.Chmod(filepath.Join(home, "root/tool"), 0o700), os.Chmod(filepath.Join(home, "bin/git-credential-own"), 0o700),
			os.Symlink(filepath.Join(home, "root/tool"), filepath.Join(home, "bin/git-credential-mine")),
			os.Symlink(filepath.Join(home, "root/tool"), filepath.Join(home, "bin/git-mine")),
			os.Symlink(filepath.Join(home, "root/tool"), filepath.Join(home, "bin/mine")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		s := &Secret{Name: "git", URL: urlOf(t, "https://github.com")}
		got, err := s.Read(context.Background(), writabledirs.NewJudge(filepath.Join(home, "root")), os.Environ())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && got.value != fileKey {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
}

// The credential comes from git's helpers, or else from the files of git and curl. A configuration,
// helper or file that programs could have written is refused.
func TestGitCredential(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	const helper = "[credential \"https://github.com\"]\n\thelper = \"!f() { test \\\"$1\\\" = get && echo username=me && echo password=" + fileKey + "; }; f\"\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		from  string // "": there is an error
		want  string // the header, or the error
	}{
		{"helper", map[string]string{".gitconfig": helper, ".netrc": "machine github.com login x password " + otherKey}, "`git credential fill`", basicHeader("me:" + fileKey)},
		{"store", map[string]string{".gitconfig": "[credential]\n\thelper = store\n", ".git-credentials": "https://me:" + fileKey + "@github.com\n"}, "`git credential fill`", basicHeader("me:" + fileKey)},
		{"file", map[string]string{".git-credentials": "https://a:" + otherKey + "@example.com\nhttps://me:" + fileKey + "@github.com\n"}, "/.git-credentials", basicHeader("me:" + fileKey)},
		{"netrc", map[string]string{".netrc": "machine github.com login me password " + fileKey}, "/.netrc", basicHeader("me:" + fileKey)},
		{"no helper", map[string]string{".gitconfig": "[credential]\n\thelper = \n\thelper = \" \"\n", ".netrc": "machine github.com login me password " + fileKey}, "/.netrc", basicHeader("me:" + fileKey)},
		{"none", nil, "", "no credential for https://github.com in "},
		{"helper of a program", map[string]string{".gitconfig": "[credential]\n\thelper = HOME/root/tool get\n", "root/tool": "#!/bin/sh\n"}, "", "programs can write"},
		{"shell of a program", map[string]string{".gitconfig": "[credential]\n\thelper = \"!exec HOME/root/tool\"\n", "root/tool": "#!/bin/sh\n"}, "", "programs can write"},
		{"store of a program", map[string]string{".gitconfig": "[credential]\n\thelper = store --file=HOME/root/keys\n", "root/keys": "https://me:x@github.com\n"}, "", "programs can write"},
		{"included by a program", map[string]string{".gitconfig": "[include]\n\tpath = HOME/root/more\n", "root/more": helper}, "", "programs can write"},
		{"helper that is gone", map[string]string{".gitconfig": "[credential]\n\thelper = HOME/none\n", ".netrc": "machine github.com login me password " + fileKey}, "/.netrc", basicHeader("me:" + fileKey)},
	} {
		home := ownersFiles(t, c.files)
		if text, ok := c.files[".gitconfig"]; ok {
			if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(strings.ReplaceAll(text, "HOME", home)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.Chmod(filepath.Join(home, "root/tool"), 0o700) // most cases have none
		judge := writabledirs.NewJudge(filepath.Join(home, "root"))
		s := &Secret{Name: "git"}
		if err := s.SetDefaultURL(judge, os.Environ()); err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(context.Background(), judge, os.Environ())
		if c.from == "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			continue
		}
		if _, header := s.header(got); err != nil || header != c.want || !strings.HasSuffix(got.From(), c.from) {
			t.Errorf("%s: %q from %q, %v", c.name, header, got.From(), err)
		}
		if files := HomeFiles([]*Secret{s}, []Credential{got}); len(files) > 0 || len(s.Environ(got)) != 1 {
			t.Errorf("%s: the program gets the files %q and the variables %q", c.name, files, s.Environ(got))
		}
	}
}
