package network

import "testing"

// Servers skip a warning that comes before the handshake (here no_renegotiation and
// user_canceled), so the gate does, too.
func TestServerNameAfterWarnings(t *testing.T) {
	for _, warnings := range []string{"", "\x15\x03\x01\x00\x02\x01\x64", "\x15\x03\x03\x00\x02\x01\x5a\x15\x03\x01\x00\x02\x01\x64"} {
		sent := append([]byte(warnings), hello("evil.test")...)
		for _, size := range []int{1, 7, len(sent)} {
			begin, server, err := readHello(&fixedConn{rest: sent, size: size})
			if server != "evil.test" || err != nil || string(begin) != string(sent) {
				t.Errorf("after %x, in pieces of %d: server name %q, %v, %d of %d bytes", warnings, size, server, err, len(begin), len(sent))
			}
		}
	}
}
