package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R085: a record has no field for contents. A new field of guard.Record that is a slice, a map, a
// pointer or the like fails this test, and so does a new string field that is not listed in text. The
// test does not look into the fields that are structs, such as Path and Facts.
func TestR085NoContents(t *testing.T) {
	text := map[string]bool{"Subject": true, "Detail": true, "Target": true} // Target is not written: see below
	typ := reflect.TypeFor[guard.Record]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch f.Type.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer, reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("field %s of guard.Record could carry contents", f.Name)
		case reflect.String:
			if !text[f.Name] {
				t.Errorf("field %s of guard.Record is text this package does not know", f.Name)
			}
		}
	}
}

// R086: in modes hash and none, no file of a session, its anchor included, contains the directory
// name that the test's paths and details share. In mode full the files contain the name, which shows
// that the search would find it. The target of a link is in no file in any mode.
func TestR086FilesHoldNoPaths(t *testing.T) {
	for mode, want := range map[PathMode]bool{PathsFull: true, PathsHash: false, PathsNone: false} {
		o := options(t)
		o.Paths, o.MaxBytes = mode, 900
		l := mustOpen(t, o)
		for _, verdict := range []guard.Verdict{guard.Allowed, guard.Refused, guard.Failed} {
			r := refusal(t, "patients/ann.txt")
			r.Path2, r.Verdict, r.Target = at(t, "code", "patients/eve\xff"), verdict, "/srv/link-target"
			mustRecord(t, l, r)
			mustRecord(t, l, guard.Record{Op: names.OpGrant, Verdict: verdict, Detail: "/srv/patients"})
		}
		mustClose(t, l)
		mustVerify(t, o)
		found := false
		err := filepath.WalkDir(filepath.Dir(o.Dir), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			if bytes.Contains(b, []byte("link-target")) {
				t.Errorf("mode %s: %s says where a link leads", mode, p)
			}
			found = found || bytes.Contains(b, []byte("patients"))
			return err
		})
		if err != nil || found != want {
			t.Errorf("mode %s: path found %v, want %v (%v)", mode, found, want, err)
		}
	}
}
