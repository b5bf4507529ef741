package fleet

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// An owner acts at one machine by requests to its sessions. Each request is signed, together with a
// number that the machine gave out. A number is valid once and for a short time, so a request that
// is repeated or late is refused. The machine answers with frames, which are signed, too.

// toMachine is a message to a machine, with the subject Names.Do. One field is set.
type toMachine struct {
	Challenge bool   `json:"challenge,omitempty"` // asks for a number
	Act       []byte `json:"act,omitempty"`       // a signed act
	Progress  []byte `json:"progress,omitempty"`  // a signed progress
}

// challenge is the number for an act. It needs no signature: an act with another number is refused.
type challenge struct {
	Number string `json:"number"`
}

// act is an owner's request to a session of a machine, or without a session for the list of the
// sessions.
type act struct {
	Machine string `json:"machine"`
	Number  string `json:"number"`
	Stream  string `json:"stream"` // of the frames that answer it
	Session string `json:"session,omitempty"`
	PID     int    `json:"pid,omitempty"`   // of the session, so that no later one of the same name is meant
	Start   uint64 `json:"start,omitempty"` // of the session
	Path    string `json:"path,omitempty"`  // of the request, as control.AccessOf takes it
	Body    []byte `json:"body,omitempty"`
}

// progress tells a machine how far the owner has read an answer. A machine that hears no progress
// ends the answer.
type progress struct {
	Machine string `json:"machine"`
	Stream  string `json:"stream"`
	Count   uint64 `json:"count"` // higher each time, so that an old progress is ignored
	Read    uint64 `json:"read"`  // the number of the last frame that the owner has read
	End     bool   `json:"end,omitempty"`
}

// frame is a part of an answer.
type frame struct {
	Machine string     `json:"machine"`
	Stream  string     `json:"stream"`
	Number  uint64     `json:"n"` // from 1
	Status  int        `json:"status,omitempty"`
	Data    []byte     `json:"data,omitempty"`
	End     bool       `json:"end,omitempty"`
	Problem names.Text `json:"problem,omitempty"` // why the answer ends before it is whole
}

const (
	kindAct      = "act"
	kindProgress = "progress"
	kindFrame    = "frame"
)

// The bounds of acts.
const (
	challengeTime = 30 * time.Second // how long a number is valid
	maxChallenges = 64
	maxActs       = 32        // at a time on one machine
	maxActBody    = 256 << 10 // of a request
	maxFrameData  = 16 << 10
	frameWindow   = 64               // frames that the owner has not read yet
	progressTime  = 2 * time.Second  // between two signs of life, both ways
	silenceTime   = 15 * time.Second // an answer ends after this time without a sign of life
)

// listPath is the path of the request for the list of sessions.
const listPath = ""

// frames returns the subject on which a machine answers an act: it publishes the frames of the answer
// there. stream names the answer, in the syntax of an invite's ID.
func (n Names) frames(machine, stream string) string { return n.machine(machine, "up."+stream) }

// encode encodes a message to a machine.
func (t toMachine) encode() ([]byte, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("the message to the machine cannot be written: %w", err)
	}
	return data, nil
}
