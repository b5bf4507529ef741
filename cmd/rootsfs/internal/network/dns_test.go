package network

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// If a program looks up more names than it may, the refused names are on record. The log has none
// of these names, because a terminal may show the log.
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

// If a name does not exist, the answer that says so is on record. One kind of answer is left out: the
// name is not a valid host name, and no rule permits it.
func TestMissingNamesAreOnRecord(t *testing.T) {
	var hosts []string
	g := New(Options{Rules: mustRules(t, "api.test,*.wild.test"), Record: func(e Event) error {
		if e.State == Refused {
			hosts = append(hosts, e.Host.Raw())
		}
		return nil
	}})
	for _, name := range []string{"api.test.", "a.wild.test.", "-a.wild.test.", "a b.wild.test.", "\x1b[1m.wild.test.", "\x1b[1m.evil.test.", "evil.test."} {
		g.lookup(dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	}
	if want := []string{`"-a.wild.test"`, `"a b.wild.test"`, `"\u{1b}[1m.wild.test"`, "evil.test"}; !slices.Equal(hosts, want) {
		t.Errorf("on record are %q, want %q", hosts, want)
	}
}
