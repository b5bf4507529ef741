package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// childNetwork is the mode in which this program is a client in a sandbox. The arguments are the
// server's address and, if the client is to use a proxy, childProxied. The client carries out the
// orders that it reads from standard input.
const (
	childNetwork = "child-network"
	childProxied = "proxied" // connect through the HTTP proxy of $HTTPS_PROXY
)

// networkOrder is an order to a client.
type networkOrder struct {
	Do    string `json:"do"` // download, upload, first, hold or end
	Count int64  `json:"count"`
}

// networkResult is the result of an order: bytes a second, seconds, or connections.
type networkResult struct {
	Value float64 `json:"value"`
	Error string  `json:"error,omitempty"`
}

// Requests to the server, each the first byte of a connection. Eight bytes follow: how many
// bytes the client wants, or sends.
const (
	wantBytes = 'd'
	haveBytes = 'u'
	wantEcho  = 'e'
)

// serveNetwork answers clients until l is closed.
func serveNetwork(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = answerNetwork(c) // a client that breaks off has its own error
		}()
	}
}

func answerNetwork(c net.Conn) error {
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint64(head[1:]))
	var err error
	switch head[0] {
	case wantBytes:
		_, err = io.CopyN(c, anyBytes{}, n)
	case haveBytes:
		if _, err = io.CopyN(io.Discard, struct{ io.Reader }{c}, n); err == nil {
			_, err = c.Write(head[:1])
		}
	case wantEcho:
		if _, err = c.Write(head[:1]); err == nil {
			_, err = io.Copy(io.Discard, c) // until the connection ends
		}
	}
	return err
}

// anyBytes is a reader without an end. It leaves each buffer as it is: nobody looks at the bytes.
type anyBytes struct{}

func (anyBytes) Read(p []byte) (int, error) { return len(p), nil }

// networkClient is the process of childNetwork.
type networkClient struct {
	address string
	proxy   *url.URL // nil: none
	held    []net.Conn
}

func runNetworkClient(address string, proxied bool) error {
	c := &networkClient{address: address}
	if proxied {
		var err error
		if c.proxy, err = url.Parse(os.Getenv("HTTPS_PROXY")); err != nil {
			return err
		}
	}
	return carryOutOrders(c.carryOut)
}

// carryOutOrders carries out the orders that this process reads from standard input, until its end,
// and writes a result to standard output for each.
func carryOutOrders(carryOut func(networkOrder) (float64, error)) error {
	orders, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o networkOrder
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r networkResult
		var err error
		if r.Value, err = carryOut(o); err != nil {
			r.Error = err.Error()
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
}

func (c *networkClient) carryOut(o networkOrder) (float64, error) {
	switch o.Do {
	case "download", "upload":
		return c.move(o)
	case "first":
		var all []float64
		for range o.Count {
			began := time.Now()
			conn, err := c.echo()
			if err != nil {
				return 0, err
			}
			all = append(all, time.Since(began).Seconds())
			conn.Close()
		}
		return median(all), nil
	case "hold":
		for range o.Count {
			conn, err := c.echo()
			if err != nil {
				return float64(len(c.held)), err
			}
			c.held = append(c.held, conn)
		}
		return float64(len(c.held)), nil
	case "end":
		c.held = slices.DeleteFunc(c.held, func(conn net.Conn) bool {
			defer conn.Close()
			return isBroken(conn.(*net.TCPConn))
		})
		return float64(len(c.held)), nil
	}
	return 0, fmt.Errorf("what is %q?", o.Do)
}

// isBroken reports whether a connection has broken off. The server sends nothing more over it.
// isBroken does not wait.
func isBroken(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		_, rerr = unix.Read(int(fd), make([]byte, 1))
		return true
	})
	return err != nil || !errors.Is(rerr, unix.EAGAIN)
}

// move moves bytes over a new connection, and returns how many a second.
func (c *networkClient) move(o networkOrder) (float64, error) {
	kind := byte(wantBytes)
	if o.Do == "upload" {
		kind = haveBytes
	}
	conn, err := c.connect(kind, o.Count)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	began := time.Now()
	if kind == haveBytes {
		if _, err = io.CopyN(conn, anyBytes{}, o.Count); err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1)) // the server has all of it
		}
	} else {
		_, err = io.CopyN(io.Discard, struct{ io.Reader }{conn}, o.Count)
	}
	return float64(o.Count) / time.Since(began).Seconds(), err
}

// echo opens a connection over which a byte has come back.
func (c *networkClient) echo() (net.Conn, error) {
	conn, err := c.connect(wantEcho, 0)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *networkClient) connect(kind byte, count int64) (net.Conn, error) {
	address := c.address
	if c.proxy != nil {
		address = c.proxy.Host
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if c.proxy != nil {
		err = c.askProxy(conn)
	}
	if err == nil {
		_, err = conn.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(count)))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// askProxy asks an HTTP proxy to connect to the server, and reads the proxy's answer. The buffered
// reader takes no bytes of the server, because the server sends nothing before the client does.
func (c *networkClient) askProxy(conn net.Conn) error {
	password, _ := c.proxy.User.Password()
	secret := base64.StdEncoding.EncodeToString([]byte(c.proxy.User.Username() + ":" + password))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", c.address, secret); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return err
}
