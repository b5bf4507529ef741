package guard_test

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// What the gate costs per operation when nothing but rights is asked for. Run it
// before and after a change of the gate: features that are off must not show.
func BenchmarkAdmit(b *testing.B) {
	for name, op := range map[string]guard.Op{"lookup": names.OpLookup, "read": names.OpRead, "write": names.OpWrite} {
		b.Run(name, func(b *testing.B) {
			g := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}})
			if _, err := g.Grant(bg, guard.Grant{Root: "r", Dir: "/r", Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}); err != nil {
				b.Fatal(err)
			}
			r := req(b, op)
			r.Path = path(b, "r", "src/deep/inside/of/it/file.go")
			if op != names.OpLookup {
				r.Bytes = 4096
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := g.Admit(bg, r)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Done(r.Bytes, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
