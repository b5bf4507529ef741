package sandbox

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/integration/sigv4"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

//go:embed testdata/package.json testdata/package-lock.json
var serversManifest embed.FS

// s3KeyID and s3Secret are the owner's key for the S3 server. The confined programs must not find
// either of them.
const (
	s3KeyID  = "AKIAOWNERSKEY" + "2345678"
	s3Secret = "ownersS3secret" + "/abcdefghij0123456789ABCDEF"
)

// s3Script runs s3rver with one key. It prints one line: the port when the server listens, or the
// error.
const s3Script = `
const account = require("s3rver/lib/models/account"), S3rver = require("s3rver");
account.DUMMY_ACCOUNT.createKeyPair(process.env.ID, process.env.SECRET);
new S3rver({port: 0, address: "127.0.0.1", directory: process.env.DIR, silent: true, vhostBuckets: false, allowMismatchedSignatures: false})
	.run((err, at) => console.log(err || at.port));`

// verdaccioConfig lets authenticated users install and publish packages.
const verdaccioConfig = `storage: DIR/storage
auth: {htpasswd: {file: DIR/htpasswd, max_users: 10}}
packages: {"**": {access: $authenticated, publish: $authenticated}}
log: {type: stdout, format: pretty, level: fatal}
`

// startServer starts a server, and kills the server when the test ends.
func startServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = os.Stderr
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// proxyTo serves HTTPS on behalf of a server at port of this machine. It forwards a request if
// check returns nil. Otherwise it refuses the request with the error.
func proxyTo(t *testing.T, port string, check func(*http.Request) error) *api {
	t.Helper()
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + port})
		r.Out.Host = r.In.Host // a signature covers Host
		r.SetXForwarded()
	}}
	return serveHTTPS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, "<Error><Code>SignatureDoesNotMatch</Code><Message>"+err.Error()+"</Message></Error>", http.StatusForbidden)
			return
		}
		p.ServeHTTP(w, r)
	}))
}

// s3Server starts s3rver, and checks signatures in front of it, because s3rver does not check
// those of version 4.
func s3Server(t *testing.T, modules string) *api {
	t.Helper()
	cmd := exec.Command("node", "-e", s3Script)
	cmd.Dir, cmd.Env = modules, append(os.Environ(), "ID="+s3KeyID, "SECRET="+s3Secret, "DIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	startServer(t, cmd)
	line := make([]byte, 64)
	n, err := out.Read(line)
	testkit.Must(t, err)
	return proxyTo(t, strings.TrimSpace(string(line[:n])), func(r *http.Request) error {
		return sigv4.Verify(r, aws.Credentials{AccessKeyID: s3KeyID, SecretAccessKey: s3Secret})
	})
}

// npmServer starts verdaccio, and returns the owner's token.
func npmServer(t *testing.T, modules string) (a *api, token string) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "config.yaml")
	testkit.Must(t, os.WriteFile(conf, []byte(strings.ReplaceAll(verdaccioConfig, "DIR", dir)), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	port := portOf(l)
	testkit.Must(t, l.Close())
	cmd := exec.Command("node", filepath.Join(modules, "node_modules/verdaccio/bin/verdaccio"), "--config", conf, "--listen", "127.0.0.1:"+port)
	startServer(t, cmd)
	var answer struct{ Token string }
	testkit.Until(t, "verdaccio gives the owner a token", func() bool {
		req, err := http.NewRequest(http.MethodPut, "http://127.0.0.1:"+port+"/-/user/org.couchdb.user:owner", strings.NewReader(`{"name": "owner", "password": "ownersP4ssword"}`))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false // verdaccio does not listen yet
		}
		defer res.Body.Close()
		testkit.Must(t, json.NewDecoder(res.Body).Decode(&answer))
		return answer.Token != ""
	})
	return proxyTo(t, port, func(*http.Request) error { return nil }), answer.Token
}

// awsCLI copies the AWS CLI of this machine's Python to a directory that everybody can read, and
// returns the directory. It returns "" if there is no AWS CLI.
func awsCLI(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import awscli, os; print(os.path.dirname(os.path.dirname(awscli.__file__)))").Output()
	if err != nil {
		return ""
	}
	dir := filepath.Join(programsDir(t), "aws")
	names := []string{"awscli", "botocore", "s3transfer", "jmespath", "dateutil", "six.py", "urllib3", "docutils", "colorama", "yaml", "rsa", "pyasn1"}
	script := `mkdir -p "$1" && cd "$0" && to=$1 && shift && for n; do [ ! -e $n ] || cp -R $n "$to"; done && chmod -R a+rX "$to"`
	cmd := exec.Command("sh", append([]string{"-c", script, strings.TrimSpace(string(out)), dir}, names...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// serversScript is the shell script that rootsfs runs. It uses npm, Node and the AWS CLI, and then
// searches for the keys. The test replaces the words WHO, MODULES, NPM and AWS.
const serversScript = `exec 2>&1
	mkdir p q && cd p && echo '{"name":"pkg-WHO","version":"1.0.0","license":"MIT"}' >package.json && npm whoami && npm publish --silent && echo published
	cd ../q && npm install --silent --no-audit --no-fund pkg-WHO && cat node_modules/pkg-WHO/package.json; cd ..
	export NODE_PATH=MODULES/node_modules
	node -e 'require("axios").get("https://NPM/-/whoami").then((r) => console.log("axios", r.data.username))'
	node -e 'require("undici").request("https://NPM/-/whoami").then((r) => r.body.json()).then((b) => console.log("undici", b.username))'
	aws() { PYTHONPATH=AWS python3 -m awscli "$@"; }
	head -c 9000000 /dev/zero >big; echo text >small
	aws s3 mb s3://mine-WHO && aws s3 cp --quiet small "s3://mine-WHO/a key=+@:~" && aws s3 cp --quiet big s3://mine-WHO/big && aws s3 cp "s3://mine-WHO/a key=+@:~" - && aws s3 cp --quiet s3://mine-WHO/big back && cmp big back
	aws s3 ls s3://mine-WHO | sed 's/.* \([0-9]* .*\)/\1/'; aws s3 presign s3://mine-WHO/big >url; curl -sS "$(cat url)" | cut -d' ' -f2-8
	find /proc/[0-9]*/environ ~ /tmp /etc /run . -type f -readable ! -name pattern -exec grep -laF -f pattern {} + 2>/dev/null; env | grep -F -f pattern; echo searched`

// Real servers accept the requests of real clients, although the clients do not have the keys.
// verdaccio accepts a package, returns the package, and answers axios and undici. The proxy in
// front of s3rver verifies the signature of each request. s3rver stores the files that the AWS
// CLI uploads, also in several parts.
func TestKeysAtRealServers(t *testing.T) {
	if os.Getenv("ROOTSFS_SOAK") == "" {
		t.Skip("ROOTSFS_SOAK=1 runs it")
	}
	needRoot(t)
	modules, err := files.InstallModules(t.Context(), "servers", serversManifest)
	testkit.Must(t, err)
	cli := awsCLI(t)
	if cli == "" {
		t.Skip("this machine has no AWS CLI")
	}
	clients := filepath.Join(programsDir(t), "clients") // everybody can read files there
	if out, err := exec.Command("sh", "-c", `mkdir "$1" && cp -R "$0/node_modules" "$1" && chmod -R a+rX "$1"`, modules, clients).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	npm, token := npmServer(t, modules)
	s3 := s3Server(t, modules)
	certificates := filepath.Join(t.TempDir(), "both.crt")
	one, err := os.ReadFile(npm.certificate)
	testkit.Must(t, err)
	two, err := os.ReadFile(s3.certificate)
	testkit.Must(t, err)
	for i, w := range callers {
		for j := range callers { // each caller runs at both levels
			level := netLevels[(i+j)%2]
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				o := newOutside(t, w)
				home := o.ownersHome(map[string]string{
					".npmrc": fmt.Sprintf("registry=https://api.example.com:%s/\n//api.example.com:%[1]s/:_authToken=%s\n", npm.port, token),
				})
				dir := filepath.Join(home, ".aws")
				testkit.Must(t, os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "credentials"), fmt.Appendf(nil, "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s3KeyID, s3Secret), 0o600),
					os.WriteFile(filepath.Join(dir, "config"), fmt.Appendf(nil, "[default]\nregion = eu-west-1\nendpoint_url = https://api.example.com:%s\n", s3.port), 0o600),
					os.WriteFile(certificates, slices.Concat(one, two), 0o644))
				for _, path := range []string{dir, filepath.Join(dir, "credentials"), filepath.Join(dir, "config")} {
					o.own(path)
				}
				ca := filepath.Join(o.base, "ca.crt")
				testkit.Must(t, copyFile(certificates, ca, 0o644))
				name := strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:]+"-"+w.name, "_", "-")
				script := strings.NewReplacer("WHO", name, "AWS", cli, "MODULES", clients, "NPM", "api.example.com:"+npm.port).Replace(serversScript)
				half := func(key string) string { return key[:len(key)/2] + "''" + key[len(key)/2:] } // so that the script contains no whole key
				script = "for k in " + half(token) + " " + half(s3KeyID) + " " + half(s3Secret) + "; do echo $k; done >pattern\n" + script
				ord := o.networkOrder(level, "--net=127.0.0.5", script)
				ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, "--secret", "npm", "--secret", "aws", "--root", cli+":ro", "--root", clients+":ro", "--env", "AWS_REQUEST_CHECKSUM_CALCULATION=when_required") // before --
				ord.Env = append(append([]string{}, o.env...), "HOME="+home, "SSL_CERT_FILE="+ca)
				stdout, log, code := o.run(ord)
				want := "owner\npublished\n" + fmt.Sprintf(`{"name":"pkg-%s","version":"1.0.0","license":"MIT"}`, name) + "\naxios owner\nundici owner\nmake_bucket: mine-" + name +
					"\ntext\n5 a key=+@:~\n9000000 big\nthis URL is signed in advance, by\nsearched\n"
				if stdout != want || code != 0 {
					t.Errorf("exit code %d, the programs said\n%swant\n%srootsfs: %s", code, stdout, want, log)
				}
				t.Logf("inside:\n%s", stdout)
			})
		}
	}
	cmd := exec.Command("python3", "-m", "awscli", "s3", "ls", "--endpoint-url", "https://127.0.0.5:"+s3.port, "--no-verify-ssl")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+cli, "AWS_ACCESS_KEY_ID="+s3KeyID, "AWS_SECRET_ACCESS_KEY=another", "AWS_REGION=eu-west-1")
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("SignatureDoesNotMatch")) {
		t.Errorf("with another key: %v\n%s", err, out)
	}
}
