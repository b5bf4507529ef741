package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// hangingOpener is an Opener that hangs for paths below hang, until release is closed. OpenRoot
// sends each path to asked.
type hangingOpener struct {
	guard.Opener
	hang    string
	release chan struct{}
	asked   chan string
}

func newHangingOpener() *hangingOpener {
	return &hangingOpener{Opener: vfs.Opener(), hang: "/hangs/", release: make(chan struct{}), asked: make(chan string, 1000)}
}

func (o *hangingOpener) OpenRoot(path string) (guard.Source, error) {
	o.asked <- path
	if strings.HasPrefix(path, o.hang) {
		<-o.release
		path = filepath.Dir(o.hang)
	}
	return o.Opener.OpenRoot(path)
}

// R079: a request about a path on a file system that hangs is answered when its time is up, and
// the session can end. A path that is opened too late is not granted.
func TestConsentOnHungFileSystem(t *testing.T) {
	o := newHangingOpener()
	a := &answers{give: allow(Decision{Allow: true})}
	l := newLabOn(t, o, func(c *Config) { c.Asker, c.Limits.Consents, c.Limits.Timeout = a, -1, 100*time.Millisecond })
	p := l.connect("")
	for range 3 * maxOpening {
		if _, d := p.fails("files/consent", obj{"message": "m", "requestedPaths": []string{"/hangs/x"}}); d.Code != names.TimeoutCode {
			t.Errorf("%+v", d)
		}
	}
	testkit.Eventually(func() bool { return len(o.asked) >= maxOpening }) // the goroutines that open may not have run yet
	if n := len(o.asked); n != maxOpening {
		t.Errorf("%d openings hang, want %d", n, maxOpening)
	}
	// The other methods do not access paths outside of roots (R174).
	for _, m := range []string{"files/read", "files/stat", "files/list", "files/watch"} {
		if _, d := p.fails(m, obj{"path": "/hangs/x"}); d.Reason != "NoConsent" {
			t.Errorf("%s: %+v", m, d)
		}
	}
	p.s.Close()
	close(o.release)
	if n := len(l.reg.Roots()); n != 0 || len(a.asked) != 0 {
		t.Errorf("%d roots, %d questions", n, len(a.asked))
	}
}

// While a question waits for its answer, the files/consent request does not time out, although
// other requests do.
func TestConsentOutlastsTheTimeout(t *testing.T) {
	u := &Queue{By: "test"}
	l := newLab(t, func(c *Config) { c.Asker, c.AskFor, c.Limits.Timeout = u, time.Hour, 2*time.Second })
	p := l.connect("")
	_, ch := p.send("files/consent", obj{"message": "m", "requestedPaths": []string{t.TempDir()}})
	awaitQuestions(t, u, 1)
	setTestMethod(func(_ *Session, r *request) (any, error) {
		<-r.ctx.Done()
		return nil, r.ctx.Err()
	})
	if _, d := p.fails("files/test", `{}`); d.Code != names.TimeoutCode {
		t.Errorf("%+v", d)
	}
	if err := u.Answer(u.List()[0].ID, Answer{Decisions: []Decision{{Allow: true}}}); err != nil {
		t.Error(err)
	}
	if r := <-ch; r.Error != nil || !strings.Contains(string(r.Result), `"granted":true`) {
		t.Errorf("%s %+v", r.Result, r.Error)
	}
}

// A question over the limit is refused before its paths are opened.
func TestConsentLimitGoesFirst(t *testing.T) {
	o := newHangingOpener()
	l := newLabOn(t, o, func(c *Config) { c.Asker, c.Limits.Consents = &answers{give: allow()}, 1 })
	p := l.connect("")
	dir := t.TempDir()
	ask(p, "", dir)
	if e, d := p.fails("files/consent", obj{"message": "m", "requestedPaths": []string{dir, dir + "/x"}}); d.Reason != "Rate" || !d.Retryable {
		t.Errorf("%+v %+v", e, d)
	}
	if n := len(o.asked); n != 1 {
		t.Errorf("%d paths were opened", n)
	}
	// A path that is already approved causes no question.
	l.grant(guard.Grant{Root: "r", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}})
	if r := ask(p, "", dir, "r"); len(r.ApprovedPaths) != 2 {
		t.Errorf("%+v", r)
	}
}

// A directory that is approved under one path, or named twice in one question, is not
// granted twice: the answer names the root that exists. That root is not widened.
func TestConsentNamedTwice(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Asker, c.Limits.Consents = &answers{give: allow(Decision{Allow: true}, Decision{Allow: true})}, -1
	})
	p := l.connect("")
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if r := ask(p, "", dir, dir+"/"); len(r.Approved) != 2 || r.Approved[0].Root != r.Approved[1].Root {
		t.Errorf("%+v", r)
	}
	if r := ask(p, "", link); len(r.Approved) != 1 || len(l.reg.Roots()) != 1 {
		t.Errorf("%+v, %d roots", r, len(l.reg.Roots()))
	}
	if r := ask(p, "rw", link); len(r.Approved) != 0 {
		t.Errorf("more than the root allows: %+v", r)
	}
	var st wire.StatResult
	p.must("files/stat", obj{"path": dir}, &st)
}
