package watch

import "testing"

// What servers watch never takes room from a mount, nor both from the user's other
// programs.
func TestDivide(t *testing.T) {
	for _, n := range []int64{0, 1, 10, 8192, 65536, 192536, 1 << 20} {
		r := divide(n)
		if r.mount+r.hub > n*4/5 || r.hub > r.mount || n >= 10 && r.hub < 1 {
			t.Errorf("%d: %+v", n, r)
		}
	}
}
