package session

import (
	"fmt"
	"path/filepath"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
)

// LogFile is where a session that runs as a daemon writes its log.
func LogFile(session string) (string, error) {
	dir, err := config.StateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, session+".log"), nil
}

// Keeps lists the places of the owner's plane that no root may touch. Those that
// do not exist yet count too: a root must not come to hold them later.
func Keeps(point string, more []guard.Keep) ([]guard.Keep, error) {
	state, err := config.StateDir()
	if err != nil {
		return nil, err
	}
	var all []guard.Keep
	if point != "" {
		all = append(all, guard.Keep{Path: point, What: "the mountpoint"})
	}
	all = append(all,
		guard.Keep{Path: control.RuntimeDir(), What: "the session directory"},
		guard.Keep{Path: state, What: "the directory of audit files and logs"},
	)
	if conf, err := config.DefaultPath(); err == nil {
		all = append(all, guard.Keep{Path: filepath.Dir(conf), What: "the configuration"})
	}
	all = append(all, more...)
	for i := range all {
		all[i].Path = Resolve(all[i].Path)
	}
	return all, nil
}

// Resolve follows the links of the part of path that exists.
func Resolve(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rest := ""
	for d := abs; ; d = filepath.Dir(d) {
		if r, err := filepath.EvalSymlinks(d); err == nil {
			return filepath.Join(r, rest)
		}
		if d == filepath.Dir(d) {
			return abs
		}
		rest = filepath.Join(filepath.Base(d), rest)
	}
}

// openAudit opens the audit log of the session.
func (s *Session) openAudit() (*audit.Log, error) {
	session := s.dir.Name()
	dir, err := config.AuditDir()
	if err != nil {
		return nil, err
	}
	anchor, err := config.AnchorPath(session)
	if err != nil {
		return nil, err
	}
	l, err := audit.Open(audit.Options{
		Dir: dir, Session: session, Paths: s.opt.AuditPaths, Anchor: anchor,
		MaxAge: s.opt.AuditMaxAge, MaxTotal: s.opt.AuditMaxTotal, AnchorOf: config.AnchorPath,
		Pruned: func(path string) {
			s.log.Info("an old audit file was deleted to keep all of them within audit_max_days and audit_max_size", "file", path)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("the audit log cannot be opened: %w", config.Unwritable(err))
	}
	return l, nil
}
