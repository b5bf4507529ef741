package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Read and Follow pass over the records up to the number in Filter.After. Read does not even read
// the files that hold only such records.
func TestAfter(t *testing.T) {
	o := options(t)
	o.MaxBytes = 2000
	l := mustOpen(t, o)
	for i := range 40 {
		mustRecord(t, l, allowed(t, fmt.Sprint("f", i)))
	}
	mustClose(t, l)
	files, err := Files(o.Dir, "")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	all := entries(t, o)
	// Damage the first file, so that Read fails if it reads the file.
	if err := os.WriteFile(files[0], []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	after := all[len(all)-3].Seq
	f := Filter{After: map[string]uint64{o.Session: after}}
	check := func(how string, got []uint64, err error) {
		t.Helper()
		if err != nil || len(got) != 2 || got[0] != after+1 || got[1] != after+2 {
			t.Errorf("%s: the records %v, %v; want the two after %d", how, got, err, after)
		}
	}
	var got []uint64
	err = Read(files, f, func(e Entry) error { got = append(got, e.Seq); return nil })
	check("Read", got, err)
	got = nil
	err = Follow(context.Background(), o.Dir, "", f, nil, func(e Entry) error {
		if got = append(got, e.Seq); len(got) == 2 {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	check("Follow", got, err)
	got = nil
	err = Follow(context.Background(), o.Dir, "", Filter{After: map[string]uint64{}}, nil, func(e Entry) error {
		got = append(got, e.Seq)
		return errStop
	})
	if !errors.Is(err, errStop) || len(got) != 1 || got[0] >= after {
		t.Errorf("Follow from the first record on: %v, %v", got, err)
	}
}

// ParseLine refuses a line whose JSON differs from the fields that the chain reads at fixed places.
func TestParseLine(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	mustRecord(t, l, allowed(t, "f"))
	mustClose(t, l)
	files, err := Files(o.Dir, o.Session)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Split(string(data), "\n")[1]
	if e, err := ParseLine([]byte(line)); err != nil || e.Seq != 2 {
		t.Errorf("a right line: %+v, %v", e, err)
	}
	for what, bad := range map[string]string{
		"two numbers": `{"seq":2,"seq":3` + line[len(`{"seq":2`):],
		"no hash":     `{"seq":2,"op":"open"}`,
		"two hashes":  line[:len(line)-1] + `,"hash":"00"}`,
	} {
		if _, err := ParseLine([]byte(bad)); err == nil {
			t.Errorf("a line with %s is taken", what)
		}
	}
}
