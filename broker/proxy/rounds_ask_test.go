package proxy

import "testing"

// Nobody is asked in the place of an answer that is on its way: the host would get
// two. A call that is repeated waits for an answer again.
func TestRoundsAskNotTwice(t *testing.T) {
	r := &rounds{}
	r.keep([]byte("1"), []byte("{}"), true)
	c := r.answered([]byte("1"))
	if c == nil || r.defers(c, []byte("{}")) {
		t.Fatalf("the host waits for the answer: %+v", c)
	}
	if got, _ := r.ask("q1"); got != nil {
		t.Errorf("asked in the place of an answer that is on its way: %+v", got)
	}
	if ok, _ := r.repeat(c, "again"); !ok {
		t.Fatal("not repeated")
	}
	got, hostID := r.ask("q2")
	if got != c || string(hostID) != "1" {
		t.Fatalf("asked %+v by id %s", got, hostID)
	}
	if !r.defers(c, []byte("{}")) || r.held != 4 {
		t.Errorf("the answer is not kept for the host; %d bytes are held", r.held)
	}
	if again, _ := r.ask("q3"); again != nil {
		t.Errorf("asked twice at a time: %+v", again)
	}
	r.giveUp(c, "q2")
	if len(r.host)+len(r.ours)+len(r.asked)+r.held != 0 {
		t.Errorf("something is left: %+v", r)
	}
}
