package layout

import "testing"

// A directory at the top that contains a system directory is not taken from the tree, because
// that would hide the system directory.
func TestIsUsed(t *testing.T) {
	for top, want := range map[string]bool{
		"/usr": true, "/lib64": true, "/etc": true, "/private": true, "/nix": true, "/gnu": true,
		"/home": false, "/srv": false, "/nixos": false, "/li": false,
	} {
		if got := isUsed(top); got != want {
			t.Errorf("%s: %v, want %v", top, got, want)
		}
	}
}
