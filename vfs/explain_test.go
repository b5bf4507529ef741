package vfs_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// A dry run of an operation and the operation itself have the same verdict: in each case of the
// conformance suite, the call gets the answer that Explain returned before it, and both name
// the same rule. R110.
func TestExplainConformance(t *testing.T) {
	replace := func(f *pathFront, p guard.Path, data []byte) error {
		return second(f.t.Replace(bg, f.who, vfs.At{Path: p}, bytes.NewReader(data), vfs.IfMatch{Follow: true, Mode: 0o644}))
	}
	guardtest.Run(t, guardtest.Suite{
		Opener: vfs.Opener(), Subject: peer.Subject,
		Can: guardtest.Can{ParsesPaths: true, Attributes: true, Links: true, RawNames: true},
		Make: func(_ testing.TB, reg *guard.Registry) guardtest.Front {
			return &dryFront{pathFront{treeFront{reg, vfs.New(reg), peer}, replace}}
		},
		AtLeast: 300,
	})
}

// dryFront asks Explain before each call. If the verdicts differ, the call returns an error that
// describes the difference.
type dryFront struct{ pathFront }

// compare makes a dry run and then the call, and returns an error if their verdicts differ.
func (f *dryFront) compare(req guard.Request, path, path2 string, call func() error) error {
	p, err := f.reg.Parse(f.who.Subject, path)
	if err == nil && path2 != "" {
		req.Path2, err = f.reg.Parse(f.who.Subject, path2)
	}
	if err != nil {
		return call()
	}
	req.Caller, req.Path = f.who, p
	dry := f.t.Explain(bg, req)
	err = call()
	if text := disagreement(dry, err); text != "" {
		return errors.New(req.Op.String() + ": " + text)
	}
	return err
}

// disagreement describes how a dry run and the operation differ, or returns "".
func disagreement(dry guard.Explanation, err error) string {
	kind := names.Reason(err)
	var refused *rules.Refusal
	byRule := errors.As(err, &refused)
	switch {
	case err != nil && kind.Refusal() && (dry.Allowed || dry.Kind != kind):
	case err == nil && !dry.Allowed:
	case err != nil && !kind.Refusal() && !dry.Allowed && dry.Kind.Refusal() && !dry.Missing:
	case byRule && dry.Verdict.Rule != refused.Rule:
	case !byRule && err != nil && kind.Refusal() && dry.Verdict.Rule != nil:
	default:
		return ""
	}
	rule := "no rule"
	if byRule {
		rule = refused.Why()
	}
	named := "no rule"
	if dry.Verdict.Rule != nil {
		named = dry.Verdict.Rule.Text
	}
	return "dry: allowed " + map[bool]string{true: "yes", false: "no"}[dry.Allowed] + " " + dry.Kind.String() + " " + named +
		"; real: " + kind.String() + " " + rule
}

func (f *dryFront) ReadFile(p string) (got []byte, err error) {
	err = f.compare(guard.Request{Op: names.OpOpen, Need: guard.Read}, p, "", func() error { got, err = f.pathFront.ReadFile(p); return err })
	return got, err
}

func (f *dryFront) WriteFile(p string, data []byte) error {
	req := guard.Request{Op: names.OpReplace, Names: 1, Bytes: int64(len(data)), Size: int64(len(data))}
	return f.compare(req, p, "", func() error { return f.pathFront.WriteFile(p, data) })
}

func (f *dryFront) Append(p string, data []byte) error {
	req := guard.Request{Op: names.OpWrite, Need: guard.Append, Names: 1, Bytes: int64(len(data))}
	return f.compare(req, p, "", func() error { return f.pathFront.Append(p, data) })
}

func (f *dryFront) Mkdir(s string) error {
	return f.compare(guard.Request{Op: names.OpMkdir}, s, "", func() error {
		p, err := f.reg.Parse(f.who.Subject, s)
		if err == nil {
			_, err = f.t.MkdirPath(bg, f.who, p, 0o755)
		}
		return err
	})
}

func (f *dryFront) Remove(p string) error {
	return f.compare(guard.Request{Op: names.OpUnlink}, p, "", func() error { return f.pathFront.Remove(p) })
}

func (f *dryFront) Rename(p, q string) error {
	return f.compare(guard.Request{Op: names.OpRename}, p, q, func() error { return f.pathFront.Rename(p, q) })
}

func (f *dryFront) Link(p, q string) error {
	return f.compare(guard.Request{Op: names.OpLink}, q, p, func() error { return f.pathFront.Link(p, q) })
}

func (f *dryFront) Symlink(target, p string) error {
	return f.compare(guard.Request{Op: names.OpSymlink}, p, "", func() error { return f.pathFront.Symlink(target, p) })
}

func (f *dryFront) Readlink(p string) (target string, err error) {
	err = f.compare(guard.Request{Op: names.OpReadlink}, p, "", func() error { target, err = f.pathFront.Readlink(p); return err })
	return target, err
}

func (f *dryFront) Stat(p string) (info guardtest.Info, err error) {
	err = f.compare(guard.Request{Op: names.OpLookup}, p, "", func() error { info, err = f.pathFront.Stat(p); return err })
	return info, err
}

func (f *dryFront) List(p string) (list []string, err error) {
	err = f.compare(guard.Request{Op: names.OpOpendir}, p, "", func() error { list, err = f.pathFront.List(p); return err })
	return list, err
}

func (f *dryFront) Chmod(p string, mode uint32) error {
	return f.compare(guard.Request{Op: names.OpSetattr}, p, "", func() error { return f.pathFront.Chmod(p, mode) })
}

func (f *dryFront) Truncate(p string, n int64) error {
	return f.compare(guard.Request{Op: names.OpTruncate, Size: n}, p, "", func() error { return f.pathFront.Truncate(p, n) })
}
