package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bridge shows the sessions of machines as sessions of this user, called SESSION@MACHINE, in a
// runtime directory of its own. Commands that run with that directory reach these sessions, and no
// other.
type Bridge struct {
	remotes []*Remote
	log     *slog.Logger
	dir     string // XDG_RUNTIME_DIR of the commands
	lock    *os.File
	shown   map[shownKey]*shownSession
}

// shownKey tells sessions apart.
type shownKey struct {
	machine, session string
	pid              int
	start            uint64
}

type shownSession struct {
	dir    *control.Dir
	server *control.Server
}

// The bounds of a bridge.
const (
	maxShown    = 50              // sessions
	refreshTime = 2 * time.Second // between two looks for sessions that began or ended
	bridgeDirs  = ".with-"        // the beginning of the names of bridges' directories
)

// NewBridge makes a bridge to machines, each of which has to answer. From then on the sessions of
// this process are those of the bridge. The caller closes it.
func NewBridge(ctx context.Context, remotes []*Remote, log *slog.Logger) (*Bridge, error) {
	b := &Bridge{remotes: remotes, log: log, shown: map[shownKey]*shownSession{}}
	if err := b.makeDir(); err != nil {
		return nil, err
	}
	for _, r := range remotes {
		if err := b.refresh(ctx, r); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// makeDir makes the runtime directory.
func (b *Bridge) makeDir() error {
	base, err := control.EnsureRuntimeDir()
	if err != nil {
		return err
	}
	sweep(base)
	if b.dir, err = os.MkdirTemp(base, bridgeDirs); err != nil {
		return err
	}
	if b.lock, err = lockDir(b.dir); err != nil {
		return errors.Join(err, os.Remove(b.dir))
	}
	if err := os.Setenv("XDG_RUNTIME_DIR", b.dir); err != nil {
		return errors.Join(err, os.Remove(b.dir))
	}
	return nil
}

// lockDir opens and locks a directory.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the directories of bridges that were killed. What it cannot remove stays.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, bridgeDirs+"*")) // the pattern is good
	for _, dir := range dirs {
		if f, err := lockDir(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = f.Close()
		}
	}
}

// Follow shows the sessions that begin and end, until ctx ends.
func (b *Bridge) Follow(ctx context.Context) {
	last := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshTime):
		}
		for _, r := range b.remotes {
			text := ""
			if err := b.refresh(ctx, r); err != nil && ctx.Err() == nil {
				text = err.Error()
			}
			if text != last[r.Machine] && text != "" {
				b.log.Warn("the sessions of a machine are not up to date", "error", text)
			}
			last[r.Machine] = text
		}
	}
}

// refresh shows a machine's sessions that are not shown yet, and no longer shows those that have ended.
func (b *Bridge) refresh(ctx context.Context, r *Remote) error {
	all, err := r.Sessions(ctx)
	if err != nil {
		return err
	}
	live := map[shownKey]bool{}
	for _, in := range all {
		if control.CheckName(in.Name) != nil {
			continue // no session of a rootsfs has such a name
		}
		key := shownKey{r.Machine, in.Name, in.PID, in.Start}
		live[key] = true
		if b.shown[key] != nil {
			continue
		}
		if len(b.shown) >= maxShown {
			return fmt.Errorf("there are more than %d sessions: name fewer machines", maxShown)
		}
		if b.shown[key], err = b.show(r, in); err != nil {
			delete(b.shown, key)
			return err
		}
	}
	for key, s := range b.shown {
		if key.machine == r.Machine && !live[key] {
			s.close()
			delete(b.shown, key)
		}
	}
	return nil
}

// show makes the directory and socket of a session. It takes nothing from the machine but names,
// times and the version: paths of the session would mean files here.
func (b *Bridge) show(r *Remote, in control.Info) (*shownSession, error) {
	var dir *control.Dir
	err := control.ErrTaken
	for n := 1; errors.Is(err, control.ErrTaken) && n <= maxShown; n++ {
		dir, err = control.Create(shownName(in.Name, r.Machine, n))
	}
	if err != nil {
		return nil, err
	}
	s := &shownSession{dir: dir}
	if s.server, err = dir.Relay(b.log, relay{r, in, dir.Name()}); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	if err := dir.Publish(control.Info{Started: in.Started, Version: names.Escape(names.Brief(in.Version))}); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// shownName returns the name of a session, with a number if it is not the first of that name.
func shownName(session, machine string, n int) string {
	end := "@" + machine
	if n > 1 {
		end = "-" + strconv.Itoa(n) + end
	}
	const most = 64 // of control.CheckName
	return session[:min(len(session), most-len(end))] + end
}

func (s *shownSession) close() {
	s.server.Close()
	_ = s.dir.Remove() // Close of the bridge removes what is left
}

// Close ends the bridge and removes its directory.
func (b *Bridge) Close() {
	for _, s := range b.shown {
		s.close()
	}
	_ = os.RemoveAll(b.dir) // the next bridge removes what is left
	_ = b.lock.Close()
}

// relay passes the requests of one session on to its machine.
type relay struct {
	r    *Remote
	in   control.Info
	name string
}

// ServeHTTP implements http.Handler.
func (h relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxActBody))
	if err != nil {
		h.refuse(w, &names.Error{Kind: names.Invalid, Err: fmt.Errorf("from afar a request has at most %d bytes", maxActBody)})
		return
	}
	a, err := h.r.Act(q.Context(), h.in, q.URL.Path, body)
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer a.Close()
	defer context.AfterFunc(q.Context(), func() { _ = a.Close() })()
	if a.Status != http.StatusOK && a.Status != control.RefusalStatus && a.Status != http.StatusBadRequest {
		h.refuse(w, fmt.Errorf("the machine %s answered with status %d; is it of another version? see: rootsfs fleet machines", h.r.Machine, a.Status))
		return
	}
	out := flushed{w, http.NewResponseController(w)}
	if strings.HasSuffix(q.URL.Path, "/metrics") {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.WriteHeader(a.Status)
		_ = cleanText(out, a) // after an error the reader sees that the answer is broken
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	_ = out.Flush()
	_ = cleanJSON(out, a, h.name)
}

func (h relay) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(control.RefusalStatus)
	_, _ = w.Write(control.RefusalBody(err)) // the client has gone, or reads it
}

// flushed sends each write on at once.
type flushed struct {
	w http.ResponseWriter
	*http.ResponseController
}

func (f flushed) Write(p []byte) (int, error) {
	_ = f.SetWriteDeadline(time.Now().Add(2 * silenceTime)) // the reader may have stopped reading
	n, err := f.w.Write(p)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}
