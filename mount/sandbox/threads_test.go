package sandbox

import (
	"bufio"
	"context"
	"runtime"
	"sync"
	"testing"
)

// The init is tied to the thread that started it: the kernel sends the init a signal when that
// thread ends, and not when the process ends. The end of the caller's other threads does not affect
// the command.
func TestThreadsEnd(t *testing.T) {
	atLevels(t, confining, func(t *testing.T, level Level) {
		p, err := Start(context.Background(), Options{Level: level, Args: []string{"cat"}, Tree: tree(t), Private: private(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stderr().Close()
		for range 20 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(runtime.LockOSThread) // whose thread ends with the goroutine
			}
			all.Wait()
		}
		stdout := bufio.NewReader(p.Stdout())
		for range 100 {
			if _, err := p.Stdin().WriteString("alive\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := stdout.ReadString('\n'); line != "alive\n" {
				t.Fatalf("cat said %q, %v", line, err)
			}
		}
		p.Stdin().Close()
		if exit, err := p.Wait(); err != nil || exit != (Exit{}) {
			t.Errorf("exit %+v, %v", exit, err)
		}
		p.Stdout().Close()
	})
}
