package proxy

import "testing"

// A call whose answer is being examined gets no question as its answer: otherwise the host would
// get two answers. A repeated call waits for an answer again, and can get a question.
func TestCalls_oneQuestionAtATime(t *testing.T) {
	c := &calls{}
	c.add([]byte("1"), []byte("{}"), true)
	own, kept := c.acceptAnswer([]byte("1"), []byte("{}"))
	if own == nil || kept {
		t.Fatalf("the call is unknown, or its answer is kept although the host waits for it: %+v", own)
	}
	if id := c.markAsked("q1"); id != nil {
		t.Errorf("a question replaces an answer that is being examined, with the id %s", id)
	}
	if ok, _ := c.repeat(own, "again"); !ok {
		t.Fatal("not repeated")
	}
	if id := c.markAsked("q2"); string(id) != "1" {
		t.Fatalf("the question has the id %s", id)
	}
	if got, kept := c.acceptAnswer([]byte(`"again"`), []byte("{}")); got != own || !kept || c.held != 4 {
		t.Errorf("the answer is not kept for the host; %d bytes are held", c.held)
	}
	if id := c.markAsked("q3"); id != nil {
		t.Errorf("a call gets two questions at a time, with the id %s", id)
	}
	c.giveUp("q2")
	if len(c.byHost)+len(c.byServer)+len(c.byQuestion)+c.held != 0 {
		t.Errorf("something is left: %+v", c)
	}
}

// If a host repeats a call under the id of another call, and still waits for the answer to the
// other call, the other call ends.
func TestCalls_reattachToUsedID(t *testing.T) {
	c := &calls{}
	c.add([]byte("1"), []byte("{}"), true)
	c.markAsked("q")
	c.add([]byte("2"), []byte("{}"), true)
	if _, ok := c.reattach("q", []byte("2")); !ok || c.held != 2 {
		t.Errorf("%v, %d bytes are held", ok, c.held)
	}
	if own, _ := c.acceptAnswer([]byte("2"), []byte("{}")); own != nil {
		t.Errorf("the other call has not ended: %+v", own)
	}
	if id := c.cancel([]byte("2")); string(id) != "1" || c.held != 0 {
		t.Errorf("the server knows the call by %s, %d bytes are held", id, c.held)
	}
}

// If a server answers a call twice, both answers may be handled at the same time. Handling one of
// them does not change the other, and does not end a call that the host has resumed.
func TestCalls_answeredTwice(t *testing.T) {
	c := &calls{}
	c.add([]byte("1"), []byte("{}"), true)
	own, _ := c.acceptAnswer([]byte("1"), []byte("{}"))
	twice, _ := c.acceptAnswer([]byte("1"), []byte("{}"))
	c.repeat(own, "again")
	c.markAsked("q")
	read := make(chan string)
	go func() { read <- string(twice.hostID) }() // as the code that handles an answer does
	if _, ok := c.reattach("q", []byte("2")); !ok {
		t.Fatal("the host's call is not known")
	}
	if id := <-read; id != "1" {
		t.Errorf("the host's id is %s", id)
	}
	c.end(twice)
	if ok, _ := c.repeat(twice, "once more"); ok {
		t.Error("a call that has ended was repeated")
	}
	if id := c.cancel([]byte("2")); string(id) != `"again"` || c.held != 0 || len(c.byServer) != 0 {
		t.Errorf("the server knows the call by %s, %d bytes are held", id, c.held)
	}
}
