package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The owners of a fleet set bounds for its machines, too. The fleet's agent keeps them in a file of
// the user whose agent it is. Each of them holds, beside the files in CeilingDir.

// FleetCeilings are the ceilings that the owners of a fleet have set for this machine.
type FleetCeilings struct {
	Fleet    string         `json:"fleet"` // the owners' name for it
	Ceilings []FleetCeiling `json:"ceilings"`
}

// FleetCeiling is one of them: for all machines, or for this one.
type FleetCeiling struct {
	For    string `json:"for"`
	Number uint64 `json:"n"`
	Text   string `json:"text"` // as in a file of CeilingDir
}

// fleetCeilingFile is the name of the file, in the directory of the fleet's state.
const fleetCeilingFile = "ceiling.json"

// FleetDir returns the directory of the state of the machine's fleet, and the file of its ceilings.
func FleetDir() (dir, file string, err error) {
	if dir, err = StateDir("fleet"); err != nil {
		return "", "", err
	}
	return dir, dir + "/" + fleetCeilingFile, nil
}

// CheckCeiling returns the mistakes in the text of a ceiling. file is its name in them.
func CheckCeiling(file string, text []byte) error {
	_, err := parseCeiling(file, text)
	return err
}

// ReadCeiling reads a file whose text is to become a ceiling. Nobody but its owner, and no program,
// may have written it, and it has no mistake.
func ReadCeiling(file string) ([]byte, error) {
	text, _, err := read(file, os.Geteuid())
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	return text, CheckCeiling(file, text)
}

// addFleet adds the ceilings of the fleet that this user's machine belongs to, if it does.
func (c *Ceiling) addFleet() error {
	dir, file, err := FleetDir()
	if err != nil {
		return err
	}
	// After the machine has left, the file counts no more.
	if _, err := os.Lstat(dir + "/member.json"); isMissing(err) {
		return nil
	}
	if _, err := os.Lstat(file); isMissing(err) {
		return nil
	}
	doc, _, err := read(file, os.Geteuid())
	if err != nil {
		return &Error{File: file, Err: err}
	}
	var all FleetCeilings
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return &Error{File: file, Err: fmt.Errorf("is not understood: %w", err)}
	}
	for _, one := range all.Ceilings {
		label := fmt.Sprintf("fleet %s, ceiling %d", names.Escape(all.Fleet), one.Number)
		f, err := parseCeiling(label, []byte(one.Text))
		if err != nil {
			return err
		}
		f.isFleets = true
		c.add(f)
		c.OfFleet = append(c.OfFleet, label)
		c.text = append(append(c.text, label...), one.Text...)
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }
