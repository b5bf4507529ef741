package sandbox

import (
	"context"
	"os/exec"
	"testing"
)

func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConfined(b *testing.B) {
	o := Options{Args: []string{"/bin/true"}, Tree: b.TempDir(), Level: Namespaces}
	for b.Loop() {
		p, err := Start(context.Background(), o)
		if err != nil {
			b.Fatal(err)
		}
		p.Stdin().Close()
		p.Stdout().Close()
		p.Stderr().Close()
		if exit, err := p.Wait(); err != nil || exit != (Exit{}) {
			b.Fatal(exit, err)
		}
	}
}
