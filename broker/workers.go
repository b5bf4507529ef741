package broker

// workers are the goroutines that answer a session's requests. One that is done
// waits for another request, because a new goroutine has to make its stack grow
// anew, which costs as much as a small request (measured).
type workers struct {
	next chan *request // unbuffered: only one who waits takes a request
	idle chan struct{} // one element for each who waits
}

// maxIdle bounds the goroutines of a session that wait; how many work, the limit
// of requests in flight bounds.
const maxIdle = 32

func newWorkers() workers {
	return workers{next: make(chan *request), idle: make(chan struct{}, maxIdle)}
}

// start has a request answered that was admitted. It does not wait.
func (s *Session) start(r *request) {
	select {
	case s.workers.next <- r:
	default:
		go s.work(r)
	}
}

// work answers r, and others until there are enough who wait, or the session
// ends.
func (s *Session) work(r *request) {
	for {
		s.serve(r)
		select {
		case s.workers.idle <- struct{}{}:
		default:
			return
		}
		select {
		case r = <-s.workers.next:
			<-s.workers.idle
		case <-s.ctx.Done():
			return
		}
	}
}
