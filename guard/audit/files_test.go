package audit

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A regular expression describes the names of audit files. parseName agrees with it on a list of
// names, and on names that come from them by a cut or by the removal, insertion or replacement of
// one character.
func TestParseName(t *testing.T) {
	form := regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._+@-]{0,127})-(\d{8}T\d{6}\.\d{9}Z)(?:\.([1-9]\d{0,8}))?\.jsonl$`)
	const start = "20260102T150405.000000000Z"
	bases := []string{
		"s-" + start + ".jsonl", "work-1.a_b@c+d-" + start + ".12.jsonl", "a-" + start + "-" + start + ".jsonl",
		strings.Repeat("x", 128) + "-" + start + ".jsonl", strings.Repeat("x", 129) + "-" + start + ".jsonl",
		"s-" + start + ".999999999.jsonl", "s-" + start + ".1000000000.jsonl", "s-" + start + ".0.jsonl", "s-" + start + ".+1.jsonl",
		"s-" + start + ".01.jsonl", "s-" + start + ".1.2.jsonl", "s-" + start + "..jsonl",
		"-" + start + ".jsonl", start + ".jsonl", ".jsonl", "", "Z.jsonl", "1.jsonl", ".s.lock", "ß-" + start + ".jsonl",
	}
	var all []string
	for _, b := range bases {
		all = append(all, b)
		for i := range b {
			all = append(all, b[:i], b[i:], b[:i]+b[i+1:])
			for _, c := range "0aZ.-T\x00" {
				all = append(all, b[:i]+string(c)+b[i:], b[:i]+string(c)+b[i+1:])
			}
		}
	}
	good := 0
	for _, name := range all {
		m := form.FindStringSubmatch(name)
		got, ok := parseName(name)
		if ok != (m != nil) {
			t.Errorf("%q: %v, want %v", name, ok, m != nil)
			continue
		}
		if !ok {
			continue
		}
		good++
		n, _ := strconv.Atoi("0" + m[3])
		if want := (logName{m[1], m[2], n}); got != want || got.String() != name {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
	if good < 100 || good > len(all)/2 {
		t.Errorf("%d of %d names were valid, too few or too many for a useful test", good, len(all))
	}
}
