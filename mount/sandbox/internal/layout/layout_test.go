package layout

import "testing"

// A top-level directory that is or contains a system directory is used, and so is one that the
// minimal root makes itself. Other names are not, even if they begin like a used one.
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
