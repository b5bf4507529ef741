package guardtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Case is one row of the suite.
type Case struct {
	Name string
	Req  string // ids of the requirements that the case tests

	Tree    []string // of the root "code"
	Outside []string // of the directory $OUT, which nobody approved

	Policy guard.Policy // of "code"; no rights mean read and write
	File   string       // if not empty, "code" is this one file of the tree
	Whose  Whose        // whom "code" is for
	// Subject: only a front end that speaks for a subject takes the case.
	Subject bool
	// More has further roots, by name: the path of each below the tree, "" for the tree itself.
	// They are writable, except one named "ro". MoreLimits are the limits of each.
	More       map[string]string
	MoreLimits guard.Limits
	// Overlaps: while "code" is granted, the case grants another root that overlaps it. If "code"
	// is staged, the registry refuses that grant.
	Overlaps bool
	// Special: the call makes or changes a special file.
	Special bool
	// Root: only root can set the case up (mounts, trusted attributes); for other users it is
	// left out.
	Root bool
	// Prepare runs after the grants. Disturb runs after Prepare and a Stat of "code" through the
	// front end, which may cache the answer.
	Prepare, Disturb func(e *Env)

	Call Call
	// Steps are calls that must succeed before Call.
	Steps []Call
	// Want is the kind of the refusal of Call, 0 if it is not refused. Errno is the errno of
	// Call's error, if that differs from the errno of Want.
	Want  guard.Kind
	Errno syscall.Errno
	// Gone: the caller has no live root of that name. A front end with Can.GoneIsAbsent answers
	// ENOENT.
	Gone bool
	// Replaced: Disturb exchanged the file under a name the front end knew.
	Replaced bool
	// Unguarded: the same call on the bare file system succeeds.
	Unguarded bool
	// Parsed: the case is about how paths are written, so it runs only for front ends that
	// parse paths themselves (Can.ParsesPaths).
	Parsed bool
	// Raw: the path is not UTF-8.
	Raw bool
	// Check looks at the result on the host.
	Check func(e *Env)
}

// Whose says whom a root is granted to.
type Whose uint8

// The zero value is everybody.
const (
	Own     Whose = iota + 1 // the front end's subject
	Another                  // a subject that the front end does not speak for
)

const another guard.Subject = "another"

// Env is the environment of one case.
type Env struct {
	testing.TB
	Subject guard.Subject // for which the front end speaks
	Reg     *guard.Registry
	// Src and Out are the host paths of the tree and of the outside directory. They are the first
	// two directories of T.TempDir, 001 and 002, so ../002 leads from the root to Out.
	Src, Out string
	Front    Front
	Records  *Recorder
	prefix   string
	apply    func(root guard.RootName) error
}

// RootName returns the name that one of the case's roots has in the registry: the name in the
// case with a prefix. Front and the calls take the name without the prefix.
func (e *Env) RootName(root string) guard.RootName { return guard.RootName(e.prefix + root) }

// Revoke revokes one of the case's roots.
func (e *Env) Revoke(name string) {
	e.Helper()
	if _, err := e.Reg.Revoke(context.Background(), e.RootName(name)); err != nil {
		e.Fatal(err)
	}
}

// Recheck makes the registry check whether a root's path still leads to the approved directory.
func (e *Env) Recheck(name string) {
	e.Helper()
	if err := e.Reg.Recheck(context.Background(), e.RootName(name)); err != nil {
		e.Fatal(err)
	}
}

// Must ends the case as failed if err is not nil.
func (e *Env) Must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// Contents checks the contents of a file on the host.
func (e *Env) Contents(path, want string) {
	e.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		e.Errorf("%s holds %q, %v; want %q", filepath.Base(path), got, err, want)
	}
}

// Suite describes a front end to test.
type Suite struct {
	Opener guard.Opener
	Can    Can
	Make   Maker
	// Subject is the subject for which the front end speaks, "" for none.
	Subject guard.Subject
	// Staged: each root "code" is granted with guard.Stage, which keeps its changes apart from
	// the source. Cases whose root cannot be staged are left out. The Call of a case must leave
	// the source as it was.
	Staged bool
	// Apply applies the changes of a staged root before its case reads files of the host.
	Apply func(root guard.RootName) error
	// AtLeast is how many cases have to run, so that a front end without abilities does not
	// pass. It does not apply if the command line chooses cases (go test -run
	// TestConformance/plain/read).
	AtLeast int
}

// Run tests a front end with every case for which the front end has the abilities. Each case has
// roots of its own, which are granted and revoked while the front end serves.
func Run(t *testing.T, s Suite) {
	rec := &Recorder{}
	var fitting, entered, ran int
	reg := guard.NewRegistry(guard.Config{Opener: s.Opener, Auditor: rec})
	front := s.Make(t, reg)
	for i, c := range append(allCases(), rightsCases()...) {
		if s.Can.ReadOnlyByKernel && (c.Policy.Rights == 0 || c.Policy.Rights.Mutating()) {
			continue
		}
		if c.Subject && s.Subject == "" {
			continue
		}
		if c.Parsed && !s.Can.ParsesPaths || c.Raw && !s.Can.RawNames || !fits(&c, s.Can) {
			continue
		}
		if s.Staged && !c.stage() {
			continue
		}
		fitting++
		t.Run(c.Name, func(t *testing.T) {
			entered++
			e := &Env{TB: t, Src: t.TempDir(), Out: t.TempDir(), Reg: reg, Records: rec, Subject: s.Subject, apply: s.Apply, prefix: "c" + itoa(i) + "-"}
			e.Front = prefixed{front, e.prefix}
			if c.run(e, s.Can) {
				ran++
			}
		})
	}
	if entered == fitting && ran < s.AtLeast {
		t.Errorf("only %d cases ran, want at least %d", ran, s.AtLeast)
	}
}

// stage makes the case's root a staged one. It reports false for a case whose root cannot be
// staged.
func (c *Case) stage() bool {
	if c.Policy.Rights == 0 {
		c.Policy.Rights = guard.ReadWrite
	}
	c.Policy.Rights |= guard.Stage
	return c.File == "" && len(c.More) == 0 && !c.Overlaps && !c.Policy.OtherFileSystems
}

// isUnsupported reports whether a grant failed because the front end does not support its policy.
func (e *Env) isUnsupported(err error) bool {
	var ge *guard.Error
	return errors.As(err, &ge) && ge.Op == names.OpMount
}

func fits(c *Case, can Can) bool {
	if c.Root && os.Geteuid() != 0 {
		return false
	}
	for _, call := range append(c.Steps, c.Call) {
		if !call.fits(can) {
			return false
		}
	}
	return true
}

// run runs the case. It reports false if the front end does not support the case's policy.
func (c *Case) run(e *Env, can Can) bool {
	Tree(e, e.Out, e.Out, c.Outside...)
	Tree(e, e.Src, e.Out, c.Tree...)
	grants, dirs := c.grants(e)
	if _, err := e.Reg.GrantAll(context.Background(), grants); err != nil {
		if e.isUnsupported(err) {
			return false
		}
		e.Fatal(err)
	}
	e.Cleanup(func() { e.revokeAll(grants) })
	if c.Prepare != nil {
		c.Prepare(e)
	}
	if c.Disturb != nil {
		_, _ = e.Front.Stat("code")
		c.Disturb(e)
	}
	for _, step := range c.Steps {
		if err := step.do(e.Front); err != nil {
			e.Fatalf("%s: %v", step.Text, err)
		}
	}
	before, source := len(e.Records.All()), ""
	if c.Policy.Rights.Staged() {
		source = sourceState(e)
	}
	c.makeCall(e, can)
	c.checkRecord(e, can, e.Records.All()[before:])
	if c.Policy.Rights.Staged() {
		if now := sourceState(e); now != source {
			e.Errorf("%s: the source has changed:\n%s\nbefore:\n%s", c.Call.Text, now, source)
		}
		if c.Special || c.Want == names.Rate {
			return true // a special file is not applied, and a root at its rate limit applies nothing
		}
		if _, live := e.Reg.Lookup(e.RootName("code")); live && (c.Check != nil || c.Unguarded) {
			e.Must(e.apply(e.RootName("code")))
		}
	}
	if c.Check != nil {
		c.Check(e)
	}
	if c.Unguarded {
		if err := c.Call.do(Bare{Host: hostPath(dirs)}); err != nil {
			e.Errorf("the bare call must succeed, else nothing shows that the guard stopped it: %s: %v", c.Call.Text, err)
		}
	}
	return true
}

// makeCall makes the call and checks the answer. If Disturb has replaced a file (Replaced) and the
// front end may learn of that later, makeCall repeats the call until the answer is right. The
// bound of the loop only ends a failed test.
func (c *Case) makeCall(e *Env, can Can) {
	err := c.Call.do(e.Front)
	if c.Replaced && can.LearnsLater {
		for range 2000 {
			if c.difference(err, can) == "" {
				break
			}
			time.Sleep(10 * time.Millisecond)
			err = c.Call.do(e.Front)
		}
	}
	if text := c.difference(err, can); text != "" {
		e.Errorf("%s: %s", c.Call.Text, text)
	}
}

// checkRecord checks that a refusal by the gate left a record (R084). Only the registry's own
// records, those of grants and the like, may contain a host path (R126).
func (c *Case) checkRecord(e *Env, can Can, recs []guard.Record) {
	e.Helper()
	found := false
	for _, r := range recs {
		if r.Op < names.OpGrant && strings.Contains(fmt.Sprint(r.Facts, r.Detail), e.Src) {
			e.Errorf("the record of %v contains the host path: %+v, %s", r.Op, r.Facts, r.Detail)
		}
		found = found || r.Verdict == guard.Refused && r.Kind == c.Want
	}
	byKernel := can.ReadOnlyByKernel && c.Want == names.ReadOnly || c.Gone && can.GoneIsAbsent
	if c.Want.Refusal() && !byKernel && !found {
		e.Errorf("%s: no record of the refusal", c.Call.Text)
	}
}

func (e *Env) revokeAll(grants []guard.Grant) {
	for _, g := range grants {
		if _, ok := e.Reg.Lookup(g.Root); ok {
			if _, err := e.Reg.Revoke(context.Background(), g.Root); err != nil {
				e.Error(err)
			}
		}
	}
}

// grants returns the grants of the case, and the host path of each root by the root's name in the
// case. If the case has no rights, grants sets them to guard.ReadWrite.
func (c *Case) grants(e *Env) ([]guard.Grant, map[string]string) {
	if c.Policy.Rights == 0 {
		c.Policy.Rights = guard.ReadWrite
	}
	dirs := map[string]string{"code": filepath.Join(e.Src, c.File)}
	whose := map[Whose]guard.Subject{Own: e.Subject, Another: another}[c.Whose]
	grants := []guard.Grant{{Root: e.RootName("code"), Dir: names.Foreign(dirs["code"]), Policy: c.Policy, Subject: whose, Origin: "test"}}
	for name, rel := range c.More {
		dirs[name] = filepath.Join(e.Src, rel)
		p := guard.Policy{Rights: guard.ReadWrite, Limits: c.MoreLimits}
		if name == "ro" {
			p.Rights = guard.ReadOnly
		}
		grants = append(grants, guard.Grant{Root: e.RootName(name), Dir: names.Foreign(dirs[name]), Policy: p, Origin: "test"})
	}
	return grants, dirs
}

// difference compares the answer of the front end with the case, and describes the difference. It
// returns "" if there is none.
func (c *Case) difference(err error, can Can) string {
	var w *wrongAnswer
	if errors.As(err, &w) {
		return w.text
	}
	if c.Want == 0 && c.Errno == 0 {
		if err != nil {
			return err.Error() + ", want success"
		}
		return ""
	}
	if err == nil {
		return fmt.Sprintf("succeeded, want %v", c.Want)
	}
	if can.KindsOnly {
		return c.kindDifference(err)
	}
	want := c.Errno
	if want == 0 {
		want = (&guard.Error{Kind: c.Want}).Errno()
	}
	got := names.Errno(err)
	if got != want && !(c.Gone && can.GoneIsAbsent && got == syscall.ENOENT) {
		return fmt.Sprintf("%v (%d), want %v", err, int(got), want)
	}
	var ge *guard.Error
	if errors.As(err, &ge) && c.Want != 0 && ge.Kind != c.Want {
		return fmt.Sprintf("refused as %v, want %v", ge.Kind, c.Want)
	}
	return ""
}

// kindDifference is difference for a front end that reports kinds only, and NotExist for hidden
// names.
func (c *Case) kindDifference(err error) string {
	want, got := c.Want, names.Reason(err)
	switch want { //nolint:exhaustive // the others are compared as they are
	case 0:
		want = names.KindOf(c.Errno)
	case names.Hidden:
		want = names.NotExist
	}
	if got != want {
		return fmt.Sprintf("refused as %v (%v), want %v", got, err, want)
	}
	return ""
}
