package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// fakeSession serves the requests to a session, and records the latest requests to add and to
// revoke.
type fakeSession struct {
	added   []guard.Grant
	revoked RevokeRequest
	ended   []Ended
	err     error
	updates chan Update // sent to the watching clients; closing it ends the session
	// applying is closed when an apply has begun. The apply lasts until its context ends.
	applying chan struct{}
}

func (o *fakeSession) handlers() []Handler {
	return []Handler{
		GetStatus.Handle(func(context.Context, None) (Status, error) {
			return Status{Session: "s", Roots: []Root{{Name: "a"}}}, nil
		}),
		AddRoots.Handle(func(_ context.Context, req AddRequest) (AddAnswer, error) {
			o.added = req.Roots
			return AddAnswer{Roots: []Root{{Name: names.Foreign(req.Roots[0].Root)}}}, o.err
		}),
		Revoke.Handle(func(_ context.Context, req RevokeRequest) (RevokeAnswer, error) {
			o.revoked = req
			return RevokeAnswer{Ended: o.ended}, o.err
		}),
		ApplyStage.Handle(func(ctx context.Context, _ StageApplyRequest) (StageAnswer, error) {
			close(o.applying)
			<-ctx.Done()
			return StageAnswer{Left: []StageChange{{Path: []byte("left")}}}, ctx.Err()
		}),
	}
}

func (o *fakeSession) Stream(ctx context.Context, _ StreamRequest, send func(Update) error) error {
	updates := o.updates
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return nil
			}
			if err := send(u); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *fakeSession) Tools(req ToolsRequest) (func(io.ReadWriteCloser) error, error) {
	return func(conn io.ReadWriteCloser) error {
		defer conn.Close()
		_, err := io.CopyN(conn, conn, 5)
		return err
	}, o.err
}

func (o *fakeSession) HTTP(context.Context, HTTPRequest) (Front, error) { return nil, o.err }

func (o *fakeSession) Metrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rootsfs_test", Help: "For a test."})
	g.Set(7)
	reg.MustRegister(g)
	return reg
}

// TestMain runs the tests. In a child process it does something else: if ROOTSFS_TEST_DIAL is set,
// it sends a request to that socket, and if starveVar is set, it runs a starved session.
func TestMain(m *testing.M) {
	if path := os.Getenv("ROOTSFS_TEST_DIAL"); path != "" {
		os.Exit(dialChild(path))
	}
	if of := os.Getenv(starveVar); of != "" {
		os.Exit(starvedChild(of))
	}
	os.Exit(m.Run())
}

// dialChild prints how far the user of this process gets with a request to the socket at path.
func dialChild(path string) int {
	c, err := net.Dial("unix", path)
	if err != nil {
		fmt.Print("connect: refused")
		return 0
	}
	if _, err := io.WriteString(c, "POST /v1/status HTTP/1.1\r\nHost: session\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"); err != nil {
		fmt.Print("turned away")
		return 0
	}
	answer, _ := io.ReadAll(c)
	if len(answer) == 0 {
		fmt.Print("turned away")
		return 0
	}
	fmt.Printf("answered: %s", answer)
	return 0
}

// runtimeDir makes a runtime directory whose path fits into a socket address. A child process needs
// that, because it does not connect through a descriptor.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	return dir
}

func serve(t *testing.T, o *fakeSession) (*Dir, *Client) {
	t.Helper()
	runtimeDir(t)
	d, err := Create("s")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := d.Serve(slog.New(slog.DiscardHandler), o, o.handlers()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close(); _ = d.Remove() })
	if err := d.Publish(Info{Point: "/mnt/s"}); err != nil {
		t.Fatal(err)
	}
	in, err := Find("s")
	if err != nil {
		t.Fatal(err)
	}
	return d, Dial(in)
}

// R127: only the session's user and root learn the roots. Another user cannot enter the
// directory. Even if all modes are opened up, such a user's connection is closed without an
// answer.
func TestForeignUserIsTurnedAway_R127(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	d, _ := serve(t, &fakeSession{})
	exe := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(d.Path()))), "rfs-dial-"+filepath.Base(os.Getenv("XDG_RUNTIME_DIR")))
	copyTestBinary(t, exe)
	try := func(uid uint32) string {
		cmd := exec.Command(exe)
		cmd.Env = []string{"ROOTSFS_TEST_DIAL=" + filepath.Join(d.Path(), socketFile)}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const nobody = 65534
	if got := try(nobody); got != "connect: refused" {
		t.Errorf("with the modes as they are: %s", got)
	}
	for _, p := range []string{filepath.Dir(filepath.Dir(d.Path())), filepath.Dir(d.Path()), d.Path(), filepath.Join(d.Path(), socketFile)} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if got := try(nobody); got != "turned away" {
		t.Errorf("with every mode opened: %s", got)
	}
	if got := try(0); !strings.Contains(got, `"session":"s"`) {
		t.Errorf("the session's own user: %s", got)
	}
}

// copyTestBinary copies this test binary to a path, and makes the copy executable for every user.
func copyTestBinary(t *testing.T, to string) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, self, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(to) })
}

func TestCallsAndErrors(t *testing.T) {
	o := &fakeSession{}
	_, c := serve(t, o)
	ctx := context.Background()
	if st, err := GetStatus.Call(ctx, c, None{}); err != nil || st.Roots[0].Name != "a" {
		t.Errorf("status: %+v, %v", st, err)
	}
	add := AddRequest{Roots: []guard.Grant{{
		Root: "x", Dir: "/x", Subject: "v", Origin: "test", Expires: time.Unix(1, 0).UTC(), AllowSystem: true,
		Policy: guard.Policy{Rights: guard.Read, Once: true, Patterns: guard.Patterns{Hide: guard.Texts("y")}, Limits: guard.Limits{MaxFile: 7}, Trash: rules.Trash{On: true}},
	}}}
	if a, err := AddRoots.Call(ctx, c, add); err != nil || a.Roots[0].Name != "x" || !reflect.DeepEqual(o.added, add.Roots) {
		t.Errorf("add: %+v, %v; asked %+v, sent %+v", a, err, o.added, add.Roots)
	}
	o.err = &guard.Error{Op: names.OpRevoke, Kind: names.NotExist, Err: errors.New("no root is named x")}
	_, err := Revoke.Call(ctx, c, RevokeRequest{Names: []string{"x"}})
	if Classify(err) != NoSuch || !errors.Is(err, names.NotExist) || !strings.Contains(err.Error(), "no root is named x") {
		t.Errorf("revoke of a missing root: %v (%s)", err, Classify(err))
	}
	o.err, o.ended = errors.New("one page"), []Ended{{Root: "x", Error: "one page"}}
	if a, err := Revoke.Call(ctx, c, RevokeRequest{All: true}); err == nil || len(a.Ended) != 1 || a.Ended[0].Error != "one page" || !o.revoked.All {
		t.Errorf("incomplete revocation: %+v, %v", a, err)
	}
}

// TestInterruptedApplyAnswers checks that a client whose context ends gets the part of an apply that
// the session has done.
func TestInterruptedApplyAnswers(t *testing.T) {
	o := &fakeSession{applying: make(chan struct{})}
	_, c := serve(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-o.applying; cancel() }()
	a, err := ApplyStage.Call(ctx, c, StageApplyRequest{})
	if err == nil || len(a.Left) != 1 || string(a.Left[0].Path) != "left" {
		t.Errorf("the answer is %+v, %v", a, err)
	}
}

// Every update is delivered, until the session ends or the caller stops.
func TestWatch(t *testing.T) {
	o := &fakeSession{updates: make(chan Update, 3)}
	_, c := serve(t, o)
	o.updates <- Update{Status: &Status{Session: "s"}, Waiting: &Waiting{DenialsAnswer: DenialsAnswer{[]Denial{{ID: "d1"}}}}}
	o.updates <- Update{Events: []Event{{Kind: "added", Root: "a"}}}
	o.updates <- Update{Waiting: &Waiting{}}
	close(o.updates)
	var seen []Update
	if err := c.Stream(t.Context(), StreamRequest{}, func(u Update) error { seen = append(seen, u); return nil }); err != nil || len(seen) != 3 {
		t.Fatalf("%+v, %v", seen, err)
	}
	if seen[0].Status.Session != "s" || seen[0].Waiting.Denials[0].ID != "d1" || seen[1].Status != nil || seen[1].Events[0].Kind != "added" || seen[2].Waiting == nil {
		t.Errorf("%+v", seen)
	}
	stop := errors.New("enough")
	o.updates = make(chan Update, 1)
	o.updates <- Update{}
	if err := c.Stream(t.Context(), StreamRequest{}, func(Update) error { return stop }); err != stop {
		t.Errorf("the error of the caller's function: got %v", err)
	}
}

// A request that the session does not understand completely is refused, and revokes nothing.
func TestStrictRequests(t *testing.T) {
	for _, tt := range []struct {
		name, method, path, body string
		want                     int
	}{
		{"unknown field", "POST", "/v1/revoke", `{"all":true,"except":["a"]}`, 400},
		{"two values", "POST", "/v1/revoke", `{"all":true}{"all":false}`, 400},
		{"not JSON", "POST", "/v1/revoke", `all`, 400},
		{"wrong type", "POST", "/v1/revoke", `{"all":"yes"}`, 400},
		{"too large", "POST", "/v1/revoke", `{"names":["` + strings.Repeat("a", maxBody) + `"]}`, 400},
		{"unknown path", "POST", "/v1/nothing", `{}`, 404},
		{"wrong method", "GET", "/v1/revoke", ``, 405},
		{"valid", "POST", "/v1/revoke", `{"all":true}`, 200},
		{"a field that only the registry sets", "POST", "/v1/roots.add", `{"roots":[{"name":"a","path":"/a","policy":{"mode":"ro"},"Implicit":true}]}`, 400},
		{"an invalid mode", "POST", "/v1/roots.add", `{"roots":[{"name":"a","path":"/a","policy":{"mode":"rx"}}]}`, 400},
		{"a brace too many", "POST", "/v1/revoke", `{"all":true}}`, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &fakeSession{}
			_, c := serve(t, o)
			resp, err := c.send(t.Context(), tt.method, tt.path, []byte(tt.body), 0)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.want)
			}
			if did := o.revoked.All || o.revoked.Names != nil; did != (tt.want == 200) {
				t.Errorf("revoked: %+v", o.revoked)
			}
		})
	}
}

func TestSessionDirectory(t *testing.T) {
	base := runtimeDir(t)
	d, err := Create("work")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(""); !errors.Is(err, ErrNoSession) {
		t.Errorf("an unpublished session was found: %v", err)
	}
	if err := d.Publish(Info{Point: "/mnt/work"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Create("work"); !errors.Is(err, ErrTaken) {
		t.Errorf("the name was taken twice: %v", err)
	}
	other, err := CreateFor("/somewhere/work")
	if err != nil || other.Name() != "work-2" {
		t.Fatalf("%v, %v", other, err)
	}
	if in, err := Find("/mnt/work"); err != nil || in.Name != "work" || in.PID != os.Getpid() || in.Start == 0 {
		t.Errorf("by mountpoint: %+v, %v", in, err)
	}
	for _, p := range []string{"", "work", "work/session.json"} {
		fi, err := os.Stat(filepath.Join(base, "rootsfs", p))
		if err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q: %v, %v", p, fi.Mode(), err)
		}
	}
	// This is the directory of a dead daemon: the files are there, but the lock is gone.
	_ = unix.Close(d.fd)
	if all, err := List(); err != nil || len(all) != 0 {
		t.Errorf("after death: %+v, %v", all, err)
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead session's directory is still there: %v", err)
	}
	if err := other.Remove(); err != nil {
		t.Error(err)
	}
}

// A runtime directory is refused if it is open to other users, belongs to another user, or is a
// link or a file. Somebody else can make such a directory if its parent is writable by everybody.
func TestRuntimeDirectoryIsVerified(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(dir string) error
		want string
	}{
		{"open to others", func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o755))
		}, "is open to other users (mode 0755): chmod 0700 "},
		{"a link", func(d string) error { return os.Symlink(os.TempDir(), d) }, "not a directory but a link or a file"},
		{"a file", func(d string) error { return os.WriteFile(d, nil, 0o600) }, "not a directory but a link or a file"},
		{"somebody else's", func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.Chown(d, 65534, 65534))
		}, "belongs to the user with id 65534"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if os.Geteuid() != 0 && tt.name == "somebody else's" {
				t.Skip("only root can give a directory away")
			}
			base := runtimeDir(t)
			if err := tt.make(filepath.Join(base, "rootsfs")); err != nil {
				t.Fatal(err)
			}
			for what, f := range map[string]func() error{
				"create": func() error { _, err := Create("s"); return err },
				"list":   func() error { _, err := List(); return err },
			} {
				if err := f(); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %q", what, err, tt.want)
				}
			}
		})
	}
}

// XDG_RUNTIME_DIR is not used if its directory belongs to another user, as sudo may leave it, or if
// it is relative.
func TestRuntimeDirOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	base := runtimeDir(t)
	if got := RuntimeDir(); got != filepath.Join(base, "rootsfs") {
		t.Fatalf("our own: %s", got)
	}
	if err := os.Chown(base, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(os.TempDir(), "rootsfs-0")
	if got := RuntimeDir(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	if got := RuntimeDir(); got != want {
		t.Errorf("relative: %s, want %s", got, want)
	}
}

func TestNames(t *testing.T) {
	for point, want := range map[string]string{
		"/mnt/work": "work", "/mnt/my work": "my-work", "/": "session", "/x/.hidden": "hidden",
		"/x/häuser": "h-user", "/x/" + strings.Repeat("n", 100): strings.Repeat("n", 56),
	} {
		got := nameFor(point)
		if got != want {
			t.Errorf("%q: %q, want %q", point, got, want)
		}
		if err := CheckName(got); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "..", "a/b", "-x", strings.Repeat("n", 65), "a\x00", "a b"} {
		if CheckName(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Tools turns a connection into a stream in both directions. After the client has ended its own
// direction, it can still read. Tools returns a refusal as an error, and does not begin if the
// context has ended.
func TestTools(t *testing.T) {
	o := &fakeSession{}
	_, c := serve(t, o)
	s, err := c.Tools(context.Background(), ToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.WriteString(s, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	o.err = &guard.Error{Kind: names.Quota, Err: errors.New("too many")}
	if _, err := c.Tools(context.Background(), ToolsRequest{}); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Tools(ctx, ToolsRequest{}); err == nil {
		t.Error("Tools has begun although the context had ended")
	}
}

// R080: the session's socket serves figures for Prometheus.
func TestMetricsOverTheSocket_R080(t *testing.T) {
	_, c := serve(t, &fakeSession{})
	var out bytes.Buffer
	if err := c.Metrics(t.Context(), &out); err != nil || !strings.Contains(out.String(), "\nrootsfs_test 7\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
