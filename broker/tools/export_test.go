package tools

import (
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
)

// LowerCallBounds lowers the bounds of unanswered calls to n bytes, for lines and for bodies. Calls
// that find no room then wait for as long as a test takes on a busy machine. restore restores the
// bounds and the wait.
func LowerCallBounds(n int64) (restore func()) {
	lines, bodies, wait := maxHeld, subjectBodies, flowcontrol.MaxWait.Load()
	maxHeld, subjectBodies = n, n
	flowcontrol.MaxWait.Store(int64(time.Hour))
	return func() {
		maxHeld, subjectBodies = lines, bodies
		flowcontrol.MaxWait.Store(wait)
	}
}

// Linger sets how long a server waits for the calls in progress when the client has hung up.
func Linger(d time.Duration) (restore func()) {
	was := patience
	patience = d
	return func() { patience = was }
}

// HoldAnswers lowers the bounds of the memory of answers over HTTP: to n bytes for all users, and to
// half of that for one user.
func HoldAnswers(n int64) (restore func()) {
	all, user := allAnswers, userAnswers
	allAnswers, userAnswers = n, n/2
	return func() { allAnswers, userAnswers = all, user }
}

// AnswersHeld returns how many bytes answers hold that their clients have not read.
func (h *HTTP) AnswersHeld() int64 {
	_, bytes := h.clients.answers.Used()
	return bytes
}
