package watch

import "testing"

// Watches of servers never take the room of a mount's watches, and both together leave room for
// the user's other programs.
func TestDivide(t *testing.T) {
	for _, n := range []int64{0, 1, 10, 8192, 65536, 192536, 1 << 20} {
		mount, hub := mountRoom(n), hubRoom(n)
		if mount+hub > n*4/5 || hub > mount || n >= 10 && hub < 1 {
			t.Errorf("%d: %d for a mount, %d for a hub", n, mount, hub)
		}
	}
}
