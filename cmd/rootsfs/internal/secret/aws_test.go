package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/integration/sigv4"
)

// awsHost is a host that accepts requests signed with the owner's keys.
type awsHost struct {
	mu    sync.Mutex
	lines []string // one for each request; with an error if it was refused
	all   []byte   // all headers and bodies of the requests
}

// ownersKeys are the keys whose signatures the host accepts.
var ownersKeys = aws.Credentials{AccessKeyID: awsKeyID, SecretAccessKey: awsSecret, SessionToken: awsToken}

// ServeHTTP answers a signed request like S3 or, if the request has the header X-Amz-Target, with
// the access key and the token in the body, as some services do.
func (h *awsHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := sigv4.Verify(r, ownersKeys)
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = r.Header.Write(writer{&h.all})
	h.all = append(h.all, body...)
	line := r.Method + " " + r.RequestURI
	if err != nil {
		line += ": " + err.Error()
	}
	h.lines = append(h.lines, line)
	w.Header().Set("X-Key", awsKeyID)
	switch {
	case err != nil:
		http.Error(w, "<Error><Code>SignatureDoesNotMatch</Code></Error>", http.StatusForbidden)
	case r.Header.Get("X-Amz-Target") != "":
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		fmt.Fprint(w, `{"TableNames": ["t`+awsKeyID+`", "`+awsToken+`"]}`)
	default:
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, `<ListAllMyBucketsResult><Buckets><Bucket><Name>mine</Name><CreationDate>2026-01-02T03:04:05.000Z</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>`)
	}
}

type writer struct{ to *[]byte }

func (w writer) Write(p []byte) (int, error) { *w.to = append(*w.to, p...); return len(p), nil }

// newAWSLab opens a door to an awsHost, and sets the host and port of the secret's URL to those of
// the door.
func newAWSLab(t *testing.T, s *Secret) (*doorLab, *awsHost) {
	t.Helper()
	host := &awsHost{}
	s.Name, s.URL.Host = "aws", "127.0.0.1"
	d := newDoorLab(t, host.ServeHTTP, s)
	s.URL.Port = netip.MustParseAddrPort(d.at).Port()
	d.proxy.credential = found{value: awsSecret, keys: &signingKeys{awsKeyID, awsToken}, settings: settings{region: "eu-west-1"}}.credential()
	d.proxy.header, d.proxy.value = s.header(d.proxy.credential)
	return d, host
}

// check reports an error if the host has not got the wanted requests since the last call, or if any
// request had the secret key in it.
func (h *awsHost) check(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the host got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	h.lines = nil
	if bytes.Contains(h.all, []byte(awsSecret)) {
		t.Error("the secret key was sent to the host")
	}
}

const pythonAWS = `
import botocore.session, io
s = botocore.session.get_session()
s3 = s.create_client("s3")
print([b["Name"] for b in s3.list_buckets()["Buckets"]])
s3.put_object(Bucket="b", Key="a key/with=every@kind+of:sign~", Body=b"text", Metadata={"a": "b  c"})
s3.put_object(Bucket="b", Key="stream", Body=io.BytesIO(b"x" * 100000), ChecksumAlgorithm="SHA256")
s3.get_object(Bucket="b", Key="k", Range="bytes=0-1")
t = s.create_client("dynamodb").list_tables()["TableNames"]
print(len(t), t[0][:5], t[0] == "t" + s.get_credentials().access_key, t[1] == s.get_credentials().token)
`

// Clients of AWS that know nothing of rootsfs sign with the placeholder, and the host gets the
// owner's signature.
func TestAWSClients(t *testing.T) {
	d, host := newAWSLab(t, &Secret{Scopes: []string{"s3/*", "dynamodb/eu-west-1"}})
	home := t.TempDir()
	for _, f := range HomeFiles([]*Secret{d.proxy.secret}, []Credential{d.proxy.credential}) {
		path := filepath.Join(home, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, f.Data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ca := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(ca, d.authority.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "AWS_CA_BUNDLE=" + ca, "CURL_CA_BUNDLE=" + ca, "AWS_EC2_METADATA_DISABLED=true"}
	env = append(env, d.proxy.secret.Environ(d.proxy.credential)...)
	for _, c := range []struct {
		args     []string
		output   string
		requests []string // that the host gets
	}{
		{[]string{"aws", "s3", "ls"}, "2026-01-02 03:04:05 mine\n", []string{"GET /"}},
		{[]string{"python3", "-c", pythonAWS}, "['mine']\n2 tAKIA True True\n", []string{
			"GET /", "PUT /b/a%20key/with%3Devery%40kind%2Bof%3Asign~", "PUT /b/stream", "GET /b/k", "POST /",
		}},
		{[]string{"sh", "-c", `curl -sS -o /dev/null -w '%{http_code}\n' --aws-sigv4 aws:amz:us-east-1:s3 -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -T - -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" "https://` + d.at + `/b/k?x=1&a=%2F" </dev/null`},
			"200\n", []string{"PUT /b/k?a=%2F&x=1"}},
	} {
		if c.args[0] == "aws" && os.Getenv("ROOTSFS_SOAK") == "" {
			continue // aws is slow, and makes its requests by botocore, as the case python3 does
		}
		if c.args[0] == "python3" && exec.Command("python3", "-c", "import botocore").Run() != nil {
			t.Log("this machine has no botocore")
			continue
		}
		cmd := exec.Command(c.args[0], c.args[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Logf("this machine has no %s", c.args[0])
			continue
		}
		if err != nil || string(out) != c.output {
			t.Errorf("%s: %v, it said\n%s", c.args[0], err, out)
		}
		host.check(t, c.requests...)
	}
}

// A request that cannot be signed again, or that no scope permits, is refused with the reason.
func TestAWSRefuses(t *testing.T) {
	d, host := newAWSLab(t, &Secret{Scopes: []string{"s3/eu-west-1"}, In: []string{inQuery}})
	c := d.client(false)
	const sign = "AWS4-HMAC-SHA256 Credential=AKIAX/20260101/"
	for _, one := range []struct {
		query, auth, payload string
		status               int
		want                 string
	}{
		{"", sign + "eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=00", "UNSIGNED-PAYLOAD", 200, "mine"},
		{"", sign + "eu-west-2/s3/aws4_request", "UNSIGNED-PAYLOAD", 403, `signs for s3/eu-west-1, and this is for "s3/eu-west-2"`},
		{"", sign + "eu-west-1/sts/aws4_request", "", 403, "signs for s3/eu-west-1"},
		{"", sign + "eu-west-1/s3/x/aws4_request", "", 403, "signs for s3/eu-west-1"},
		{"", sign + "s3/aws4_request", "", 400, "names no service and region"},
		{"", sign + "eu-west-1/s 3/aws4_request", "", 400, "names no service and region"},
		{"", sign + "eu-west-1/s3/aws4_request", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", 400, "payload_signing_enabled"},
		{"", sign + "eu-west-1/s3/aws4_request", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", 400, "signed chunks"},
		{"", sign + "eu-west-1/s3/aws4_request", "1234", 400, "has no hash"},
		{"", "AWS4-ECDSA-P256-SHA256 Credential=AKIAX/20260101/s3/aws4_request", "", 400, "of the kind AWS4-HMAC-SHA256"},
		{"", "Bearer " + d.proxy.credential.placeholder, "", 400, "of the kind AWS4-HMAC-SHA256"},
		{"", "", "", 400, "of the kind AWS4-HMAC-SHA256"},
		{"?X-Amz-Signature=00&X-Amz-Credential=AKIAX", "", "", 400, "signed in advance"},
		{"?x-amz-expires=1&u=X-Amz-Signature", "", "", 400, "signed in advance"},
	} {
		req, err := http.NewRequest(http.MethodGet, "https://"+d.at+"/"+one.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": one.auth, amzContent: one.payload, "X-Amz-Security-Token": "mine", "X-Amz-Date": "20200101T000000Z", "X-Api-Key": d.proxy.credential.placeholder} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != one.status || !strings.Contains(string(body), one.want) || res.Header.Get("X-Key") != "" {
			t.Errorf("%s %s: status %d, %s", one.auth, one.payload, res.StatusCode, body)
		}
	}
	host.check(t, "GET /")
}

// A request for S3 reaches only objects that the rules permit. It reaches no other object by a path
// that S3 reads as the program wrote it, by a copy or by a rename. If the secret has no scopes, no
// request goes to a service that gives keys.
func TestAWSRulesHold(t *testing.T) {
	s := &Secret{}
	for _, text := range []string{"GET /mine/**", "PUT /mine/up/**", "POST /"} {
		rule, err := parseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Allow = append(s.Allow, rule)
	}
	d, host := newAWSLab(t, s)
	c := d.client(false)
	for _, one := range []struct {
		method, path, service, source string
		status                        int
	}{
		{"PUT", "/mine/up/a", "s3", "", 200},
		{"PUT", "/mine/up/", "s3", "", 200},
		{"PUT", "/mine/up//a", "s3", "", 400},
		{"PUT", "/mine/up/./a", "s3", "", 400},
		{"PUT", "/mine/up/x/../a", "s3", "", 400},
		{"PUT", "/mine/up/x/..", "s3", "", 400},
		{"PUT", "/mine/up/x/%2E", "s3", "", 400},
		{"PUT", "/mine/up%2f..%2f..%2ftheirs/a", "s3", "", 400},
		{"PUT", "/theirs%2Fa", "s3", "", 403},
		{"PUT", "/mine/up/a", "s3", "/mine/b%20c+d?versionId=1", 200},
		{"PUT", "/mine/up/a", "s3", "mine/b", 200},
		{"PUT", "/mine/up/a", "s3", "theirs/b", 403},
		{"PUT", "/mine/up/a", "s3", "/theirs/b?x=/mine/b", 403},
		{"PUT", "/mine/up/a", "s3", "theirs%2Fb", 403},
		{"PUT", "/mine/up/a", "s3", "/mine/../theirs/b", 400},
		{"PUT", "/mine/up/a", "s3", "/mine%2F..%2Ftheirs/b", 400},
		{"PUT", "/mine/up/a", "s3", "arn:aws:s3:eu-west-1:1:accesspoint/x/object/mine/b", 403},
		{"PUT", "/mine/up/a", "s3express", "rename", 403},
		{"PUT", "/mine/up/a", "s3", "", 200},
		{"POST", "/", "sts", "", 403},
		{"POST", "/", "iam", "", 403},
		{"POST", "/", "dynamodb", "", 200},
	} {
		req, err := http.NewRequest(one.method, "https://"+d.at+one.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAX/20260101/eu-west-1/"+one.service+"/aws4_request")
		req.Header.Set(amzContent, "UNSIGNED-PAYLOAD")
		if one.source == "rename" {
			req.Header.Set("X-Amz-Rename-Source", "b")
		} else if one.source != "" {
			req.Header.Set("X-Amz-Copy-Source", one.source)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != one.status {
			t.Errorf("%s %s for %s, copy of %q: status %d, %s", one.method, one.path, one.service, one.source, res.StatusCode, body)
		}
	}
	host.check(t, "PUT /mine/up/a", "PUT /mine/up/", "PUT /mine/up/a", "PUT /mine/up/a", "PUT /mine/up/a", "POST /")
}

// The proxy hashes a body whose hash the program has not sent. It refuses a body of more than
// mostHashed bytes.
func TestAWSHashesBodies(t *testing.T) {
	d, host := newAWSLab(t, &Secret{})
	d.proxy.mostHashed = 64 << 10
	c := d.client(true)
	for size, want := range map[int]int{0: 200, d.proxy.mostHashed: 200, d.proxy.mostHashed + 1: 413} {
		req, err := http.NewRequest(http.MethodPost, "https://"+d.at+"/", io.MultiReader(bytes.NewReader(make([]byte, size)))) // of no known length
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAX/20260101/eu-west-1/dynamodb/aws4_request")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes: status %d", size, res.StatusCode)
		}
	}
	host.check(t, "POST /", "POST /")
	d.last(3)
	if n := len(d.proxy.opt.Slots.memory); n != 0 {
		t.Errorf("%d bodies are still in memory", n)
	}
}

// The bound of bodies in memory is for all secrets of a run together.
func TestAWSBodiesAreBounded(t *testing.T) {
	slots := NewSlots()
	var proxies []*Proxy
	for range 2 {
		proxies = append(proxies, NewProxy(&Secret{Name: "aws"}, newCredential(awsSecret), Options{Slots: slots}))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	hash := func(ctx context.Context, p *Proxy) (*exchange, *refusal) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://example.com/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{p: p, signature: &signature{}}
		return x, x.hashBody(req)
	}
	var all []*exchange
	for i := range maxInMemory {
		x, no := hash(context.Background(), proxies[i%2])
		if no != nil {
			t.Fatal(no.err)
		}
		all = append(all, x)
	}
	for i := range 2 * maxInMemory {
		if _, no := hash(ended, proxies[i%2]); no == nil || no.status != http.StatusServiceUnavailable {
			t.Fatalf("%d bodies are in memory, and another one is not refused with status 503", maxInMemory)
		}
	}
	all[0].releaseMemory()
	if _, no := hash(context.Background(), proxies[1]); no != nil {
		t.Error(no.err)
	}
}

// The host of a region has the domain of the region's partition, and the region is found in the
// name of the host.
func TestAWSPartitions(t *testing.T) {
	for region, host := range map[string]string{
		"eu-west-1": "s3.eu-west-1.amazonaws.com", "us-gov-west-1": "s3.us-gov-west-1.amazonaws.com",
		"cn-north-1": "s3.cn-north-1.amazonaws.com.cn", "eusc-de-east-1": "s3.eusc-de-east-1.amazonaws.eu",
	} {
		ownersFiles(t, map[string]string{".aws/config": "[default]\nregion = " + region + "\n"})
		got, err := awsURL(&owner{writabledirs.NewJudge(), os.Environ()})
		if err != nil || got != "https://"+host {
			t.Errorf("%s: %s, %v", region, got, err)
		}
		u := urlOf(t, "https://"+host)
		if u.awsRegion() != region {
			t.Errorf("%s: the region is %q", host, u.awsRegion())
		}
		for _, f := range showAWS([]shownSecret{{&Secret{URL: u}, found{value: awsSecret, keys: &signingKeys{id: awsKeyID}}.credential()}}) {
			if text := string(f.Data); strings.Contains(text, "endpoint_url") || f.Path == ".aws/config" && !strings.Contains(text, "region = "+region+"\n") {
				t.Errorf("%s: %s is %s", host, f.Path, text)
			}
		}
	}
	if u := urlOf(t, "https://s3.eu-west-1.amazonaws.com.example.org"); u.awsRegion() != "" {
		t.Errorf("another host has the region %s", u.awsRegion())
	}
}
