package network

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Names beyond those that a program may have are on record and not in the log, which may be
// a terminal.
func TestTooManyNamesAreOnRecord(t *testing.T) {
	var log bytes.Buffer
	refused := 0
	g := New(Options{Rules: mustRules(t, "*.wild.test"), Record: func(e Event) error {
		if e.State == Refused && errors.Is(e.Reason, errTooManyNames) {
			refused++
		}
		return nil
	}})
	g.log = slog.New(slog.NewTextHandler(&log, nil))
	for i := range 3 * newNames {
		q := dnsmessage.Question{Name: dnsmessage.MustNewName(fmt.Sprintf("n%d.wild.test.", i)), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
		g.lookup(q)
	}
	if log.Len() > 0 || refused < newNames {
		t.Errorf("%d refusals are on record, and the log says %.100q", refused, log.String())
	}
}
