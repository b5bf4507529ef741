package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// These keys are in the owner's files. The programs of these tests must not have the keys.
const (
	gitPassword = "gitP4ssw0rd" + "-of-the-owner"
	npmToken    = "npm_ownersT0ken" + "ABCDEFGHIJKLMNOPQRSTU"
	ghToken     = "gho_ownersT0ken" + "ABCDEFGHIJKLMNOPQRSTU"
)

// gitHub answers questions of gh: which fields the host knows, and which pull requests there are.
func gitHub(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "token "+ghToken || r.URL.Path != "/api/graphql" {
		http.Error(w, `{"message":"you are nobody"}`, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"data": {"PullRequest": {"fields": []}, "StatusCheckRollupContextConnection": {"fields": []},
		"repository": {"pullRequests": {"totalCount": 1, "pageInfo": {}, "nodes": [{"number": 7, "title": "hello by gh"}]}}}}`)
}

// npmRegistry accepts the package pkg from its owner.
func npmRegistry(w http.ResponseWriter, r *http.Request) {
	var doc struct {
		Attachments map[string]struct{ Data []byte } `json:"_attachments"`
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+npmToken:
		http.Error(w, `{"error":"you are nobody"}`, http.StatusUnauthorized)
	case r.Method != http.MethodPut || r.URL.Path != "/npm/pkg":
		http.Error(w, `{"error":"not found"}`, http.StatusNotFound)
	case json.NewDecoder(r.Body).Decode(&doc) != nil || len(doc.Attachments["pkg-1.0.0.tgz"].Data) == 0:
		http.Error(w, `{"error":"no package"}`, http.StatusBadRequest)
	default:
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"ok":true}`)
	}
}

// keyFileHost serves a git repository with HTTP Basic, an npm registry, and GitHub's API for gh.
func keyFileHost(t *testing.T) *api {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	testkit.Must(t, err)
	git := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + repository(t), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=owner"},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/git/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("owner:"+gitPassword)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "you are nobody", http.StatusUnauthorized)
			return
		}
		git.ServeHTTP(w, r)
	})
	mux.HandleFunc("/npm/", npmRegistry)
	mux.HandleFunc("/api/", gitHub)
	return serveHTTPS(t, mux)
}

// ownersHome makes a HOME of the owner with the given files, and returns its path.
func (o *outside) ownersHome(files map[string]string) string {
	t := o.t
	t.Helper()
	home := filepath.Join(o.base, "owner")
	testkit.Must(t, os.Mkdir(home, 0o700))
	o.own(home)
	for name, text := range files {
		path := filepath.Join(home, name)
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		o.own(path)
	}
	return home
}

// keyFilesScript runs programs that need the keys of the owner's files. HOST is replaced
// with the host and its port. At the end, the script searches for the keys.
const keyFilesScript = `exec 2>&1
	grep -o '^[^=]*=h\?t\?t\?p\?s\?' ~/.npmrc; [ "$(tail -n1 ~/.npmrc)" = "//HOST/npm/:_authToken=$NPM_TOKEN" ] && echo "as in the variable"
	git clone -q https://HOST/git/repo.git r && cd r && echo changed >file && git -c user.name=n -c user.email=e commit -qam m && git push -q && git ls-remote -q | wc -l; cd ..
	mkdir p && cd p && echo '{"name":"pkg","version":"1.0.0","license":"MIT"}' >package.json && npm publish --silent && echo published; cd ..
	gh pr list -R HOST/o/r --json number,title -q '.[] | "\(.number) \(.title)"'; grep -c "$GH_TOKEN" ~/.config/gh/hosts.yml
	curl -sS -H "Authorization: Bearer $NPM_TOKEN" https://HOST/npm/none; curl -sS -o /dev/null -w '%{http_code}\n' -u mallory:other https://HOST/git/repo.git/HEAD
	printf '%s\n' gitP4ssw0rd''-of-the-owner npm_ownersT0ken''ABCDEFGHIJKLMNOPQRSTU gho_ownersT0ken''ABCDEFGHIJKLMNOPQRSTU >pattern
	find /proc/[0-9]*/environ /proc/[0-9]*/cmdline ~ /tmp /etc /run . -type f -readable ! -name pattern -exec grep -laF -f pattern {} + 2>/dev/null; env | grep -F -f pattern; echo searched`

// With --secret git, --secret npm and --secret gh, the programs git, npm and gh work as they would
// with the keys in the owner's files. The keys are nowhere inside. Root runs with a private HOME, the
// user with a kept one.
func TestKeysOfOwnersFiles(t *testing.T) {
	if tool := missing([]string{"git", "npm", "node", "curl", "gh"}); tool != "" {
		t.Skipf("this machine has no %s", tool)
	}
	eachNetLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		a := keyFileHost(t)
		host := "api.example.com:" + a.port
		home := o.ownersHome(map[string]string{
			".npmrc":           "//" + host + "/npm/:_authToken=${TOKEN_OF_NPM}\nregistry=https://" + host + "/npm/\n//other.test/:_authToken=x" + npmToken + "\n",
			".gitconfig":       "[credential]\n\thelper = store\n",
			".git-credentials": "https://me:other@example.com\nhttps://owner:" + gitPassword + "@" + host + "\n",
		})
		hosts := filepath.Join(o.base, "xdg_config_home", "gh", "hosts.yml")
		testkit.Must(t, os.MkdirAll(filepath.Dir(hosts), 0o700), os.WriteFile(hosts, fmt.Appendf(nil, "%s:\n    oauth_token: %s\n    user: owner\nother.test:\n    oauth_token: x%[2]s\n", host, ghToken), 0o600))
		for at := hosts; at != o.base; at = filepath.Dir(at) {
			o.own(at)
		}
		ord := o.networkOrder(level, "--net=127.0.0.5:"+a.port, strings.ReplaceAll(keyFilesScript, "HOST", host))
		flags := []string{"--secret", "npm", "--secret", "git=https://" + host + "/git", "--secret", "gh=https://" + host + "/api"}
		if o.caller.uid != 0 {
			flags = append(flags, "--home", o.home)
		}
		ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, flags...) // before --
		ord.Env = append(append([]string{}, o.env...), "HOME="+home, "SSL_CERT_FILE="+a.certificate, "TOKEN_OF_NPM="+npmToken)
		stdout, log, code := o.run(ord)
		want := "registry=https\n//" + host + "/npm/:_authToken=\nas in the variable\n2\npublished\n7 hello by gh\n2\n" +
			`{"error":"not found"}` + "\n200\nsearched\n"
		if stdout != want || code != 0 {
			t.Errorf("exit code %d, the programs said\n%swant\n%srootsfs: %s", code, stdout, want, log)
		}
		for _, line := range []string{"the secret git is for https://" + host + "/git, and from `git credential fill`", "the secret npm is for https://" + host + "/npm, and from " + home + "/.npmrc"} {
			if !strings.Contains(log, line) {
				t.Errorf("not in the log: %s\n%s", line, log)
			}
		}
		if strings.Contains(log, npmToken) || strings.Contains(log, gitPassword) || strings.Contains(log, ghToken) {
			t.Errorf("a key is in the log: %s", log)
		}
	})
}
