package cli

import (
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard/names"
)

// keptRequests bounds the completed requests of a requestLog. The audit log has all.
const keptRequests = 16

// requestLog has the requests with secrets: the requests under way, and the last completed ones.
// Package secret bounds the number of requests under way.
type requestLog struct {
	mu   sync.Mutex
	list []control.SecretUse // the oldest first
}

// add adds a request, or replaces the entry of a request under way by its outcome.
func (l *requestLog) add(r secret.Request, isOpen bool) {
	one := control.SecretUse{
		Secret: r.Secret, Host: names.Text(r.Host), Method: r.Method, Path: r.Path, Status: r.Status, Sent: r.Sent, Received: r.Received,
		Began: r.Began, Open: isOpen, Refused: r.Refused != nil,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	isSame := func(o control.SecretUse) bool {
		return o.Open && o.Began.Equal(one.Began) && o.Secret == one.Secret && o.Method == one.Method && o.Path == one.Path
	}
	if i := slices.IndexFunc(l.list, isSame); i >= 0 && !isOpen {
		l.list[i] = one
	} else {
		l.list = append(l.list, one)
	}
	completed := 0
	for i := len(l.list) - 1; i >= 0; i-- {
		if l.list[i].Open {
			continue
		}
		if completed++; completed > keptRequests {
			l.list = slices.Delete(l.list, i, i+1)
		}
	}
}

// all returns the requests, the oldest first.
func (l *requestLog) all() []control.SecretUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]control.SecretUse{}, l.list...)
}
