package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A ceiling bounds the grants on machines. It is a part of an order, as a lock is: see Standing. The
// agent keeps the texts of the ceilings in a file. Each session of the user reads that file and the
// machine's own ceiling, and keeps to all of these ceilings.

// next returns the ceiling that follows c, with a new text. c may be nil.
func (c *CeilingText) next(text string) *CeilingText {
	n := &CeilingText{Number: 1, Text: text}
	if c != nil {
		n.Number = max(c.Number+1, 1) // wraps around to 1; the order's number decides which is newer
	}
	return n
}

// isSet reports whether there is a ceiling.
func (c *CeilingText) isSet() bool { return c != nil && c.Text != "" }

// keepCeilings writes the ceilings of the known orders to the file, unless the file has them already.
// Before it writes, it clears isLow, because the sessions have to read the new file. The caller holds
// mu, or is the only user of the agent.
func (a *agent) keepCeilings() error {
	all := config.FleetCeilings{Fleet: a.m.Fleet, Ceilings: []config.FleetCeiling{}}
	for _, to := range a.recipients() {
		if c := a.known[to].Ceiling; c.isSet() {
			all.Ceilings = append(all.Ceilings, config.FleetCeiling{For: to, Number: c.Number, Text: c.Text})
		}
	}
	file := a.dir.ceiling()
	old, err := readOwn(file)
	if errors.Is(err, fs.ErrNotExist) && len(all.Ceilings) == 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("the file of the ceilings is written anew", "error", err)
	}
	data, err := json.Marshal(all)
	if err != nil || string(old) == string(data)+"\n" {
		return err
	}
	a.isLow = false
	return writeJSON(file, all)
}

// lowerAll makes every session keep to the ceilings in the file, unless isLow says that all sessions do.
// It returns ended, followed by the roots that end because of the ceilings. The caller holds mu.
func (a *agent) lowerAll(ctx context.Context, ended []Ended) ([]Ended, error) {
	if a.isLow {
		return ended, nil
	}
	more, err := a.lower(ctx)
	a.isLow = err == nil
	return append(ended, more...), err
}

// lowerSessions makes every live session of this machine read the ceiling. When it returns no error,
// each session has revoked what the ceiling forbids, or has ended.
func lowerSessions(ctx context.Context) ([]Ended, error) {
	all, err := control.List()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var ended []Ended
	var errs []error
	var wait sync.WaitGroup
	for _, in := range all {
		wait.Go(func() {
			got, err := control.ReadCeilingNow.Call(ctx, control.Dial(in), control.None{})
			mu.Lock()
			defer mu.Unlock()
			for _, e := range got.Ended {
				ended = append(ended, Ended{names.Foreign(in.Name), e})
			}
			if err = ignoreEnded(in, err); err != nil {
				errs = append(errs, fmt.Errorf("session %s: %w", in.Name, err))
			}
		})
	}
	wait.Wait()
	return ended, errors.Join(errs...)
}

// CurrentCeiling is a ceiling that is set, as an owner sees it.
type CurrentCeiling struct {
	For    string    `json:"for"` // a machine's name, or all
	Number uint64    `json:"number"`
	By     string    `json:"by"` // the key of the owner who gave the newest order for the same machines
	At     time.Time `json:"at"` // when By gave that order
	Text   string    `json:"text"`
}

// Ceilings returns the ceiling for all machines and the ceilings of the named machines. Without names,
// it returns the ceiling of every machine. It leaves out ceilings that are not set.
func (o *Owner) Ceilings(ctx context.Context, machines []string) ([]CurrentCeiling, error) {
	recs, err := o.recipients(ctx, machines)
	if err != nil {
		return nil, err
	}
	to := []string{allMachines}
	for _, rec := range recs {
		if rec.Newest[rec.Name] > 0 || slices.Contains(machines, rec.Name) {
			to = append(to, rec.Name)
		}
	}
	list := []CurrentCeiling{}
	for _, one := range to {
		h, err := o.current(ctx, one)
		if err != nil {
			return nil, err
		}
		if c := h.Ceiling; c.isSet() {
			list = append(list, CurrentCeiling{For: one, Number: c.Number, By: keyName(h.by), At: h.At, Text: c.Text})
		}
	}
	return list, nil
}

// Lines returns the lines of the ceiling.
func (c *CurrentCeiling) Lines() []string {
	return strings.Split(strings.TrimSuffix(c.Text, "\n"), "\n")
}
