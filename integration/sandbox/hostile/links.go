package main

import (
	"os"
	"path/filepath"
	"strings"
)

// These attempts use links that lead out of a root. Some of the links are this program's own. The
// tests have made the others.

func init() {
	out := strings.Repeat("../", 60)
	attempts = append(attempts,
		attempt{"follow a link to a system program", func(t *targets) error { return readThrough(t, "/usr/bin/env", func([]byte) bool { return true }) }},
		attempt{"learn where a link out of a root leads", func(t *targets) error { _, err := os.Readlink(t.Link); return short(err) }},
		attempt{"follow a new link out of a root", func(t *targets) error { return readSecretThrough(t, t.Secret) }},
		attempt{"follow a new link with ..", func(t *targets) error { return readSecretThrough(t, out+t.Secret) }},
		attempt{"follow a new link through a system directory", func(t *targets) error { return readSecretThrough(t, "/usr/bin/"+out+t.Secret) }},
		attempt{"follow a new link through /proc/self/root", func(t *targets) error { return readSecretThrough(t, "/proc/self/root"+t.Secret) }},
		attempt{"follow a chain of new links", chain},
		attempt{"read /etc/shadow through a link", func(t *targets) error {
			return readThrough(t, "/etc/shadow", func(b []byte) bool { return len(b) > 0 })
		}},
	)
}

// readSecretThrough makes a link to target in the root and reads the owner's secret through the
// link.
func readSecretThrough(t *targets, target string) error {
	return readThrough(t, target, func(b []byte) bool { return reveals(t, b, nil) == nil })
}

// readThrough makes a link in the root and reads through it. It returns nil if the content is as
// expected.
func readThrough(t *targets, target string, isExpected func([]byte) bool) error {
	b, err := os.ReadFile(makeLink(t, "planted", target))
	if err != nil {
		return short(err)
	}
	if !isExpected(b) {
		return errRefused
	}
	return nil
}

// makeLink makes a link in the root and returns its path.
func makeLink(t *targets, name, target string) string {
	at := filepath.Join(t.Root, name)
	_ = os.Remove(at) // an earlier attempt may have made it
	if err := os.Symlink(target, at); err != nil {
		return at + ": " + err.Error() // no file has this path, so that the attempt fails
	}
	return at
}

// chain reads the secret through a chain of three links, the last of which leads out.
func chain(t *targets) error {
	makeLink(t, "chain-end", t.Secret)
	makeLink(t, "chain-middle", "chain-end")
	return readSecretThrough(t, "./chain-middle")
}
