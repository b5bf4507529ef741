package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// HTTP ends with its context also if the session stops after it has upgraded the connection, and
// before it takes the port.
func TestHTTPEndsWithItsContext(t *testing.T) {
	d, c := serve(t, &fakeSession{})
	socket := filepath.Join(d.Path(), socketFile)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the session
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+frontProtocol+"\r\n\r\n")
		time.Sleep(50 * time.Millisecond) // the client waits for the byte that asks for the port
		cancel()
		<-t.Context().Done()
	}()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := c.HTTP(ctx, HTTPRequest{}, port.(*net.TCPListener))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("HTTP returned %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("HTTP still waits for the session after its context has ended")
	}
}
