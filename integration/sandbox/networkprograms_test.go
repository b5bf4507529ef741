package sandbox

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// networkPrograms are programs that know nothing of rootsfs. Each connects to $HOST: first an
// approved name, then one that no rule permits. Both lead to the same servers.
var networkPrograms = []struct {
	name    string
	needs   []string // paths of the needed files, relative to /usr/bin
	script  string
	want    string // the whole output if $HOST is approved
	refusal string // a part of the output if it is not
}{
	{"curl", []string{"curl"}, `curl -sS --cacert ca.crt https://$HOST:$HTTPS/hello`,
		"hello by GET\n", "Could not resolve host: evil.example.com"},
	{"git over https", []string{"git"}, `GIT_SSL_CAINFO=$PWD/ca.crt git clone -q https://$HOST:$HTTPS/git/repo.git $HOST && cat $HOST/file`,
		"hello by clone\n", "Could not resolve host: evil.example.com"},
	{"git over ssh", []string{"git", "ssh"}, `
		export GIT_SSH_COMMAND='ssh -F none -o LogLevel=ERROR -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
		git clone -q ssh://git@$HOST:$SSH/repo.git ssh-$HOST && cat ssh-$HOST/file`,
		"hello by clone\n", "Could not resolve hostname evil.example.com"},
	{"npm install", []string{"node", "npm"}, `
		mkdir npm-$HOST && cd npm-$HOST && echo '{}' >package.json
		# npm itself repeats a failed look-up for a minute; once is enough here.
		npm install --no-audit --no-fund --no-update-notifier --loglevel=error --fetch-retries=0 --cafile=../ca.crt --registry=https://$HOST:$HTTPS/registry/ dep >/dev/null &&
			node -p 'require("dep")'`,
		"hello by require\n", "ENOTFOUND"},
	{"pip", []string{"pip3"}, `
		# pip itself repeats a failed look-up five times. It prints the reason only if it repeats at least once.
		/usr/bin/python3 -m pip --isolated --disable-pip-version-check --no-cache-dir --retries 1 --cert ca.crt \
			download --no-deps --index-url https://$HOST:$HTTPS/simple/ -d pip-$HOST dep >pip.log 2>&1 || cat pip.log
		[ ! -d pip-$HOST ] || PYTHONPATH=$(echo pip-$HOST/*.whl) /usr/bin/python3 -c 'import dep; print(dep.text)'`,
		"hello by import\n", "Name or service not known"},
	{"python3 requests", []string{"pip3"}, `/usr/bin/python3 -c '
import sys
from pip._vendor import requests # pip brings its own
print(requests.get(sys.argv[1], verify="ca.crt").text, end="")' https://$HOST:$HTTPS/hello 2>&1 | tail -n 1`,
		"hello by GET\n", "Name or service not known"},
	{"python3 urllib", []string{"python3"}, `SSL_CERT_FILE=ca.crt python3 -c '
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' https://$HOST:$HTTPS/hello`,
		"hello by GET\n", "Name or service not known"},
	{"python3, where the server speaks first", []string{"python3"}, `python3 -c '
import socket, sys
f = socket.create_connection((sys.argv[1], int(sys.argv[2]))).makefile("rw")
print(f.readline(), end="")
f.write("hello\n"); f.flush()
print(f.read(), end="")' $HOST $GREETER`,
		"220 ready\n250 hello\n", "Name or service not known"},
	{"node fetch", []string{"node"}, `NODE_EXTRA_CA_CERTS=ca.crt node -e '
		fetch(process.argv[1]).then((r) => r.text()).then((s) => process.stdout.write(s))' https://$HOST:$HTTPS/hello`,
		"hello by GET\n", "getaddrinfo ENOTFOUND evil.example.com"},
	{"node net.connect", []string{"node"}, `node -e '
		const c = require("net").connect(process.argv[2], process.argv[1]);
		c.once("data", () => c.write("hello\n")).pipe(process.stdout)' $HOST $GREETER`,
		"220 ready\n250 hello\n", "getaddrinfo ENOTFOUND evil.example.com"},
	{"gRPC", []string{"python3", "../lib/python3/dist-packages/grpc"}, `
		GRPC_VERBOSITY=NONE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=ca.crt /usr/bin/python3 -c '
import grpc, sys
with grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()) as channel:
    call = channel.unary_unary("/grpc/Greet") # bytes in, bytes out
    try: print(call(b"grpcio", timeout=30).decode())
    except grpc.RpcError as e: print(e.details())' $HOST:$HTTPS`,
		"hello by call of grpcio\n", "Domain name not found"},
	// gRPC without its library: one call of HTTP/2, whose status comes in a trailer.
	{"gRPC over node http2", []string{"node"}, `node -e '
		const c = require("http2").connect(process.argv[1], { ca: require("fs").readFileSync("ca.crt") });
		const r = c.request({ ":method": "POST", ":path": "/grpc/Greeter/Greet", "content-type": "application/grpc", te: "trailers" });
		let got = Buffer.alloc(0), status;
		r.on("data", (d) => got = Buffer.concat([got, d])).on("trailers", (t) => status = t["grpc-status"]);
		r.on("end", () => { console.log(status, got.subarray(5).toString()); c.close(); });
		r.end(Buffer.from([0, 0, 0, 0, 4, ...Buffer.from("node")]));' https://$HOST:$HTTPS`,
		"0 hello by call of node\n", "getaddrinfo ENOTFOUND evil.example.com"},
	{"websocket", []string{"node"}, `NODE_EXTRA_CA_CERTS=ca.crt node -e '
		const key = require("crypto").randomBytes(16).toString("base64");
		const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": key };
		require("https").get(process.argv[1], { headers }).on("upgrade", (r, c, head) => {
			let got = head;
			c.on("data", (d) => got = Buffer.concat([got, d])).on("end", () => { console.log(r.statusCode, got.subarray(2).toString()); c.end(); });
		})' https://$HOST:$HTTPS/websocket`,
		"101 hello\n", "getaddrinfo ENOTFOUND evil.example.com"},
	{"Go net/http", nil, `SSL_CERT_FILE=ca.crt ./hostile -get https://$HOST:$HTTPS/hello`,
		"hello by GET\n", "no such host"},
	{"wget", []string{"wget"}, `wget -qO- --tries=1 --ca-certificate=ca.crt https://$HOST:$HTTPS/hello || wget --tries=1 -O- https://$HOST:$HTTPS/`,
		"hello by GET\n", "unable to resolve host address"},
	{"apt", []string{"apt-get", "dpkg-deb"}, `
		mkdir -p apt-$HOST/lists/partial apt-$HOST/archives/partial && cd apt-$HOST && : >status
		echo "deb [trusted=yes] https://$HOST:$HTTPS/apt ./" >sources.list
		cat >apt.conf <<END
Dir "$PWD"; Dir::Etc "$PWD"; Dir::Etc::sourceparts "-"; Dir::State "$PWD"; Dir::State::status "$PWD/status"; Dir::Cache "$PWD"; Dir::Log "$PWD";
Dir::Bin::methods "/usr/lib/apt/methods"; APT::Sandbox::User ""; Debug::NoLocking "1"; Acquire::https::CaInfo "$PWD/../ca.crt"; Acquire::Retries "0";
END
		export APT_CONFIG=$PWD/apt.conf
		{ apt-get update && apt-get download dep; } >apt.log 2>&1
		dpkg-deb --fsys-tarfile dep_*.deb 2>>apt.log | tar -xO ./dep 2>>apt.log || cat apt.log`,
		"hello by apt\n", "Could not resolve 'evil.example.com'"},
	{"redis-cli", []string{"redis-cli"}, `redis-cli -h $HOST -p $REDIS ping`,
		"PONG\n", "Name or service not known"},
	{"psql", []string{"psql"}, `LC_ALL=C psql "host=$HOST port=$POSTGRES user=u dbname=d" 2>&1 | sed 's/.*FATAL: */FATAL: /'`,
		"FATAL: hello by startup\n", `could not translate host name "evil.example.com" to address`},
}

// endOfProgram matches the line that the script prints after each program. The line has the
// duration.
var endOfProgram = regexp.MustCompile(`==== (\d+ ms)\n`)

// missing returns the first of a program's needs that this machine does not have.
func missing(needs []string) string {
	for _, n := range needs {
		if _, err := os.Stat("/usr/bin/" + n); err != nil {
			return n
		}
	}
	return ""
}

// Unmodified programs reach a host that --net=HOSTS names. At another host they fail with their
// own message for a name that does not exist. Root tests one level, the user the other one;
// TestNetworkOfApprovedHosts tests both levels with both users.
func TestNetworkPrograms(t *testing.T) {
	s := newServers(t)
	var script strings.Builder
	fmt.Fprintf(&script, "HTTPS=%s GREETER=%s SSH=%s POSTGRES=%s REDIS=%s\ncat >ca.crt <<'END'\n%sEND\n", s.HTTPS, s.GREETER, s.SSH, s.POSTGRES, s.REDIS, s.certificate)
	for _, p := range networkPrograms {
		if missing(p.needs) != "" {
			p.script = ":"
		}
		for _, host := range []string{"api", "evil"} {
			fmt.Fprintf(&script, "began=$(date +%%s%%N)\n( HOST=%s.example.com\n%s\n) 2>&1 </dev/null; echo \"==== $((($(date +%%s%%N) - began) / 1000000)) ms\"\n", host, p.script)
		}
	}
	for i, w := range callers {
		level := netLevels[i]
		t.Run(w.name+"/"+level.String(), func(t *testing.T) {
			t.Parallel()
			o := newOutside(t, w)
			stdout, log, code := o.run(o.networkOrder(level, "--net=api.example.com,127.0.0.5", script.String()))
			output := endOfProgram.Split(stdout, -1)
			took := endOfProgram.FindAllString(stdout, -1)
			if len(output) != 2*len(networkPrograms)+1 || code != 0 {
				t.Fatalf("exit code %d, the programs said\n%s; rootsfs: %s", code, stdout, log)
			}
			for i, p := range networkPrograms {
				t.Run(p.name, func(t *testing.T) {
					if tool := missing(p.needs); tool != "" {
						t.Skipf("this machine has no %s", tool)
					}
					t.Logf("approved%s, not approved%s", strings.TrimRight(took[2*i], "\n"), took[2*i+1])
					if got := output[2*i]; got != p.want {
						t.Errorf("approved: it said\n%swant\n%s", got, p.want)
					}
					if got := output[2*i+1]; !strings.Contains(got, p.refusal) || strings.Contains(got, p.want) {
						t.Errorf("not approved: it said\n%swant\n%s", got, p.refusal)
					}
				})
			}
			if !strings.Contains(log, "evil.example.com") {
				t.Errorf("rootsfs does not name the refused host at the end: %s", log)
			}
		})
	}
}
