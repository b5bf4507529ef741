package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// BenchmarkLines measures reads and a listing over the transport of Broker.Lines, from the server's
// call to the result of the call. Both ends are in this process, on pipes of the system.
func BenchmarkLines(b *testing.B) {
	dir := b.TempDir()
	for _, size := range []int{1 << 10, 1 << 20} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(size)), []byte(strings.Repeat("x", size)), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("file-%d.txt", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if _, err := reg.Grant(bg, guard.Grant{Root: "p", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"}); err != nil {
		b.Fatal(err)
	}
	host := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg)})
	b.Cleanup(host.Close)
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	serverBroker := client.New(nil)
	ss, err := newServer().Connect(bg, serverBroker.Lines(inR, outW, 0), nil)
	if err != nil {
		b.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(bg,
		host.Session("server").Lines(outR, inW, 0), &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cs.Close() })
	f, err := serverBroker.Files(ss)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{1 << 10, 1 << 20} {
		read := func() error {
			c, err := f.Read(bg, fmt.Sprintf("p/%d", size), client.ReadOptions{Length: int64(size)})
			if err == nil && len(c.Data) != size {
				err = fmt.Errorf("%d bytes", len(c.Data))
			}
			return err
		}
		b.Run(fmt.Sprintf("read %d", size), func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("read %d, many at a time", size), func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := read(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	b.Run("list 100", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range f.List(bg, "p/many", client.ListOptions{}) {
				if n++; err != nil {
					b.Fatal(err)
				}
			}
			if n != 100 {
				b.Fatalf("%d entries", n)
			}
		}
	})
}
