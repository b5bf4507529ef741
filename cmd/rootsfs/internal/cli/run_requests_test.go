package cli

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard/names"
)

// `net list` has every request in progress, and a bounded number of completed ones.
func TestRequestLog(t *testing.T) {
	var l requestLog
	began := time.Now()
	request := func(i int) secret.Request {
		return secret.Request{Secret: "KEY", Host: "api.test", Method: "GET", Path: names.Foreign(fmt.Sprintf("/%d", i)), Began: began}
	}
	for i := range 100 {
		l.add(request(i), true)
	}
	for i := range 98 {
		r := request(i)
		r.Status, r.Received = 200, int64(i)
		l.add(r, false)
	}
	refused := request(200)
	refused.Status, refused.Refused = 403, errors.New("no rule")
	l.add(refused, false)
	list := l.all()
	if len(list) != keptRequests+2 || list[0].Path.Raw() != "/83" || list[0].Received != 83 || list[0].Open {
		t.Fatalf("%d requests, %+v", len(list), list)
	}
	for i, want := range []struct {
		path            string
		status          int
		isOpen, refused bool
	}{{"/97", 200, false, false}, {"/98", 0, true, false}, {"/99", 0, true, false}, {"/200", 403, false, true}} {
		if got := list[len(list)-4+i]; got.Path.Raw() != want.path || got.Status != want.status || got.Open != want.isOpen || got.Refused != want.refused {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
