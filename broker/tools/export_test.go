package tools

import (
	"os"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
)

// LowerCallBounds lowers to n bytes the bounds of calls that have no answer: for the lines of a
// session over streams, and for the bodies of one subject over HTTP. A line without room then waits
// for an hour, which is longer than a test takes. restore restores the bounds and the wait.
func LowerCallBounds(n int64) (restore func()) {
	lines, bodies, wait := maxHeld, subjectBodies, flowcontrol.MaxWait.Load()
	maxHeld, subjectBodies = n, n
	flowcontrol.MaxWait.Store(int64(time.Hour))
	return func() {
		maxHeld, subjectBodies = lines, bodies
		flowcontrol.MaxWait.Store(wait)
	}
}

// LowerFrame lowers the length of the longest line that is accepted, unless the loops of tests run in
// full (ROOTSFS_SOAK=1). It returns the length.
func LowerFrame() (length int, restore func()) {
	was := maxFrame
	if os.Getenv("ROOTSFS_SOAK") == "" {
		maxFrame = 1 << 20
	}
	return maxFrame, func() { maxFrame = was }
}

// SetPatience sets how long Server.Run waits for the calls in progress when the client has hung up.
func SetPatience(d time.Duration) (restore func()) {
	was := patience
	patience = d
	return func() { patience = was }
}

// LowerAnswerBounds lowers the bounds of the memory of answers over HTTP: to n bytes for all users,
// and to half of that for one user.
func LowerAnswerBounds(n int64) (restore func()) {
	all, user := allAnswers, userAnswers
	allAnswers, userAnswers = n, n/2
	return func() { allAnswers, userAnswers = all, user }
}

// AnswersHeld returns how many bytes the answers hold that clients have not read.
func (h *HTTP) AnswersHeld() int64 {
	_, bytes := h.clients.answers.Used()
	return bytes
}
