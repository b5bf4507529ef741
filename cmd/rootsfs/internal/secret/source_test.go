package secret

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A credential comes from a file, from a command, or from the variable, which Read then unsets.
// Printing a credential does not show its value.
func TestRead(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("API_TOKEN", "from the variable")
	for want, s := range map[string]Secret{
		"from a file":       {Name: "API_TOKEN", File: write(t, " from a file\n\n")},
		"from a command":    {Name: "API_TOKEN", Command: []string{"sh", "-c", "echo '  from a command'; echo more >&2"}},
		"from the variable": {Name: "API_TOKEN"},
	} {
		c, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ())
		if err != nil || c.value != want || !c.In("x"+want) || c.In("x") {
			t.Errorf("%+v: %q, %v", s, c.value, err)
		}
		if text := fmt.Sprintf("%v %+v %#v %s %q", c, c, c, c, c); strings.Contains(text, want) {
			t.Errorf("the credential prints as %s", text)
		}
	}
	if _, set := os.LookupEnv("API_TOKEN"); set {
		t.Error("the variable is still set")
	}
}

// fifo makes a FIFO without a writer.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A source without a usable credential is refused, with an error that does not contain the text of
// the source.
func TestReadRefuses(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("EMPTY", "")
	for want, s := range map[string]Secret{
		"is not set here":                      {Name: "NOT_SET"},
		"not set":                              {Name: "EMPTY"},
		"is empty":                             {Name: "A", File: write(t, " \n")},
		"more than one line":                   {Name: "A", File: write(t, "s3cret\ns3cret")},
		"is longer than":                       {Name: "A", File: write(t, strings.Repeat("s3cret", maxCredential))},
		"no such file":                         {Name: "A", File: "/nowhere/at/all"},
		"is not a regular file: write command": {Name: "A", File: fifo(t)},
		"/dev/zero\" is not a regular file":    {Name: "A", File: "/dev/zero"},
		"exit status 3":                        {Name: "A", Command: []string{"sh", "-c", "echo s3cret; exit 3"}},
		"longer than":                          {Name: "A", Command: []string{"sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' s"}},
		"executable file not":                  {Name: "A", Command: []string{"no-such-command-at-all"}},
		"the command \"false\"":                {Name: "A", Command: []string{"false"}},
	} {
		_, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "secret "+s.Name+": ") {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.github.com":         "https://api.github.com",
		"https://API.github.com./":       "https://api.github.com",
		"https://api.test:443/v1/":       "https://api.test/v1",
		"https://api.test:8443/a/b":      "https://api.test:8443/a/b",
		"https://10.0.0.1":               "https://10.0.0.1",
		"https://[fd00::1]:8443/x":       "https://[fd00::1]:8443/x",
		"http://api.test":                "",
		"api.test":                       "",
		"https://":                       "",
		"https://user:pass@api.test":     "",
		"https://api.test/?key=1":        "",
		"https://api.test?":              "",
		"https://api.test/#x":            "",
		"https://*.test.example":         "",
		"https://api.test:0":             "",
		"https://api.test:99999":         "",
		"https://api.test/a/../b":        "",
		"https://api.test/a%2fb":         "",
		"https://api.test/a//b":          "",
		"https://localhost":              "",
		"https://api.test/a%20b":         "",
		"https://10.0.0.0/8":             "https://10.0.0.0/8", // a path
		"https://api.test:443:80":        "",
		"https://api.test\nHost: x":      "",
		"https:///x":                     "",
		"https://api.test/v1;x":          "",
		"https://api.test/v1\\x":         "",
		"https:api.test":                 "",
		"https://xn--bcher-kva.example/": "https://xn--bcher-kva.example",
	} {
		u, err := ParseURL(text)
		if (err == nil) != (want != "") || err == nil && u.String() != want {
			t.Errorf("%q is read as %s, %v", text, u, err)
		}
	}
	for _, text := range []string{"https://localhost:8443/v1", "https://api.LOCALHOST"} {
		if _, err := ParseURL(text); err == nil || !strings.Contains(err.Error(), "by its address, as in https://127.0.0.1:8443") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCheckHeader(t *testing.T) {
	for text, ok := range map[string]bool{
		"x-api-key": true, DefaultHeader: true, "Authorization: token": true, "PRIVATE-TOKEN": true,
		"": false, "a b": false, "Authorization:token": false, "Authorization: a b": false, "Host": false, "content-length": false,
		"Transfer-Encoding": false, "connection": false, "X\r\nY": false, "X: a\nb": false, "X: ": false,
	} {
		if err := CheckHeader(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{"GITHUB_TOKEN": true, "_a": true, "a1": true, "": false, "_": false, "1a": false, "a-b": false, "a=b": false, strings.Repeat("a", 64): false} {
		if err := CheckName(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Each secret has a name and variables of its own.
func TestCheckAll(t *testing.T) {
	s := func(name, variable string) *Secret { return &Secret{Name: name, Variable: variable} }
	for want, list := range map[string][]*Secret{
		"":                    {s("A", ""), s("B", ""), s("C", "C_URL")},
		"both have the name":  {s("A_B", ""), s("a_b", "")},
		"the variable URL":    {s("A", "URL"), s("B", "URL")},
		"the variable A":      {s("A", ""), s("B", "A")},
		"both have the name ": {s("A", ""), s("A", "X")},
	} {
		err := CheckAll(list)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %q", list, err, want)
		}
	}
	if err := CheckAll([]*Secret{s("A", "A")}); err == nil {
		t.Error("one variable may hold both the placeholder and the URL")
	}
	one := &Secret{Name: "_GITHUB_TOKEN", URL: URL{Host: "a.test", Port: 443, Prefix: "/v1"}}
	if got := one.Environ(Credential{placeholder: "other"}); strings.Join(got, " ") != "_GITHUB_TOKEN=other _GITHUB_TOKEN_BASE_URL=http://github-token.secret.internal/v1" {
		t.Errorf("the environment is %q", got)
	}
	if !IsInside(one.Inside()) {
		t.Error(one.Inside())
	}
}
