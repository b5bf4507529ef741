package network

import "testing"

// Servers skip a warning that comes before the handshake (here no_renegotiation and
// user_canceled), so the gate does, too.
func TestServerNameAfterWarnings(t *testing.T) {
	for _, warnings := range []string{"", "\x15\x03\x01\x00\x02\x01\x64", "\x15\x03\x03\x00\x02\x01\x5a\x15\x03\x01\x00\x02\x01\x64"} {
		sent := append([]byte(warnings), hello("evil.test")...)
		for n := range len(sent) {
			if server, enough, err := readHello(sent[:n]); server != "" || enough != (n == 0) || err != nil {
				t.Fatalf("after %x, of %d of %d bytes: %q, %v, %v", warnings, n, len(sent), server, enough, err)
			}
		}
		if server, enough, err := readHello(sent); server != "evil.test" || !enough || err != nil {
			t.Errorf("after %x: %q, %v, %v", warnings, server, enough, err)
		}
	}
}
