package waiting_test

import (
	"testing"

	"github.com/rootsfs/rootsfs/broker/internal/waiting"
)

func TestList(t *testing.T) {
	var l waiting.List[int]
	one, ok := l.Open("one")
	if !ok || !l.Deliver("one", 1) || l.Deliver("one", 2) || l.Deliver("two", 2) || <-one != 1 {
		t.Error("one question, one answer")
	}
	two, _ := l.Open("two")
	l.Close("two")
	if l.Deliver("two", 2) || len(two) != 0 {
		t.Error("an answer that nobody waits for")
	}
	three, _ := l.Open("three")
	l.End(-1)
	if <-three != -1 || l.Deliver("three", 3) {
		t.Error("the end answers all")
	}
	if _, ok := l.Open("four"); ok {
		t.Error("a question after the end")
	}
}
