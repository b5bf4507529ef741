package early

import (
	"os"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// commandID is the uid and gid of a command of root's (sandbox.DefaultID, which comes
// too late; a test compares the two).
const commandID = 65600

func init() {
	if k, ok := kindFor(os.Args); ok && os.Geteuid() == 0 {
		calm()
		ahead.Begin(k)
	}
}

// slower are the flags with which there is no use for an init that was started ahead.
var slower = [...]string{"-h", "--help", "--level", "--unconfined"}

// kindFor guesses from a command line what init it will need. A wrong guess costs
// time, and nothing else. (It does without package strings, which would be
// initialised before, and with it a hundred others.)
func kindFor(args []string) (k ahead.Kind, ok bool) {
	if len(args) < 4 || args[1] != "run" {
		return k, false
	}
	k = ahead.Kind{UID: commandID, GID: commandID}
	for _, arg := range args[2:] {
		if arg == "--" {
			return k, true
		}
		for _, flag := range slower {
			if arg == flag || len(arg) > len(flag) && arg[:len(flag)+1] == flag+"=" {
				return k, false
			}
		}
		k.Net = k.Net || arg == "--net" || arg == "--net=true"
	}
	return k, false
}
