package broker

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Every method that takes a path, except files/consent, gives the same code as the others for each
// refusal. It refuses a path in a missing directory (R049), a path without a grant (R050, R067), a
// path that is not a valid name below a root (R051, R056), a path that is no string, and unknown
// parameters (R091).
func TestEveryMethodRefuses(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "text", "d/x": ""})
	p := l.connect("")
	requests := map[string][]string{ // each PATH is replaced by one of paths
		wire.Read: {`{"path":PATH}`}, wire.Write: {`{"path":PATH,"content":"x"}`}, wire.List: {`{"path":PATH}`},
		wire.Create: {`{"path":PATH}`}, wire.Delete: {`{"path":PATH,"recursive":true}`}, wire.Watch: {`{"path":PATH}`}, wire.Stat: {`{"path":PATH}`},
		wire.Rename: {`{"oldPath":PATH,"newPath":"r/new"}`, `{"oldPath":"r/f","newPath":PATH}`},
		wire.Copy:   {`{"oldPath":PATH,"newPath":"r/new"}`, `{"oldPath":"r/f","newPath":PATH}`},
	}
	for method := range methods {
		if method == testOnly {
			continue
		}
		if _, ok := requests[method]; !ok && method != wire.Consent && method != wire.Unwatch && method != wire.RootsList {
			t.Errorf("%s is not tried", method)
		}
	}
	paths := map[string]names.Code{
		`"r/none/x"`: names.FileNotFound,
		`"other/f"`:  names.PermissionDenied, `"/etc/hostname"`: names.PermissionDenied, `"file:///etc/hostname"`: names.PermissionDenied,
		`"r/../f"`: names.InvalidPath, `".."`: names.InvalidPath, `"r/a\u0000"`: names.InvalidPath, `"r/` + strings.Repeat("n", 256) + `"`: names.InvalidPath,
		`"file:///r%2Ff"`: names.InvalidPath, `1`: "", `null`: "", `[]`: "", `{}`: "",
	}
	for method, forms := range requests {
		for _, form := range forms {
			for path, code := range paths {
				if method == wire.List && path == "null" {
					continue // null is the same as no path: the answer lists the roots
				}
				e, d := p.fails(method, strings.ReplaceAll(form, "PATH", path))
				want := wire.CodeInvalidParams
				if code != "" {
					want = wire.Number(code)
				}
				if e.Code != want || d.Code != code {
					t.Errorf("%s of %s with %.40s: %+v %+v, want %s", method, form, path, e, d, code)
				}
			}
			if e, _ := p.fails(method, strings.ReplaceAll(form[:len(form)-1], "PATH", `"r/f"`)+`,"surprise":1}`); e.Code != wire.CodeInvalidParams {
				t.Errorf("%s with an unknown field: %+v", method, e)
			}
		}
	}
	var st wire.StatResult
	if p.must(wire.Stat, `{"path":"r/f"}`, &st); st.Size != 4 {
		t.Errorf("after all that: %+v", st)
	}
}
