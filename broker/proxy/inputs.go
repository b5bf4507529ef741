package proxy

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// inputs are the requests that a server puts inside a result (SEP-2322) or inside the
// params of a task's notification (SEP-2663). A host answers each as if it had come by
// itself: the Go SDK's does whatever the revision and the result's type say.
type inputs struct {
	at     span     // the object that holds them; absent: there is none
	roots  []wanted // those for roots, at most one more than maxWanted
	keys   []string // of these, unescaped
	others int      // how many are for something else
	flaw   string   // why hosts may read them in different ways
}

// wanted is one request for roots among inputs.
type wanted struct {
	Key    string          `json:"k"` // raw, without its quotes
	Params json.RawMessage `json:"p,omitempty"`
}

// readInputs finds the inputs in a result or in params. Keys are compared without their
// case, as some hosts do; one that not every host takes for the same is a flaw.
func readInputs(b []byte, in span) (all inputs) {
	at, flaw := member(b, in, "inputRequests")
	if all.flaw = flaw; flaw != "" || at.absent() || string(at.of(b)) == "null" {
		return all
	}
	all.at = at
	l, ok := open(b, at.from)
	if !ok || l.array {
		all.flaw = "inputRequests is no object"
	}
	for all.flaw == "" && len(all.roots) <= maxWanted && l.next() {
		var method span
		method, all.flaw = member(b, l.val, "method")
		name := string(meant(method.of(b)))
		switch {
		case name == wire.RootsList:
			w := wanted{Key: string(b[l.key.from+1 : l.key.to-1])}
			if params, ok := lookup(b, l.val, "params"); ok {
				w.Params = bytes.Clone(params.of(b))
			}
			all.roots, all.keys = append(all.roots, w), append(all.keys, string(meant(l.key.of(b))))
		case broker.Ours(name):
			all.flaw = "an input request is for rootsfs"
		default:
			all.others++
		}
	}
	return all
}

// member returns the value of an object's member, absent if there is none. flaw says that
// the key is there twice or in another case.
func member(b []byte, at span, name string) (val span, flaw string) {
	l, ok := open(b, at.from)
	if at.absent() || !ok || l.array {
		return span{}, ""
	}
	for l.next() {
		key := meant(l.key.of(b))
		if !strings.EqualFold(string(key), name) {
			continue
		}
		if !val.absent() || string(key) != name {
			return span{}, name + " is there twice, or in capitals"
		}
		val = l.val
	}
	return val, ""
}

// why tells the reason for which a message with these inputs is refused.
func (in *inputs) why() string {
	if in.flaw != "" {
		return "a message of the server's asks for input in a way that hosts read differently: " + in.flaw
	}
	return "a message of the server's asks the host for its roots; rootsfs answers that only as roots/list, and in results of type input_required"
}
