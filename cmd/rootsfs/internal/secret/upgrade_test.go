package secret

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A connection to the host, or to the base URL, changes its protocol if the rules allow the request
// and the host agrees. Afterwards the credential is still removed from the host's bytes, and the
// bytes of both directions are counted.
func TestUpgrade(t *testing.T) {
	rule, err := parseRule("GET /ws")
	if err != nil {
		t.Fatal(err)
	}
	d := newDoorLab(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") != "k" || r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(w, fmt.Sprint(r.Header), http.StatusTeapot)
			return
		}
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: a=b\r\n\r\n")
		line, _ := both.ReadString('\n')
		fmt.Fprintf(c, "you said %s%s.", line, key)
	}, &Secret{Allow: []Rule{rule}})
	ways := map[string]func() (net.Conn, error){
		"example.com": func() (net.Conn, error) {
			return tls.Dial("tcp", d.at, &tls.Config{ServerName: "example.com", RootCAs: d.trusted, NextProtos: []string{"http/1.1"}})
		},
		"api-token.secret.internal": func() (net.Conn, error) { return net.Dial("tcp", d.address) },
	}
	for host, dial := range ways {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\nX-Other: x\r\n\r\n", host)
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 101 || res.Header.Get("Set-Cookie") != "" {
			body, _ := io.ReadAll(res.Body)
			t.Fatalf("%s: %v, %v, %s", host, res, err, body)
		}
		fmt.Fprint(c, "hello\n")
		if got, err := io.ReadAll(r); string(got) != "you said hello\n"+d.proxy.credential.placeholder+"." {
			t.Errorf("%s: %q, %v", host, got, err)
		}
		c.Close() // the host has closed only its own direction
		if rec := d.last(1); rec.Status != 101 || rec.Sent != 6 || rec.Received != int64(len("you said hello\n")+len(key)+1) || rec.Failed != nil {
			t.Errorf("%s: on record is %+v", host, rec)
		}
	}
	if res, body := d.get("/other", "Connection: Upgrade", "Upgrade: websocket"); res.StatusCode != 403 || !strings.Contains(body, "no rule") {
		t.Errorf("another path: %s %q", res.Status, body)
	}
}
