package sandbox

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// nginxConfig has git's server behind HTTP Basic and behind a token, and a location that answers with
// the protocol of the request. startNginx replaces DIR, PORT, GIT and KEY.
const nginxConfig = `
daemon off; master_process off; pid DIR/pid; error_log DIR/error.log;
events {}
http {
	access_log DIR/access.log; client_body_temp_path DIR/t; proxy_temp_path DIR/t; fastcgi_temp_path DIR/t; uwsgi_temp_path DIR/t; scgi_temp_path DIR/t;
	map $http_authorization $isToken { default 0; "Bearer KEY" 1; "token KEY" 1; }
	server {
		listen 127.0.0.5:PORT ssl http2;
		ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/key.pem;
		location /basic/ { auth_basic git; auth_basic_user_file DIR/users; proxy_pass GIT/git/; }
		location /token/ { if ($isToken = 0) { return 401; } proxy_pass GIT/git/; }
		location /protocol { if ($isToken = 0) { return 401; } return 200 "$server_protocol $request_method $args\n"; }
	}
}`

// startNginx starts nginx with git's http-backend behind it.
func startNginx(t *testing.T) *api {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/nginx")
	if err != nil || missing([]string{"git", "curl"}) != "" {
		t.Skip("this machine has no nginx, git or curl")
	}
	path, err := exec.Command("git", "--exec-path").Output()
	testkit.Must(t, err)
	git := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + repository(t), "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(git.Close)
	free := listenAt(t)
	a, dir, cert := &api{port: portOf(free)}, t.TempDir(), certificate(t)
	free.Close()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	testkit.Must(t, err)
	config := strings.NewReplacer("DIR", dir, "PORT", a.port, "GIT", git.URL, "KEY", credential).Replace(nginxConfig)
	a.certificate = filepath.Join(dir, "cert.pem")
	for name, text := range map[string][]byte{
		"nginx.conf": []byte(config), "users": []byte("x-access-token:{PLAIN}" + credential + "\n"),
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	makeReachable(t, dir)
	cmd := exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", filepath.Join(dir, "error.log"))
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGTERM); _ = cmd.Wait() })
	testkit.Until(t, "nginx listens", func() bool {
		res, err := http.Get("http://127.0.0.5:" + a.port + "/") // nginx answers plain HTTP with an error
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
	return a
}

// Git and curl work with nginx and git's own server as they would with the key: by HTTP Basic and
// by a token, over HTTP/1.1 and over HTTP/2.
func TestSecretWithNginx(t *testing.T) {
	a := startNginx(t)
	const script = `at=api.example.com:PORT
		curl -sS https://$at/protocol?a; curl -sS --http1.1 -H "Authorization: token $API_TOKEN" https://$at/protocol?b
		head -c 3000000 /dev/zero | curl -sS -o /dev/null -w '%{http_code}\n' -X PUT --data-binary @- https://$at/protocol
		for way in "basic x-access-token:$API_TOKEN@" "token " "token any:$API_TOKEN@"; do
			set -- $way
			git clone -q https://$2$at/$1/repo.git $1$# && cat $1$#/file
			(cd $1$# && git fetch -q && git push -q origin HEAD:refs/heads/$1-WHO-$# && git ls-remote -q origin refs/heads/$1-WHO-$# | wc -l)
		done
		curl -sS -o /dev/null -w '%{http_code}\n' -u "other:$API_TOKEN" https://$at/basic/repo.git/HEAD
		curl -sS -o /dev/null -w '%{http_code}\n' -X DELETE https://$at/basic/repo.git/HEAD`
	want := "HTTP/2.0 GET a\nHTTP/2.0 GET b\n413\n" + strings.Repeat("hello by clone\n1\n", 3) + "401\n403\n"
	eachNetLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		o.writeConfig(fmt.Sprintf("[[secret]]\nname = \"API_TOKEN\"\nurl = \"https://api.example.com:%s\"\nallow = [\"GET /**\", \"PUT /protocol\", \"POST /*/repo.git/git-{upload,receive}-pack\"]\n", a.port))
		ord := o.networkOrder(level, "--net=127.0.0.5:"+a.port, strings.NewReplacer("PORT", a.port, "WHO", o.caller.name+level.String()).Replace(script))
		ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, "--secret", "API_TOKEN") // before --
		ord.Env = append(slices.Clone(o.env), "API_TOKEN="+credential, "SSL_CERT_FILE="+a.certificate)
		stdout, log, code := o.run(ord)
		if stdout != want || code != 0 || strings.Contains(log, credential) {
			t.Errorf("exit code %d, the programs said\n%s; rootsfs: %s", code, stdout, log)
		}
	})
}
