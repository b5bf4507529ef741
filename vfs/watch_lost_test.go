package vfs_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// holdReader keeps the tree from reading the kernel's events until release is called: it makes
// another watcher of the same inotify instance hang.
func (b *bed) holdReader() (release func()) {
	b.Helper()
	held, resume := make(chan struct{}), make(chan struct{})
	hang := sync.OnceFunc(func() { close(held); <-resume })
	w := b.t.NewSourceWatcher(func(watch.SourceEvent) { hang() }, hang)
	b.must(os.MkdirAll(b.host("held"), 0o755))
	at := b.at("held")
	info, err := b.t.Lstat(bg, who, at)
	b.must(err)
	b.must(second(w.Watch(bg, who, at.Path, at.Epoch, info.ID(), nil)))
	b.put("held/f", "")
	<-held
	return func() { close(resume); w.Close() }
}

// loseEvents keeps the tree from reading the kernel's queue of events, and fills the queue with
// events of the directory "noise", which must be watched. Then it calls change. The kernel drops
// the events that change causes.
func (b *bed) loseEvents(change func()) {
	b.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	b.must(err)
	room, err := strconv.Atoi(strings.TrimSpace(string(text)))
	b.must(err)
	release := b.holdReader()
	defer release()
	b.put("noise/0", "")
	for i := range room { // each rename makes two events; the tree may have read one buffer of them
		b.must(os.Rename(b.host("noise/"+strconv.Itoa(i)), b.host("noise/"+strconv.Itoa(i+1))))
	}
	b.must(os.Remove(b.host("noise/" + strconv.Itoa(room))))
	change()
}

// forget drops the events so far, so that x.until considers only later events.
func (x *watcher) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = nil
}

// R043: a storm of changes by one server makes the kernel drop events. Then the watchers of other
// directories are told to look again. Directories that were created meanwhile are watched from then
// on, and the watch of a path that was renamed meanwhile has ended. The same holds when the kernel
// drops events again.
func TestWatchesAfterLostEvents(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for _, d := range []string{"noise", "flat", "deep/a", "goes"} {
		b.put(d+"/f", "")
	}
	h := b.hub(watch.HubOptions{})
	b.watch(h, "noise", watch.Options{})
	flat := b.watch(h, "flat", watch.Options{})
	deep := b.watch(h, "deep", watch.Options{Recursive: true})
	file := b.watch(h, "flat/f", watch.Options{Events: watch.Modified})
	goes := b.watch(h, "goes", watch.Options{})
	for round := range 3 {
		dir := "deep/a/" + strconv.Itoa(round)
		flat.forget()
		deep.forget()
		file.forget()
		b.loseEvents(func() {
			b.must(os.MkdirAll(b.host(dir+"/below"), 0o755))
			b.put("flat/f", strconv.Itoa(round))
			if round == 0 {
				b.must(os.Rename(b.host("goes"), b.host("gone")))
			}
		})
		for _, x := range []*watcher{flat, deep, file} {
			x.until("to look again", overflowed)
		}
		b.put(dir+"/below/f", "")
		deep.until("a file in a directory that was created while events were lost", has(watch.Created, dir+"/below/f"))
		b.put("flat/g", strconv.Itoa(round))
		flat.until("going on", func(list []watch.Event) bool {
			return has(watch.Created, "flat/g")(list) || has(watch.Modified, "flat/g")(list)
		})
	}
	<-goes.w.Done()
	if list := goes.events(); len(list) == 0 || !list[len(list)-1].Ended {
		t.Errorf("events of a directory that was renamed while events were lost: %v", short(list))
	}
}
