package apply

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Before a file is exchanged, its new contents and the record of the exchange must be on the
// disk. So several files are prepared together, and wait for the disk once.

const (
	// fewFiles is the most files that are synced one by one. For more, the whole file system is
	// synced, including what other programs have written to it.
	fewFiles = 16
	// The bounds of a batch. Ending the root waits for one batch at most. Each file of a batch takes a
	// descriptor.
	maxBatch      = 1024
	maxBatchBytes = 64 << 20
)

// prepared is a change that is prepared for Apply.
type prepared struct {
	w       beneath.Changeable // the complete file; zero for a removal
	temp    string             // the temporary name: first of the new file, then of the old one
	isNamed bool               // the new file has that name already
}

// Batch returns the first changes of an ordered list that can be prepared together.
func Batch(list []*Change) []*Change {
	bytes, most := int64(0), min(maxBatch, beneath.MaxOpen()/4)
	for i, c := range list {
		bytes += c.Size
		if i > 0 && i >= most || i > 0 && (bytes > maxBatchBytes || c.phase() != list[0].phase()) {
			return list[:i]
		}
	}
	return list
}

// Prepare prepares changes for Apply. If it cannot prepare a change, Apply says why. The caller
// must call Release after Apply, or Forget if it does not call Apply.
func (e Env) Prepare(ctx context.Context, l *guard.Lease, list []*Change) error {
	var steps []draft.Step
	var files []beneath.Changeable
	for _, c := range list {
		if err := l.Life().Ended(ctx); err != nil {
			return err
		}
		p := placement{applier: e.begin(ctx, l), c: c}
		if c.want.exists && !c.want.info.IsRegular() || c.Class == Mode || !c.want.exists && c.have.isDir() {
			continue
		}
		r, err := p.prepare()
		p.d.Close()
		if err != nil {
			continue
		}
		c.prepared = r
		if err := atStep("ready", c.Path.Raw()); err != nil {
			return err
		}
		if c.want.exists {
			files = append(files, r.w)
		}
		if c.have.exists {
			step, err := p.stepOf(r)
			if err != nil {
				return err
			}
			steps = append(steps, step)
		}
	}
	l.Notes().Remark(fmt.Sprintf("%d files made ready", len(files)))
	st, _ := beneath.StageOf(l)
	if err := syncFiles(l, st, files); err != nil {
		return err
	}
	if err := st.Store().BeginSteps(steps...); err != nil {
		return err
	}
	return st.Store().Sync()
}

func syncFiles(l *guard.Lease, st beneath.Stage, files []beneath.Changeable) error {
	if len(files) > fewFiles {
		return st.Source(l).SyncAll(l)
	}
	for _, w := range files {
		if err := beneath.Fsync(l, w, false); err != nil {
			return err
		}
	}
	return nil
}

// Release drops the prepared file of a change, if Apply has not used the file. Release removes the
// temporary name, and ends the recorded step.
func (e Env) Release(ctx context.Context, l *guard.Lease, c *Change) error {
	r := c.prepared
	if r == nil {
		return nil
	}
	c.Forget()
	p := placement{applier: e.begin(ctx, l), c: c}
	switch {
	case !r.isNamed && !c.have.exists:
		return nil
	case !r.isNamed:
		return p.store.EndStep(c.Path.Raw())
	}
	parent, _ := splitRel(c.Path.Raw())
	var err error
	if p.d, err = p.st.Source(l).Below(parent, true); err != nil {
		return nil //nolint:nilerr // the owner has moved the directory; Recover looks again
	}
	defer p.d.Close()
	return p.unmake(r.temp)
}

// Forget closes the prepared file. It removes no name: if there is a temporary one, Recover finds
// it in the log.
func (c *Change) Forget() {
	if c.prepared != nil {
		c.prepared.w.Close()
		c.prepared = nil
	}
}

// prepare prepares one change. It opens p.d.
func (p *placement) prepare() (*prepared, error) {
	r := &prepared{temp: tempName()}
	parent, base := splitRel(p.c.Path.Raw())
	p.base = base
	var err error
	if p.d, err = p.parent(parent); err != nil || !p.c.want.exists {
		return r, err
	}
	if p.up, err = p.st.Upper(p.c.Path.Raw(), false); err != nil {
		return nil, err
	}
	defer p.up.Close()
	if p.info, err = p.up.Own(); err != nil {
		return nil, err
	}
	if !p.info.IsRegular() {
		return nil, errOpen
	}
	return r, p.makeFile(r)
}

var nameless = beneath.Nameless // tests replace it

// makeFile makes the complete new file. The file has no name if the file system allows that,
// else a temporary one.
func (p *placement) makeFile(r *prepared) error {
	w, ok, err := nameless(p.l, p.d, 0o600, beneath.Owner{})
	if err == nil && !ok {
		r.isNamed = true
		if err = p.recordStep(r.temp, draft.Step{Making: true}); err == nil {
			w, _, err = beneath.CreateFile(p.l, p.d, r.temp, unix.O_RDWR, 0o600, beneath.Owner{})
		}
	}
	if err != nil {
		return err
	}
	if err = p.fill(w); err != nil {
		w.Close()
		if r.isNamed {
			err = errors.Join(err, p.unmake(r.temp))
		}
	}
	r.w = w
	return err
}

// stepOf returns the record of the step that applies a prepared change.
func (p *placement) stepOf(r *prepared) (draft.Step, error) {
	step := draft.Step{Path: p.c.Path.Raw(), Temp: r.temp, Old: beneath.BaseOf(&p.c.have.info)}
	if !p.c.want.exists {
		return step, nil
	}
	info, err := r.w.Own()
	step.New = beneath.BaseOf(&info)
	return step, err
}

// takePrepared returns the change that Prepare has prepared, or prepares it now.
func (p *placement) takePrepared() (*prepared, error) {
	if r := p.c.prepared; r != nil {
		p.c.prepared = nil
		return r, nil
	}
	r := &prepared{temp: tempName()}
	if p.c.want.exists {
		if err := p.makeFile(r); err != nil {
			return nil, err
		}
		if err := beneath.Fsync(p.l, r.w, false); err != nil {
			r.w.Close()
			return nil, err
		}
	}
	if !p.c.have.exists {
		return r, nil
	}
	step, err := p.stepOf(r)
	if err == nil {
		err = p.recordStep(r.temp, step)
	}
	if err != nil {
		r.w.Close()
	}
	return r, err
}

// namePrepared gives the prepared file its temporary name.
func (p *placement) namePrepared() (temp string, err error) {
	r, err := p.takePrepared()
	if err != nil {
		return "", err
	}
	defer r.w.Close()
	info, err := r.w.Own()
	if err != nil {
		return "", err
	}
	p.newBase, p.c.appliedID = beneath.BaseOf(&info), info.ID()
	if !r.isNamed {
		if err := beneath.Link(p.l, r.w, p.d, r.temp); err != nil {
			return "", errors.Join(err, p.store.EndStep(p.c.Path.Raw()))
		}
	}
	return r.temp, nil
}

// recordStep writes the record of a step to the disk. It fills in the path, temp and the source's
// old file; rec has the other fields.
func (p *placement) recordStep(temp string, rec draft.Step) error {
	rec.Path, rec.Temp = p.c.Path.Raw(), temp
	rec.Old = draft.Base{}
	if p.c.have.exists {
		rec.Old = beneath.BaseOf(&p.c.have.info)
	}
	if err := p.store.BeginSteps(rec); err != nil {
		return err
	}
	return p.store.Sync()
}
