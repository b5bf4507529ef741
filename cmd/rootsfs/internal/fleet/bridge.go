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
	remotes  []*Remote
	log      *slog.Logger
	dir      string // XDG_RUNTIME_DIR of the commands
	lock     *os.File
	sessions map[sessionKey]*bridgedSession
}

// sessionKey identifies a session of a machine.
type sessionKey struct {
	machine, session string
	pid              int
	start            uint64
}

type bridgedSession struct {
	dir    *control.Dir
	server *control.Server
}

// The bounds of a bridge.
const (
	maxSessions = 50              // sessions of all machines
	refreshTime = 2 * time.Second // between two looks for sessions that began or ended
	bridgeDirs  = ".with-"        // prefix of the names of the bridges' directories
)

// NewBridge makes a bridge to machines, each of which has to answer. It sets XDG_RUNTIME_DIR of this
// process to the bridge's directory. The caller must call Close.
func NewBridge(ctx context.Context, remotes []*Remote, log *slog.Logger) (*Bridge, error) {
	b := &Bridge{remotes: remotes, log: log, sessions: map[sessionKey]*bridgedSession{}}
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

// makeDir makes the runtime directory, and sets XDG_RUNTIME_DIR to it.
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
	dirs, _ := filepath.Glob(filepath.Join(base, bridgeDirs+"*")) // the pattern is well-formed
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

// refresh adds a machine's new sessions to the bridge, and removes those that have ended.
func (b *Bridge) refresh(ctx context.Context, r *Remote) error {
	all, err := r.sessions(ctx)
	if err != nil {
		return err
	}
	live := map[sessionKey]bool{}
	for _, in := range all {
		if control.CheckName(in.Name) != nil {
			continue // no session can have such a name
		}
		key := sessionKey{r.Machine, in.Name, in.PID, in.Start}
		live[key] = true
		if b.sessions[key] != nil {
			continue
		}
		if len(b.sessions) >= maxSessions {
			return fmt.Errorf("there are more than %d sessions: name fewer machines", maxSessions)
		}
		if b.sessions[key], err = b.add(r, in); err != nil {
			delete(b.sessions, key)
			return err
		}
	}
	for key, s := range b.sessions {
		if key.machine == r.Machine && !live[key] {
			s.close()
			delete(b.sessions, key)
		}
	}
	return nil
}

// add makes the directory and socket of a session. It publishes only the name, the start time and
// the version of the session: commands would take the session's paths for files of this machine.
func (b *Bridge) add(r *Remote, in control.Info) (*bridgedSession, error) {
	var dir *control.Dir
	err := control.ErrTaken
	for n := 1; errors.Is(err, control.ErrTaken) && n <= maxSessions; n++ {
		dir, err = control.Create(bridgedName(in.Name, r.Machine, n))
	}
	if err != nil {
		return nil, err
	}
	s := &bridgedSession{dir: dir}
	if s.server, err = dir.Relay(b.log, relay{r, in, dir.Name()}); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	if err := dir.Publish(control.Info{Started: in.Started, Version: names.Escape(names.Brief(in.Version))}); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// bridgedName returns the name of a session in the bridge. The n-th session with the same name gets
// the number n in its name, except the first.
func bridgedName(session, machine string, n int) string {
	end := "@" + machine
	if n > 1 {
		end = "-" + strconv.Itoa(n) + end
	}
	const most = 64 // of control.CheckName
	return session[:min(len(session), most-len(end))] + end
}

func (s *bridgedSession) close() {
	s.server.Close()
	_ = s.dir.Remove() // after an error, Bridge.Close removes the directory
}

// Close ends the bridge and removes its directory.
func (b *Bridge) Close() {
	for _, s := range b.sessions {
		s.close()
	}
	_ = os.RemoveAll(b.dir) // after an error, the next bridge removes the rest
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
	a, err := h.r.act(q.Context(), h.in, q.URL.Path, body)
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
	out := flushWriter{w, http.NewResponseController(w)}
	if strings.HasSuffix(q.URL.Path, "/metrics") {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.WriteHeader(a.Status)
		if cleanText(out, a) != nil {
			panic(http.ErrAbortHandler) // so that the reader sees that the text is not complete
		}
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

// flushWriter is a writer that flushes each write.
type flushWriter struct {
	w http.ResponseWriter
	*http.ResponseController
}

func (f flushWriter) Write(p []byte) (int, error) {
	_ = f.SetWriteDeadline(time.Now().Add(2 * silenceTime)) // the reader may have stopped reading
	n, err := f.w.Write(p)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}
