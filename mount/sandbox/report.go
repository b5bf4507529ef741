package sandbox

import (
	"context"
	"errors"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
)

// Layer is one layer of the confinement, and State is its state. The texts of the states are
// part of `status --json`.
type (
	Layer = initproc.Layer
	State = initproc.State
)

// The states.
const (
	On           = initproc.On
	Off          = initproc.Off          // not wanted at this level or with these options
	NotAvailable = initproc.NotAvailable // wanted, and this machine does not have it
)

// LandlockLayer is the name of the layer Landlock. If it is not available, its detail has a
// remedy.
const LandlockLayer = initproc.LandlockLayer

func layer(name string, state State, detail string) Layer {
	return Layer{Name: name, State: state, Detail: detail}
}

// Reach says whether a level can be reached, or why it cannot.
type Reach struct {
	Level Level  `json:"-"`
	Name  string `json:"level"`
	OK    bool   `json:"ok"`
	Why   string `json:"why,omitempty"`
	// Cause is the error whose text is Why.
	Cause error `json:"-"`
}

// Report describes the confinement that a command has, or could have.
type Report struct {
	Level  Level   `json:"-"`
	Name   string  `json:"level"` // of Level
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Layers []Layer `json:"layers,omitempty"`
	// Holes has sentences about access that the command still has.
	Holes []string `json:"holes,omitempty"`
	// Notes has sentences about files that the command does not see, or not where the files'
	// owner may expect them.
	Notes []string `json:"notes,omitempty"`
	// Follows are the directories inside in which roots appear by themselves whenever they are
	// granted. Closed are the directories in which later roots do not appear, except below
	// Follows: see Appears. If Closed is empty, every root appears. With Options.Spare, a
	// root that is not below Follows appears by Process.Bind.
	Follows []string `json:"follows,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	// TmpSize is the size of the private directories in memory, in bytes; 0: they are on the
	// host's disk.
	TmpSize int64 `json:"tmp_size,omitempty"`
	// Levels are the results of Probe, strongest first.
	Levels []Reach `json:"levels,omitempty"`
}

// Probe tries every level except None on this machine, as this user, up to the point where a command
// would be started. It reports the strongest level that works, with its layers and holes,
// and for each level whether it works and why not. It takes some ten milliseconds a level and
// leaves nothing behind. checkProgram is used as Options.CheckProgram.
func Probe(ctx context.Context, checkProgram func(path string) error) Report {
	var best Report
	var levels []Reach
	for level := Namespaces; level < None; level++ {
		r := Reach{Level: level, Name: level.String()}
		rep, err := try(ctx, level, checkProgram)
		if err != nil {
			r.Why, r.Cause = err.Error(), err
		} else if best.Level == 0 {
			best = rep
		}
		r.OK = err == nil
		levels = append(levels, r)
	}
	best.Levels = levels
	return best
}

// try makes all steps of Start up to the point where a command would be started.
func try(ctx context.Context, level Level, checkProgram func(path string) error) (Report, error) {
	// Any directory stands in for the tree: nothing is started.
	o := Options{Args: []string{"true"}, Tree: "/usr", Map: Flat, Level: level, CheckProgram: checkProgram, probe: true}
	if err := errors.Join(o.check(), checkProcesses()); err != nil {
		return Report{}, err
	}
	p, err := start(ctx, &o, level)
	if err != nil {
		return Report{}, err
	}
	_, err = p.Wait()
	return p.Report(), err
}

// The oldest kernels. The documents name these numbers; a test compares them.
const (
	LeastKernel      = "5.6"           // openat2(2), which mounts and every level need
	NamespacesKernel = "5.12"          // mount_setattr(2), which level Namespaces needs
	LandlockKernel   = landlock.Kernel // for level Landlock, and for the layer Landlock of other levels
)
