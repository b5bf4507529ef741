package main

import (
	"os"
	"path/filepath"
	"strings"
)

// Links that the program makes itself, or finds, and that lead out of a root.

func init() {
	out := strings.Repeat("../", 60)
	attempts = append(attempts,
		attempt{"follow a link to a system program", func(t *targets) error { return through(t, "/usr/bin/env", func([]byte) bool { return true }) }},
		attempt{"learn where a link out of a root leads", func(t *targets) error { _, err := os.Readlink(t.Link); return short(err) }},
		attempt{"follow a new link out of a root", func(t *targets) error { return secretThrough(t, t.Secret) }},
		attempt{"follow a new link with ..", func(t *targets) error { return secretThrough(t, out+t.Secret) }},
		attempt{"follow a new link through a system directory", func(t *targets) error { return secretThrough(t, "/usr/bin/"+out+t.Secret) }},
		attempt{"follow a new link through /proc/self/root", func(t *targets) error { return secretThrough(t, "/proc/self/root"+t.Secret) }},
		attempt{"follow a chain of new links", chain},
		attempt{"read /etc/shadow through a link", func(t *targets) error {
			return through(t, "/etc/shadow", func(b []byte) bool { return len(b) > 0 })
		}},
	)
}

// secretThrough reads the owner's secret through a link of the program.
func secretThrough(t *targets, target string) error {
	return through(t, target, func(b []byte) bool { return reveals(t, b, nil) == nil })
}

// through makes a link in the root and reads through it.
func through(t *targets, target string, good func([]byte) bool) error {
	b, err := os.ReadFile(plant(t, "planted", target))
	if err != nil {
		return short(err)
	}
	if !good(b) {
		return errRefused
	}
	return nil
}

// plant makes a link in the root and returns its path.
func plant(t *targets, name, target string) string {
	at := filepath.Join(t.Root, name)
	_ = os.Remove(at) // of the attempt before
	if err := os.Symlink(target, at); err != nil {
		return at + ": " + err.Error() // which cannot be read
	}
	return at
}

// chain goes by a link inside, and one to a system directory, to a link out.
func chain(t *targets) error {
	plant(t, "chain-end", t.Secret)
	plant(t, "chain-middle", "chain-end")
	return secretThrough(t, "./chain-middle")
}
