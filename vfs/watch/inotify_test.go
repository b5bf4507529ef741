package watch

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Consecutive events of one file are delivered as one if they are equal, or if all of them report
// changes of contents or attributes. No other event is lost or reordered.
func TestMerge(t *testing.T) {
	at := func(mask uint32, name string) beneath.NotifyEvent {
		return beneath.NotifyEvent{WD: 1, Mask: mask, Name: name}
	}
	other := at(unix.IN_MODIFY, "f")
	other.WD = 2
	for name, c := range map[string]struct{ events, want []beneath.NotifyEvent }{
		"a file that is unpacked": {
			[]beneath.NotifyEvent{at(unix.IN_CREATE, "f"), at(unix.IN_MODIFY, "f"), at(unix.IN_ATTRIB, "f"), at(unix.IN_ATTRIB, "f"), at(unix.IN_CREATE, "g")},
			[]beneath.NotifyEvent{at(unix.IN_CREATE, "f"), at(unix.IN_MODIFY|unix.IN_ATTRIB, "f"), at(unix.IN_CREATE, "g")},
		},
		"a name that comes again": {
			[]beneath.NotifyEvent{at(unix.IN_MODIFY, "f"), at(unix.IN_DELETE, "f"), at(unix.IN_CREATE, "f"), at(unix.IN_MODIFY, "f")},
			[]beneath.NotifyEvent{at(unix.IN_MODIFY, "f"), at(unix.IN_DELETE, "f"), at(unix.IN_CREATE, "f"), at(unix.IN_MODIFY, "f")},
		},
		"two directories": {
			[]beneath.NotifyEvent{at(unix.IN_MODIFY, "f"), other},
			[]beneath.NotifyEvent{at(unix.IN_MODIFY, "f"), other},
		},
		"lost events": {
			[]beneath.NotifyEvent{at(unix.IN_Q_OVERFLOW, ""), at(unix.IN_ATTRIB, "")},
			[]beneath.NotifyEvent{at(unix.IN_Q_OVERFLOW, ""), at(unix.IN_ATTRIB, "")},
		},
	} {
		var got []beneath.NotifyEvent
		eachEvent(c.events, func(e beneath.NotifyEvent) { got = append(got, e) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

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
