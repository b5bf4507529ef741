package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The owners of a fleet set ceilings for its machines, too. The fleet's agent keeps them in a file of
// the user who runs the agent. Each of these ceilings holds, beside the files in CeilingDir.

// FleetCeilings are the ceilings that the owners of a fleet have set for this machine.
type FleetCeilings struct {
	Fleet    string         `json:"fleet"` // the fleet's name
	Ceilings []FleetCeiling `json:"ceilings"`
}

// FleetCeiling is one ceiling of a fleet: for all its machines, or for this one.
type FleetCeiling struct {
	For    string `json:"for"`
	Number uint64 `json:"n"`
	Text   string `json:"text"` // as in a file of CeilingDir
}

// fleetCeilingFile is the name of the file that holds the FleetCeilings, in the directory of the
// fleet's state.
const fleetCeilingFile = "ceiling.json"

// FleetDir returns the directory of the state of the machine's fleet, and the file of its ceilings.
func FleetDir() (dir, file string, err error) {
	if dir, err = StateDir("fleet"); err != nil {
		return "", "", err
	}
	return dir, dir + "/" + fleetCeilingFile, nil
}

// ReadCeiling reads a file whose text is to become a ceiling of a fleet. c is the ceiling of this
// file alone. ReadCeiling refuses a file that another user or a confined program could have
// written, and a file with a mistake.
func ReadCeiling(file string) (text []byte, c *Ceiling, err error) {
	at, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, err
	}
	text, _, err = read(at, os.Geteuid())
	if err != nil {
		return nil, nil, &Error{File: file, Err: err}
	}
	f, err := parseCeiling(file, text)
	if err != nil {
		return nil, nil, err
	}
	c = &Ceiling{}
	c.add(f)
	return text, c, nil
}

// addFleet adds the ceilings of the fleet that this user's machine belongs to, if any. If these
// ceilings cannot be used, addFleet adds the fleet's ceilings in last.
func (c *Ceiling) addFleet(last *Ceiling) error {
	list, err := fleetCeilings()
	if err != nil {
		list = slices.DeleteFunc(slices.Clone(last.all()), func(f *ceilingFile) bool { return !f.isFleets })
	}
	for _, f := range list {
		c.add(f)
	}
	return err
}

// fleetCeilings returns the ceilings of the fleet; none if the machine belongs to no fleet.
func fleetCeilings() (list []*ceilingFile, err error) {
	dir, file, err := FleetDir()
	if err != nil {
		return nil, err
	}
	// After the machine has left the fleet, the file of ceilings no longer counts.
	if _, err := os.Lstat(dir + "/member.json"); isMissing(err) {
		return nil, nil
	}
	if _, err := os.Lstat(file); isMissing(err) {
		return nil, nil
	}
	doc, _, err := read(file, os.Geteuid())
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	var all FleetCeilings
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, &Error{File: file, Err: fmt.Errorf("is not understood: %w", err)}
	}
	for _, one := range all.Ceilings {
		f, err := parseCeiling(fmt.Sprintf("fleet %s, ceiling %d", names.Escape(all.Fleet), one.Number), []byte(one.Text))
		if err != nil {
			return nil, err
		}
		f.isFleets = true
		list = append(list, f)
	}
	return list, nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }
