package secret

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Keys in the owner's files of these tests.
const (
	fileKey   = "npm_0123456789abcdefABCDEF0123456789abcd"
	otherKey  = "ghp_otherABCDEFGHIJ0123456789abcdefghijk"
	awsKeyID  = "AKIAABCDEFGHIJ234567"
	awsSecret = "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"
	awsToken  = "FwoGZXIvYXdzEBYaDOWNERSSESSION0123456789+/abcdefghij=="
)

// ownersFiles makes a HOME of the owner's with some files. It sets HOME, and clears variables that
// would lead to other sources.
func ownersFiles(t *testing.T, files map[string]string) (home string) {
	t.Helper()
	home = t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": filepath.Join(home, ".local/state"), "GIT_CONFIG_NOSYSTEM": "1",
		"AWS_PROFILE": "", "AWS_REGION": "", "AWS_ACCESS_KEY_ID": "", "GH_TOKEN": "", "GITHUB_TOKEN": "", "NPM_TOKEN": "", "GIT_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

func urlOf(t *testing.T, text string) URL {
	t.Helper()
	u, err := ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// shownFiles are files of the owner's, with the header in which the credential is sent, and the
// files that the program gets. PLACEHOLDER, ID and TOKEN stand for placeholders, AUTH for a login
// in base64 with a placeholder.
var shownFiles = []struct {
	name, url, shownAs, text string
	header                   string            // of requests; "": they are signed
	want                     map[string]string // the texts of the program's files, by their paths
}{
	{"A", "https://h.test", "~/.netrc", "machine x.test login a password " + otherKey + "\nmacdef init\nmachine h.test login evil\n\n# machine h.test login b password b\nmachine h.test\n\tlogin me account x\n\tpassword \"" + fileKey + "\"\ndefault login c password " + otherKey + "\n",
		"Basic " + base64Of("me:"+fileKey), map[string]string{".netrc": madeBy + "machine h.test login rootsfs password PLACEHOLDER\n"}},
	{"A", "https://h.test:8443", "~/.netrc", "machine h.test login " + fileKey + " password x-oauth-basic",
		"Basic " + base64Of(fileKey+":x-oauth-basic"), map[string]string{".netrc": madeBy + "machine h.test login rootsfs password PLACEHOLDER\n"}},
	{"npm", "https://r.test:444/a/b", "", "; x\n//r.test:444/:_authToken=" + otherKey + "\n//r.test:444/a/:_authToken = \"" + fileKey + "\"\n//o.test/:_authToken=" + otherKey + "\n@mine:registry=https://r.test:444/a/b/\nregistry=https://o.test/\n@bad:registry=https://u:" + otherKey + "@o.test/\n@var:registry=https://o.test/${OTHER_KEY}/\n@twice:registry=https://o.test/\n@twice:registry=https://o.test/${OTHER_KEY}/\n@fury:registry=https://o.test/" + otherKey[4:] + "/me/\n@ghp:registry=https://o.test/" + otherKey + "/\n@frag:registry=https://o.test/#" + otherKey + "\nemail=me@x.test\n",
		"Bearer " + fileKey, map[string]string{".npmrc": madeBy + "@mine:registry=https://r.test:444/a/b/\nregistry=https://o.test/\n//r.test:444/a/b/:_authToken=PLACEHOLDER\n"}},
	{"A", "https://r.test", "~/.npmrc", "//r.test/:_authToken=${OTHER_KEY}$OTHER_KEY$1\n",
		"Bearer " + otherKey + "$OTHER_KEY$1", map[string]string{".npmrc": madeBy + "registry=https://r.test/\n//r.test/:_authToken=PLACEHOLDER\n"}},
	{"A", "https://r.test", "~/.npmrc", "registry=https://o.test/\n//r.test/:_auth=" + base64Of("me:"+fileKey),
		"Basic " + base64Of("me:"+fileKey), map[string]string{".npmrc": madeBy + "registry=https://r.test/\n//r.test/:_authToken=PLACEHOLDER\n"}},
	{"A", "https://r.test", "~/.npmrc", "//r.test/:username=me\n//r.test/:_password=" + base64Of(fileKey),
		"Basic " + base64Of("me:"+fileKey), map[string]string{".npmrc": madeBy + "registry=https://r.test/\n//r.test/:_authToken=PLACEHOLDER\n"}},
	{"gh", "https://api.github.com", "", "github.com:\n    oauth_token: " + fileKey + "\n    user: me\nghe.test:\n    oauth_token: " + otherKey + "\n",
		"Bearer " + fileKey, map[string]string{
			".config/gh/hosts.yml":  madeBy + "github.com:\n    oauth_token: PLACEHOLDER\n    user: me\n    git_protocol: https\n    users:\n        me:\n            oauth_token: PLACEHOLDER\n",
			".config/gh/config.yml": madeBy + "version: \"1\"\ngit_protocol: https\n",
		}},
	{"gh", "https://ghe.test/api/v3", "", "ghe.test:\n    user: me\n    users:\n        me:\n            oauth_token: " + fileKey + "\n        you:\n            oauth_token: " + otherKey + "\n",
		"Bearer " + fileKey, map[string]string{
			".config/gh/hosts.yml":  madeBy + "ghe.test:\n    oauth_token: PLACEHOLDER\n    user: me\n    git_protocol: https\n    users:\n        me:\n            oauth_token: PLACEHOLDER\n",
			".config/gh/config.yml": madeBy + "version: \"1\"\ngit_protocol: https\n",
		}},
	{"A", "https://auth.docker.io", "~/.docker/config.json", `{"auths": {"https://index.docker.io/v1/": {"auth": "` + base64Of("me:"+fileKey) + `"}, "ghcr.io": {"auth": "` + base64Of("me:"+otherKey) + `"}}, "credsStore": "x"}`,
		"Basic " + base64Of("me:"+fileKey), map[string]string{".docker/config.json": madeInJSON + ",\n\t\"auths\": {\n\t\t\"https://index.docker.io/v1/\": {\n\t\t\t\"auth\": \"AUTH\"\n\t\t}\n\t}\n}\n"}},
	{"aws", "https://s3.eu-west-1.amazonaws.com", "", "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = " + otherKey + "\n[default]\naws_access_key_id = " + awsKeyID + "\naws_secret_access_key=" + awsSecret + "\naws_session_token = " + awsToken + "\n",
		"", map[string]string{
			".aws/credentials": madeBy + "[default]\naws_secret_access_key = PLACEHOLDER\naws_access_key_id = ID\naws_session_token = TOKEN\n",
			".aws/config":      madeBy + "[default]\ns3 =\n    addressing_style = path\nregion = eu-west-1\n",
		}},
	{"A", "https://minio.test:9000", "~/.aws/credentials", "[default]\naws_access_key_id = " + awsKeyID + "\naws_secret_access_key=" + awsSecret + "\n",
		"", map[string]string{
			".aws/credentials": madeBy + "[default]\naws_secret_access_key = PLACEHOLDER\naws_access_key_id = ID\n",
			".aws/config":      madeBy + "[default]\ns3 =\n    addressing_style = path\nendpoint_url = https://minio.test:9000\n",
		}},
}

// The credential for a host is found in the owner's file. The program's file has a placeholder in
// the place of the credential, and no other credential of the owner's.
func TestShownFiles(t *testing.T) {
	t.Setenv("OTHER_KEY", otherKey)
	for _, c := range shownFiles {
		s := &Secret{Name: c.name, URL: urlOf(t, c.url), ShownAs: c.shownAs}
		path := strings.TrimPrefix(s.shownAs(), "~/")
		home := ownersFiles(t, map[string]string{path: c.text})
		got, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ())
		if err != nil {
			t.Errorf("%s of %s: %v", c.url, path, err)
			continue
		}
		if _, header := s.header(got); c.header != "" && header != c.header || got.isSent() != (c.header != "") {
			t.Errorf("%s of %s is sent as %q, want %q", c.url, path, header, c.header)
		}
		if got.From() != filepath.Join(home, path) {
			t.Errorf("%s of %s is from %q", c.url, path, got.From())
		}
		words := []string{"PLACEHOLDER", "ID", "TOKEN"}
		files := HomeFiles([]*Secret{s}, []Credential{got})
		if len(files) != len(c.want) {
			t.Errorf("%s of %s: %d files", c.url, path, len(files))
		}
		for _, f := range files {
			text := strings.ReplaceAll(string(f.Data), base64Of("rootsfs:"+got.placeholder), "AUTH")
			for i, p := range got.parts() {
				if p.value == p.placeholder || strings.Contains(text, p.value) {
					t.Errorf("%s has a part of the credential", f.Path)
				}
				text = strings.ReplaceAll(text, p.placeholder, words[i])
			}
			if text != c.want[f.Path] || strings.Contains(text, otherKey[4:]) {
				t.Errorf("%s is\n%s\nwant\n%s", f.Path, text, c.want[f.Path])
			}
			if !IsMade(string(f.Data)) {
				t.Errorf("IsMade reports false for %s", f.Path)
			}
		}
	}
}

// The owner's file is refused if programs could have written it. If a file has no credential for
// the host, no other credential of the file is taken.
func TestOwnersFilesRefused(t *testing.T) {
	home := ownersFiles(t, map[string]string{
		".netrc": "machine h.test login me password " + fileKey, "root/.npmrc": "//registry.npmjs.org/:_authToken=" + fileKey,
		".docker/config.json": "{", ".config/gh/hosts.yml": "\t{",
	})
	if err := os.Symlink(filepath.Join(home, "root/.npmrc"), filepath.Join(home, ".npmrc")); err != nil {
		t.Fatal(err)
	}
	for shownAs, want := range map[string]string{
		"~/.netrc": "no credential for https://other.test in ", "~/.docker/config.json": "no credential for",
		"~/.aws/credentials": "no credential for", "~/.config/gh/hosts.yml": "nor in the variable A",
	} {
		s := &Secret{Name: "A", URL: urlOf(t, "https://other.test"), ShownAs: shownAs}
		if _, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), fileKey) {
			t.Errorf("%s: %v", shownAs, err)
		}
	}
	s := &Secret{Name: "npm", URL: urlOf(t, "https://registry.npmjs.org")}
	_, err := s.Read(context.Background(), writabledirs.NewJudge(filepath.Join(home, "root")), os.Environ())
	if !errors.As(err, new(*writabledirs.Error)) && !errors.As(err, new(*rules.LinkError)) {
		t.Errorf("a file that programs can write: %v", err)
	}
	if err := s.SetDefaultURL(writabledirs.NewJudge(filepath.Join(home, "root")), os.Environ()); err == nil {
		t.Errorf("a file that programs can write names the registry: %s", s.URL)
	}
}

// Without an entry in a file the credential comes from a variable, which is then unset.
func TestOwnersVariables(t *testing.T) {
	ownersFiles(t, nil)
	t.Setenv("NPM_TOKEN", fileKey)
	t.Setenv("AWS_ACCESS_KEY_ID", awsKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsSecret)
	for name, variable := range map[string]string{"npm": "NPM_TOKEN", "aws": "AWS_SECRET_ACCESS_KEY"} {
		want := os.Getenv(variable)
		s := &Secret{Name: name, URL: urlOf(t, "https://a.test")}
		got, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ())
		if err != nil || got.value != want || os.Getenv(variable) != "" {
			t.Errorf("%s: %v, %v", name, got.value == want, err)
		}
	}
}

// A variable of the owner's for gh is used only for the hosts to which gh would send the variable's
// value. GIT_TOKEN is used for github.com.
func TestOwnersVariablesAreForTheirHosts(t *testing.T) {
	ownersFiles(t, nil)
	t.Setenv("PATH", t.TempDir()) // neither gh nor git is asked
	for _, c := range []struct{ name, url, variable, header string }{
		{"gh", "https://api.github.com", "GH_TOKEN", "Bearer " + fileKey},
		{"gh", "https://ghe.test/api/v3", "GH_TOKEN", ""},
		{"gh", "https://ghe.test/api/v3", "GITHUB_TOKEN", ""},
		{"gh", "https://ghe.test/api/v3", "GH_ENTERPRISE_TOKEN", "Bearer " + fileKey},
		{"gh", "https://api.github.com", "GH_ENTERPRISE_TOKEN", ""},
		{"git", "https://github.com", "GIT_TOKEN", basicHeader("x-access-token:" + fileKey)},
	} {
		for _, name := range []string{"GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GIT_TOKEN"} {
			t.Setenv(name, "")
		}
		t.Setenv(c.variable, fileKey)
		s := &Secret{Name: c.name, URL: urlOf(t, c.url)}
		got, err := s.Read(context.Background(), writabledirs.NewJudge(), os.Environ())
		if header := ""; (err == nil) != (c.header != "") {
			t.Errorf("%s for %s by %s: %v", c.name, c.url, c.variable, err)
		} else if _, header = s.header(got); err == nil && header != c.header {
			t.Errorf("%s for %s by %s is sent as %q", c.name, c.url, c.variable, header)
		}
	}
}

// A repository's settings may have set the variables of an endpoint, so these variables do not
// decide where signed requests go. An error about a URL does not contain the URL's password.
func TestWhereKeysGo(t *testing.T) {
	ownersFiles(t, map[string]string{
		".aws/config": "[default]\nregion = eu-west-1\nendpoint_url = https://minio.test:9000\n", ".npmrc": "registry=http://me:" + otherKey + "@o.test/\n",
	})
	for endpoint, want := range map[string]string{"": "https://minio.test:9000", "https://minio.test:9000/": "https://minio.test:9000", "https://evil.test": ""} {
		for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
			t.Setenv(name, endpoint)
			s := &Secret{Name: "aws"}
			if err := s.SetDefaultURL(writabledirs.NewJudge(), os.Environ()); (err == nil) != (want != "") || err == nil && s.URL.String() != want {
				t.Errorf("%s=%s: %s, %v", name, endpoint, s.URL, err)
			}
			t.Setenv(name, "")
		}
	}
	if err := (&Secret{Name: "npm"}).SetDefaultURL(writabledirs.NewJudge(), os.Environ()); err == nil || strings.Contains(err.Error(), otherKey) {
		t.Errorf("a registry with a password: %v", err)
	}
}

// A user and password of the source replace a value of the header Authorization with the
// placeholder, whatever user the program has put beside the placeholder.
func TestLoginReplacesPlaceholder(t *testing.T) {
	c := loginOf("me", fileKey, "").credential()
	for _, value := range []string{"Bearer " + c.placeholder, basicHeader("rootsfs:" + c.placeholder), basicHeader(c.placeholder + ":"), "token " + c.placeholder, c.placeholder} {
		if got, ok := c.fill("Authorization", value); !ok || got != basicHeader("me:"+fileKey) {
			t.Errorf("%s: %q, %v", value, got, ok)
		}
	}
	if got, ok := c.fill("Authorization", basicHeader("me:other")); ok {
		t.Errorf("another password: %q", got)
	}
}
